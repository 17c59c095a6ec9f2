// SPDX-License-Identifier: BSD-2-Clause
#include "process_group.hpp"

#include <Python.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace inagg {

using c10d::OpType;

namespace {

constexpr int most_ranks = 64;

bool joinable(int size) { return size > 1 && size <= most_ranks; }

std::runtime_error failure(const std::string &scope) { return std::runtime_error("inagg: " + (inagg_message() + scope)); }

// Each group is a job of its own, or as many jobs as there are trees.
inagg_options options_for(int rank, int size, const ProcessGroupInagg::Settings &settings) {
    inagg_options options;
    inagg_options_init(&options);
    if (!joinable(size))
        return options;
    if (inagg_options_for_rank(&options, static_cast<uint16_t>(rank), static_cast<uint16_t>(size)))
        throw failure(settings.scope);
    const int64_t job = options.job + int64_t{options.trees} * settings.number;
    TORCH_CHECK(job + options.trees <= UINT16_MAX + 1, "inagg: process group ", settings.number, " would be job ", job,
                ", the last one is ", UINT16_MAX, ": choose a smaller INAGG_JOB");
    options.job = static_cast<uint16_t>(job);
    if (!std::getenv("INAGG_TIMEOUT_MS"))
        options.timeout_ms = static_cast<uint32_t>(std::clamp<int64_t>(settings.timeout.count(), 1, UINT32_MAX));
    return options;
}

const char *name_of(const c10d::ReduceOp &op) {
    constexpr const char *names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
    return op < std::size(names) ? names[op] : "unknown operator";
}

std::optional<inagg_op> operator_of(const c10d::ReduceOp &op) {
    switch (op) {
    case c10d::ReduceOp::SUM:
        return INAGG_SUM;
    case c10d::ReduceOp::AVG:
        return INAGG_AVG;
    case c10d::ReduceOp::MIN:
        return INAGG_MIN;
    case c10d::ReduceOp::MAX:
        return INAGG_MAX;
    default:
        return std::nullopt;
    }
}

// While Python's lock is held, our threads and Gloo's could not run callbacks, nor free tensors that Python
// knows: who waits for them has to let go of it.
class WithoutPython {
public:
    WithoutPython() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
    ~WithoutPython() {
        if (state_)
            PyEval_RestoreThread(state_);
    }

private:
    PyThreadState *const state_;
};

} // namespace

// Joining and leaving

ProcessGroupInagg::ProcessGroupInagg(const MakeGloo &make_gloo, int rank, int size, const Settings &settings)
    : ProcessGroup(rank, size), settings_(settings), options_(options_for(rank, size, settings)), gloo_(make_gloo()),
      completer_([](const Item &item) { item->complete(); }, true), finisher_([this](const Item &item) {
          item->finish(*this);
          if (item->may_fall_back())
              count_undecided(-1);
          completer_.push(item);
      }),
      starter_([this](const Item &item) {
          item->begin(*this);
          finisher_.push(item);
      }) {}

ProcessGroupInagg::~ProcessGroupInagg() {
    const WithoutPython released;
    leave();
    gloo_.reset();
}

void ProcessGroupInagg::join() {
    if (joinable(size_))
        joined();
}

inagg_comm *ProcessGroupInagg::joined() {
    if (!refused_.empty())
        throw std::runtime_error(refused_);
    if (comm_)
        return comm_;
    inagg_comm *comm = nullptr;
    if (inagg_join(&options_, &comm)) {
        const std::runtime_error error = failure(settings_.scope);
        refused_ = error.what();
        throw error;
    }
    const std::lock_guard lock(mutex_);
    transport_ = inagg_transport(comm);
    return comm_ = comm;
}

void ProcessGroupInagg::leave() {
    starter_.close();
    finisher_.close();
    completer_.close();
    stats();
    const std::lock_guard lock(mutex_);
    inagg_leave(std::exchange(comm_, nullptr)); // its error, if any, is that of a call before
}

inagg_stats_t ProcessGroupInagg::stats() {
    const std::lock_guard lock(mutex_);
    if (comm_)
        inagg_get_stats(comm_, &last_stats_);
    return last_stats_;
}

std::string ProcessGroupInagg::transport() {
    const std::lock_guard lock(mutex_);
    return transport_;
}

void ProcessGroupInagg::check(int code) const {
    if (code)
        throw failure(settings_.scope);
}

// By the switch or by Gloo

// "" if inagg can carry these.
std::string ProcessGroupInagg::obstacle(const Tensors &tensors) const {
    if (!joinable(size_))
        return size_ == 1 ? "group of one" : "group of more than " + std::to_string(most_ranks);
    if (tensors.empty())
        return "no tensors";
    for (const at::Tensor &tensor : tensors)
        if (tensor.layout() != at::kStrided || !tensor.device().is_cpu())
            return tensor.layout() != at::kStrided ? "sparse" : tensor.device().str();
    return "";
}

std::string ProcessGroupInagg::obstacle(const Tensors &tensors, const c10d::ReduceOp &op) const {
    if (const std::string why = obstacle(tensors); !why.empty())
        return why;
    const std::optional<inagg_op> carried = operator_of(op);
    if (!carried)
        return name_of(op);
    if (options_.key[0] && *carried != INAGG_SUM && *carried != INAGG_AVG)
        return std::string(name_of(op)) + " with a key"; // only sums can be verified
    const at::ScalarType type = tensors[0].scalar_type();
    for (const at::Tensor &tensor : tensors)
        if (tensor.scalar_type() != type)
            return "several types";
    const std::optional<Wire> wire = wire_for(type);
    if (!wire || (wire->type > INAGG_DTYPES && runs("trio")))
        return c10::toString(type);
    return "";
}

// Sums that can be verified are those of integers that do not wrap, which panama's of floats are as FLOAT64 alone.
std::optional<Wire> ProcessGroupInagg::wire_for(at::ScalarType type) const {
    const bool verified = options_.key[0];
    if (verified && type == at::kInt)
        return wire_of(at::kLong);
    if (verified && runs("panama") && at::isFloatingType(type))
        return wire_of(at::kDouble);
    return wire_of(type);
}

bool ProcessGroupInagg::runs(std::string_view algorithm) const { return algorithm == options_.algorithm; }

ProcessGroupInagg::Handle ProcessGroupInagg::submit(Item item) {
    const bool undecided = item->may_fall_back();
    if (undecided)
        count_undecided(1);
    try {
        starter_.push(item);
    } catch (...) { // it has left
        if (undecided)
            count_undecided(-1);
        throw;
    }
    return item;
}

void ProcessGroupInagg::count_undecided(int more) {
    const std::lock_guard lock(mutex_);
    undecided_ += more;
    settled_.notify_all();
}

// Gloo matches calls by their order: those that may still go there go before this one.
void ProcessGroupInagg::settle() {
    std::unique_lock lock(mutex_);
    settled_.wait(lock, [this] { return undecided_ == 0; });
}

template <typename Call>
ProcessGroupInagg::Handle ProcessGroupInagg::delegate(const std::string &what, const Tensors &tensors, Call call) {
    settle();
    Handle handle = call(*gloo_);
    counters_.delegated(what, bytes_of(tensors));
    return handle;
}

Wire ProcessGroupInagg::checked_wire(const at::Tensor &tensor, inagg_op op) const {
    const at::ScalarType type = tensor.scalar_type();
    TORCH_CHECK(op != INAGG_AVG || at::isFloatingType(type), "inagg: the average of ", c10::toString(type),
                " elements is none of that type: sum, and divide, or use a type of floating point");
    return *wire_for(type);
}

ProcessGroupInagg::Handle ProcessGroupInagg::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    std::string why = obstacle(tensors, options.reduceOp);
    if (why.empty() && tensors.size() > 1) // which Gloo sums to one
        why = "several tensors";
    if (!why.empty())
        return delegate("all_reduce: " + why, tensors, [&](ProcessGroup &gloo) {
            c10d::AllreduceOptions theirs = options;
            if (size_ == 1 && theirs.reduceOp == c10d::ReduceOp::AVG)
                theirs.reduceOp = c10d::ReduceOp::SUM; // Gloo has no average
            return gloo.allreduce(tensors, theirs);
        });
    const inagg_op op = *operator_of(options.reduceOp);
    return submit(c10::make_intrusive<Reduction>(OpType::ALLREDUCE, "all_reduce", tensors, checked_wire(tensors[0], op), op));
}

ProcessGroupInagg::Handle ProcessGroupInagg::allreduce_coalesced(Tensors &tensors,
                                                                 const c10d::AllreduceCoalescedOptions &options) {
    if (const std::string why = obstacle(tensors, options.reduceOp); !why.empty())
        return delegate("all_reduce_coalesced: " + why, tensors,
                        [&](ProcessGroup &gloo) { return gloo.allreduce_coalesced(tensors, options); });
    const inagg_op op = *operator_of(options.reduceOp);
    return submit(c10::make_intrusive<Reduction>(OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", tensors,
                                                 checked_wire(tensors[0], op), op));
}

ProcessGroupInagg::Handle ProcessGroupInagg::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    std::string why = obstacle(tensors, options.reduceOp);
    if (why.empty() && tensors.size() > 1)
        why = "several tensors";
    if (!why.empty())
        return delegate("reduce: " + why, tensors, [&](ProcessGroup &gloo) { return gloo.reduce(tensors, options); });
    const inagg_op op = *operator_of(options.reduceOp);
    return submit(c10::make_intrusive<Reduction>(OpType::REDUCE, "reduce", tensors, checked_wire(tensors[0], op), op,
                                                 static_cast<uint16_t>(options.rootRank)));
}

ProcessGroupInagg::Handle ProcessGroupInagg::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    std::string why = obstacle(tensors);
    if (why.empty() && tensors.size() > 1)
        why = "several tensors";
    if (!why.empty())
        return delegate("broadcast: " + why, tensors, [&](ProcessGroup &gloo) { return gloo.broadcast(tensors, options); });
    return submit(c10::make_intrusive<Broadcast>(tensors, static_cast<uint16_t>(options.rootRank)));
}

ProcessGroupInagg::Handle ProcessGroupInagg::barrier(const c10d::BarrierOptions &options) {
    if (!joinable(size_))
        return delegate("barrier", {}, [&](ProcessGroup &gloo) { return gloo.barrier(options); });
    return submit(c10::make_intrusive<Barrier>());
}

ProcessGroupInagg::Handle ProcessGroupInagg::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                                       const c10d::AllgatherOptions &options) {
    return delegate("all_gather", inputs, [&](ProcessGroup &gloo) { return gloo.allgather(outputs, inputs, options); });
}

ProcessGroupInagg::Handle ProcessGroupInagg::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                             const c10d::AllgatherOptions &options) {
    return delegate("all_gather_into_tensor", {input},
                    [&](ProcessGroup &gloo) { return gloo._allgather_base(output, input, options); });
}

ProcessGroupInagg::Handle ProcessGroupInagg::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                                                 const c10d::AllgatherOptions &options) {
    return delegate("all_gather_coalesced", inputs,
                    [&](ProcessGroup &gloo) { return gloo.allgather_coalesced(outputs, inputs, options); });
}

ProcessGroupInagg::Handle ProcessGroupInagg::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                                                    const c10d::GatherOptions &options) {
    return delegate("gather", inputs, [&](ProcessGroup &gloo) { return gloo.gather(outputs, inputs, options); });
}

ProcessGroupInagg::Handle ProcessGroupInagg::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                                     const c10d::ScatterOptions &options) {
    return delegate("scatter", outputs, [&](ProcessGroup &gloo) { return gloo.scatter(outputs, inputs, options); });
}

ProcessGroupInagg::Handle ProcessGroupInagg::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                                            const c10d::ReduceScatterOptions &options) {
    return delegate("reduce_scatter", outputs, [&](ProcessGroup &gloo) { return gloo.reduce_scatter(outputs, inputs, options); });
}

ProcessGroupInagg::Handle ProcessGroupInagg::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                                  const c10d::ReduceScatterOptions &options) {
    return delegate("reduce_scatter_tensor", {input},
                    [&](ProcessGroup &gloo) { return gloo._reduce_scatter_base(output, input, options); });
}

ProcessGroupInagg::Handle ProcessGroupInagg::alltoall_base(at::Tensor &output, at::Tensor &input,
                                                           std::vector<int64_t> &output_sizes, std::vector<int64_t> &input_sizes,
                                                           const c10d::AllToAllOptions &options) {
    return delegate("all_to_all_single", {input},
                    [&](ProcessGroup &gloo) { return gloo.alltoall_base(output, input, output_sizes, input_sizes, options); });
}

ProcessGroupInagg::Handle ProcessGroupInagg::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    return delegate("all_to_all", inputs, [&](ProcessGroup &gloo) { return gloo.alltoall(outputs, inputs, options); });
}

// Between two ranks only, which Gloo matches by rank and tag, not by order.

ProcessGroupInagg::Handle ProcessGroupInagg::send(Tensors &tensors, int to, int tag) {
    counters_.delegated("send", bytes_of(tensors));
    return gloo_->send(tensors, to, tag);
}

ProcessGroupInagg::Handle ProcessGroupInagg::recv(Tensors &tensors, int from, int tag) {
    counters_.delegated("recv", bytes_of(tensors));
    return gloo_->recv(tensors, from, tag);
}

ProcessGroupInagg::Handle ProcessGroupInagg::recvAnysource(Tensors &tensors, int tag) {
    counters_.delegated("recv", bytes_of(tensors));
    return gloo_->recvAnysource(tensors, tag);
}

} // namespace inagg
