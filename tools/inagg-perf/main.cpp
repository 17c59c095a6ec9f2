// SPDX-License-Identifier: BSD-2-Clause
// inagg-perf: time of collective operations, and proof that their results are right.
#include "arguments.hpp"
#include "communicator.hpp"
#include "pattern.hpp"
#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t guard_bytes = 64;
constexpr int guard_value = 0xa5;

// A tensor with a guard behind it, which no result may touch.
class Buffer {
public:
    explicit Buffer(size_t bytes) : bytes_(bytes), data_(static_cast<std::byte *>(operator new(bytes + guard_bytes, alignment))) {
        std::memset(data_.get(), 0, bytes_);
        std::memset(data_.get() + bytes_, guard_value, guard_bytes);
    }
    std::byte *data() { return data_.get(); }
    size_t bytes() const { return bytes_; }
    /** Fill with a value that no stale or missing result can hide behind. */
    void poison() { std::memset(data_.get(), guard_value, bytes_); }
    bool guard_intact() const {
        return std::all_of(data_.get() + bytes_, data_.get() + bytes_ + guard_bytes,
                           [](std::byte b) { return b == std::byte{guard_value}; });
    }

private:
    static constexpr std::align_val_t alignment{64};
    struct Free {
        void operator()(std::byte *data) const { operator delete(data, alignment); }
    };
    size_t bytes_;
    std::unique_ptr<std::byte, Free> data_;
};

// The input and output of one operation in flight.
struct Tensor {
    Tensor(size_t bytes, bool in_place) : send(bytes) {
        if (!in_place)
            separate = std::make_unique<Buffer>(bytes);
    }
    Buffer &recv() { return separate ? *separate : send; }

    Buffer send;
    std::unique_ptr<Buffer> separate;
    inagg_request *request = nullptr;
};

class Bench {
public:
    Bench(const Arguments &args, Communicator &comm, const Operation &operation)
        : args_(args), comm_(comm), operation_(operation) {
        // A broadcast has one buffer only.
        bool in_place = args.in_place || args.collective == Collective::broadcast;
        for (int i = 0; i < args.inflight; i++)
            tensors_.emplace_back(operation_.count * element_bytes(operation_.dtype), in_place);
        for (int i = 1; i < args.tensors; i++)
            others_.emplace_back(operation_.count * element_bytes(operation_.dtype));
    }

    Row run() {
        Row row;
        row.operation = operation_;
        const inagg_stats_t before = comm_.stats();
        if (args_.iterations)
            time(row);
        if (args_.check && args_.collective != Collective::barrier)
            check(row);
        row.degraded = comm_.stats().degraded - before.degraded;
        row.retransmissions = comm_.sum({comm_.stats().retransmissions - before.retransmissions})[0];
        return row;
    }

private:
    static constexpr uint16_t root = 0;

    Pattern pattern(uint32_t iteration) const {
        const inagg_options &options = comm_.options();
        return {args_, operation_, comm_.size(), options.scale, iteration, options.key[0] != '\0'};
    }

    bool has_result() const { return args_.collective != Collective::reduce || comm_.rank() == root; }

    void blocking(Tensor &tensor, const std::byte *send) {
        std::byte *recv = has_result() ? tensor.recv().data() : nullptr;
        switch (args_.collective) {
        case Collective::allreduce:
            return require(inagg_allreduce(comm_.get(), send, recv, operation_.count, operation_.dtype, operation_.op));
        case Collective::broadcast:
            return require(inagg_broadcast(comm_.get(), recv, operation_.count, operation_.dtype, root));
        case Collective::reduce:
            return require(inagg_reduce(comm_.get(), send, recv, operation_.count, operation_.dtype, operation_.op, root));
        case Collective::barrier:
            return comm_.barrier();
        }
    }

    void straggle() {
        const auto &who = args_.straggler;
        if (who && who->rank == comm_.rank() && iteration_++ % who->every == 0)
            std::this_thread::sleep_for(who->time);
    }

    void start(Tensor &tensor, const std::byte *send) {
        straggle();
        if (args_.inflight == 1)
            return blocking(tensor, send);
        require(inagg_iallreduce(comm_.get(), send, tensor.recv().data(), operation_.count, operation_.dtype, operation_.op,
                                 &tensor.request));
    }

    void finish(Tensor &tensor) {
        if (tensor.request)
            require(inagg_wait(std::exchange(tensor.request, nullptr)));
    }

    // Elements of the result of this thread's last call that are not exactly that of the ranks that it names.
    uint64_t wrong(Tensor &tensor, const Pattern &pattern) {
        inagg_outcome outcome;
        outcome.struct_size = sizeof(outcome);
        require(inagg_last_outcome(&outcome));
        const std::byte *result = tensor.recv().data();
        if (!outcome.degraded_blocks)
            return pattern.wrong(operation_.count, result);
        uint64_t wrong = 0;
        for (uint64_t block = 0; block < outcome.blocks; block++) {
            const size_t first = block * outcome.block_elements;
            wrong += pattern.wrong(first, std::min<size_t>(outcome.block_elements, operation_.count - first),
                                   result + first * element_bytes(operation_.dtype), inagg_last_contributors(block));
        }
        return wrong;
    }

    // Keeps --inflight operations under way; returns the times between completions in microseconds.
    std::vector<double> pipeline(int iterations) {
        std::vector<double> times;
        size_t window = tensors_.size(), total = iterations;
        Clock::time_point last = Clock::now();
        for (size_t i = 0; i < total + window; i++) {
            Tensor &tensor = tensors_[i % window];
            if (i >= window) {
                finish(tensor);
                Clock::time_point now = Clock::now();
                times.push_back(std::chrono::duration<double, std::micro>(now - last).count());
                last = now;
            }
            if (i < total) {
                const size_t turn = i % args_.tensors;
                start(tensor, turn ? others_[turn - 1].data() : tensor.send.data());
            }
        }
        return times;
    }

    void time(Row &row) {
        // In place, results become inputs: zeros stay what they are, where sums would overflow.
        for (Tensor &tensor : tensors_)
            if (tensor.separate)
                pattern(0).fill(comm_.rank(), operation_.count, tensor.send.data());
        for (size_t i = 0; i < others_.size(); i++)
            pattern(i + 1).fill(comm_.rank(), operation_.count, others_[i].data());
        pipeline(args_.warmup);
        comm_.barrier();
        std::vector<double> times = pipeline(args_.iterations);
        double mean = std::accumulate(times.begin(), times.end(), 0.0) / times.size();
        std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
        // Completions of overlapping operations come in bursts: only their mean is a time of one.
        double typical = tensors_.size() > 1 ? mean : times[times.size() / 2];
        row.time_us = comm_.max(typical);
        row.time_mean_us = comm_.max(mean);
    }

    void check(Row &row) {
        uint64_t wrong = 0, hash = 0;
        for (int round = 0; round < args_.check_iterations; round++) {
            std::vector<Pattern> patterns;
            for (size_t i = 0; i < tensors_.size(); i++)
                patterns.push_back(pattern(round * tensors_.size() + i + 1));
            for (size_t i = 0; i < tensors_.size(); i++)
                prepare(tensors_[i], patterns[i]);
            for (Tensor &tensor : tensors_)
                start(tensor, tensor.send.data());
            for (size_t i = 0; i < tensors_.size(); i++) {
                finish(tensors_[i]);
                if (!has_result())
                    continue;
                Buffer &recv = tensors_[i].recv();
                wrong += this->wrong(tensors_[i], patterns[i]) + !recv.guard_intact();
                hash = hash_bytes(hash, recv.data(), recv.bytes());
            }
        }
        row.wrong = comm_.sum({wrong})[0];
        row.hash = hash;
        row.same = args_.collective == Collective::reduce || comm_.same(hash);
    }

    void prepare(Tensor &tensor, const Pattern &pattern) {
        if (args_.collective == Collective::broadcast && comm_.rank() != root)
            return tensor.send.poison();
        pattern.fill(comm_.rank(), operation_.count, tensor.send.data());
        if (tensor.separate)
            tensor.separate->poison();
    }

    const Arguments &args_;
    Communicator &comm_;
    Operation operation_;
    std::vector<Tensor> tensors_;
    std::vector<Buffer> others_; // that take turns with those of tensors_
    unsigned iteration_ = 0;
};

// True if every element of every size was right on every rank.
bool run(const Arguments &args) {
    Communicator comm;
    if (args.straggler && args.straggler->rank >= comm.size())
        throw std::invalid_argument(
            fmt::format("--straggle: there is no rank {}: give 0 to {}", args.straggler->rank, comm.size() - 1));
    Report report(args, comm);
    bool printing = comm.rank() == 0, right = true;
    uint64_t wrong = 0;

    if (printing)
        report.header();
    for (const Operation &operation : args.operations) {
        Row row = Bench(args, comm, operation).run();
        if (printing)
            report.row(row);
        wrong += row.wrong.value_or(0);
        right = right && row.same;
    }
    std::vector<uint64_t> totals = comm.sum(counters_of(comm.stats()));
    if (printing)
        report.counters(totals, wrong);
    comm.leave();
    return right && wrong == 0;
}

} // namespace
} // namespace perf

int main(int argc, char **argv) {
    perf::Arguments args = perf::parse_arguments(argc, argv);
    try {
        const bool right = perf::run(args);
        if (std::fflush(stdout) || std::ferror(stdout))
            throw std::runtime_error("not all results could be written to standard output");
        return right ? 0 : 1;
    } catch (const std::exception &error) {
        fmt::print(stderr, "inagg-perf: {}\n", error.what());
        return 1;
    }
}
