// SPDX-License-Identifier: BSD-2-Clause
#include "collective.hpp"

#include "process_group.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>

namespace inagg {

namespace {

// One contiguous tensor of this type with all elements: the given one itself if it is that.
at::Tensor gather(const std::vector<at::Tensor> &tensors, at::ScalarType type) {
    if (tensors.size() == 1)
        return tensors[0].detach().to(type).contiguous();
    return at::flatten_dense_tensors(tensors).detach().to(type);
}

// The reverse.
void scatter(const at::Tensor &buffer, const std::vector<at::Tensor> &tensors) {
    int64_t at = 0;
    for (const at::Tensor &tensor : tensors) {
        const at::Tensor part = buffer.view(-1).narrow(0, at, tensor.numel());
        at += tensor.numel();
        if (part.data_ptr() != tensor.data_ptr())
            tensor.copy_(part.view(tensor.sizes()));
    }
}

} // namespace

uint64_t bytes_of(const std::vector<at::Tensor> &tensors) {
    uint64_t bytes = 0;
    for (const at::Tensor &tensor : tensors)
        bytes += tensor.layout() == at::kStrided ? tensor.nbytes() : tensor._values().nbytes();
    return bytes;
}

// Collective

Collective::Collective(c10d::OpType type, const std::string &name, std::vector<at::Tensor> tensors)
    : Work(-1, type, ("inagg:" + name).c_str(), tensors), name_(name), tensors_(std::move(tensors)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void Collective::begin(ProcessGroupInagg &group) noexcept {
    attempt([&] { group.check(start(group.joined(), &request_)); });
}

void Collective::finish(ProcessGroupInagg &group) noexcept {
    // As for who computes with these tensors: no gradient is taken of what is written here.
    const at::AutoDispatchBelowADInplaceOrView guard;
    attempt([&] { end(group, inagg_wait(request_)); });
}

// Each step does nothing after an error.
template <typename Step> void Collective::attempt(Step step) noexcept {
    if (error_)
        return;
    try {
        step();
    } catch (...) {
        error_ = std::current_exception();
    }
}

void Collective::end(ProcessGroupInagg &group, int code) {
    group.check(code);
    group.counters().carried(name_, bytes_of(tensors_));
}

void Collective::complete() {
    if (error_)
        future_->setError(error_);
    else
        future_->markCompleted(c10::IValue(tensors_));
    Work::finish(error_);
}

// Reduction

std::optional<Wire> wire_of(at::ScalarType type) {
    switch (type) {
    case at::kFloat:
        return Wire{INAGG_FLOAT32, at::kFloat};
    case at::kHalf:
        return Wire{INAGG_FLOAT16, at::kHalf};
    case at::kBFloat16:
        return Wire{INAGG_BFLOAT16, at::kBFloat16};
    case at::kDouble:
        return Wire{INAGG_FLOAT64, at::kDouble};
    case at::kLong:
        return Wire{INAGG_INT64, at::kLong};
    // Sums of 32 bits that are cut to 8 or 16 are those that wrap at 8 or 16.
    case at::kInt:
    case at::kShort:
    case at::kChar:
    case at::kByte:
    case at::kBool:
        return Wire{INAGG_INT32, at::kInt};
    default:
        return std::nullopt;
    }
}

Reduction::Reduction(c10d::OpType type, const std::string &name, std::vector<at::Tensor> tensors, Wire wire, inagg_op op,
                     std::optional<uint16_t> root)
    : Collective(type, name, std::move(tensors)), type_(wire.type), op_(op), root_(root), buffer_(gather(tensors_, wire.as)) {
    if (may_fall_back()) // Gloo needs what was in the tensors
        buffer_ = buffer_.clone();
}

bool Reduction::may_fall_back() const { return type_ == INAGG_FLOAT64 && (op_ == INAGG_SUM || op_ == INAGG_AVG); }

int Reduction::start(inagg_comm *comm, inagg_request **request) {
    void *data = buffer_.data_ptr();
    const auto count = static_cast<std::size_t>(buffer_.numel());
    return root_ ? inagg_ireduce(comm, data, data, count, type_, op_, *root_, request)
                 : inagg_iallreduce(comm, data, data, count, type_, op_, request);
}

void Reduction::end(ProcessGroupInagg &group, int code) {
    // Elements differ too much in magnitude for an exact sum, which all ranks are told alike.
    if (code == INAGG_ERANGE && may_fall_back())
        reduce_by_gloo(group);
    else
        Collective::end(group, code);
    if (!root_ || *root_ == group.getRank())
        scatter(buffer_, tensors_);
}

// Gloo takes memory for contiguous, as the buffer is; a sum without a result has left in it what was there.
void Reduction::reduce_by_gloo(ProcessGroupInagg &group) {
    group.counters().delegated(name_ + ": float64 of too many magnitudes", bytes_of(tensors_));
    std::vector<at::Tensor> buffers{buffer_};
    if (root_) {
        c10d::ReduceOptions options;
        options.rootRank = *root_;
        group.gloo().reduce(buffers, options)->wait();
    } else {
        group.gloo().allreduce(buffers)->wait();
    }
    if (op_ == INAGG_AVG)
        buffer_.div_(group.getSize());
}

// Broadcast

Broadcast::Broadcast(std::vector<at::Tensor> tensors, uint16_t root)
    : Collective(c10d::OpType::BROADCAST, "broadcast", std::move(tensors)), root_(root) {}

int Broadcast::start(inagg_comm *comm, inagg_request **request) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    data_ = gather(tensors_, tensors_[0].scalar_type());
    words_.resize((data_.nbytes() + 3) / 4);
    std::memcpy(words_.data(), data_.data_ptr(), data_.nbytes());
    return inagg_ibroadcast(comm, words_.data(), words_.size(), INAGG_INT32, root_, request);
}

void Broadcast::end(ProcessGroupInagg &group, int code) {
    Collective::end(group, code);
    std::memcpy(data_.data_ptr(), words_.data(), data_.nbytes());
    scatter(data_, tensors_);
    words_ = {};
    data_.reset();
}

// Barrier

Barrier::Barrier() : Collective(c10d::OpType::BARRIER, "barrier", {}) {}

int Barrier::start(inagg_comm *comm, inagg_request **request) { return inagg_ibarrier(comm, request); }

} // namespace inagg
