// SPDX-License-Identifier: BSD-2-Clause
// A process group of torch.distributed whose sums are made in the network. What inagg has no call for goes to
// Gloo.
#pragma once

#include "collective.hpp"
#include "counters.hpp"
#include "stage.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <string_view>

namespace inagg {

class ProcessGroupInagg final : public c10d::ProcessGroup {
public:
    struct Settings {
        int number;                        // of the group: 0 is the default one, its job is INAGG_JOB
        std::chrono::milliseconds timeout; // unless there is INAGG_TIMEOUT_MS
        std::string scope;                 // follows error messages: what their rank numbers mean
    };

    using MakeGloo = std::function<c10::intrusive_ptr<c10d::ProcessGroup>()>;

    // Throws if the environment is wrong, before it meets the others.
    ProcessGroupInagg(const MakeGloo &make_gloo, int rank, int size, const Settings &settings);
    ~ProcessGroupInagg() override;

    const std::string getBackendName() const override { return "inagg"; }

    // Join the job now, before any call, rather than at the first that inagg carries.
    void join();
    // Finish what is under way and leave the job; later calls fail.
    void leave();

    const Counters &counters() const { return counters_; }
    Counters &counters() { return counters_; }
    // libinagg's, until leave() at the latest. Zeros before the group has joined.
    inagg_stats_t stats();
    // "" before the group has joined.
    std::string transport();
    uint16_t job() const { return options_.job; }

    // For collectives: the communicator, after joining if need be; Gloo; an exception for an error number.
    inagg_comm *joined();
    c10d::ProcessGroup &gloo() { return *gloo_; }
    void check(int code) const;

    using Tensors = std::vector<at::Tensor>;
    using Handle = c10::intrusive_ptr<c10d::Work>;

    Handle allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    Handle allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) override;
    Handle reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    Handle broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    Handle barrier(const c10d::BarrierOptions &options) override;

    Handle allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) override;
    Handle _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) override;
    Handle allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) override;
    Handle gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) override;
    Handle scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) override;
    Handle reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &options) override;
    Handle _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &options) override;
    Handle alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
                         std::vector<int64_t> &input_sizes, const c10d::AllToAllOptions &options) override;
    Handle alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
    Handle send(Tensors &tensors, int to, int tag) override;
    Handle recv(Tensors &tensors, int from, int tag) override;
    Handle recvAnysource(Tensors &tensors, int tag) override;

private:
    using Item = c10::intrusive_ptr<Collective>;

    Handle submit(Item item);
    template <typename Call> Handle delegate(const std::string &what, const Tensors &tensors, Call call);
    std::string obstacle(const Tensors &tensors) const;
    std::string obstacle(const Tensors &tensors, const c10d::ReduceOp &op) const;
    std::optional<Wire> wire_for(at::ScalarType type) const;
    Wire checked_wire(const at::Tensor &tensor, inagg_op op) const;
    void count_undecided(int more);
    bool runs(std::string_view algorithm) const;
    void settle();

    const Settings settings_;
    const inagg_options options_;
    c10::intrusive_ptr<c10d::ProcessGroup> gloo_;
    Counters counters_;

    std::mutex mutex_; // over what follows
    inagg_comm *comm_ = nullptr;
    std::string refused_; // why the group could not join
    inagg_stats_t last_stats_{};
    std::string transport_;
    int undecided_ = 0; // calls under way that may fall back to Gloo
    std::condition_variable settled_;

    // Each pushes to the one before it here, and so ends earlier.
    Stage<Item> completer_; // runs callbacks, which may wait for further calls
    Stage<Item> finisher_;
    Stage<Item> starter_;
};

} // namespace inagg
