// SPDX-License-Identifier: BSD-2-Clause
// The calls that inagg carries, as handles that complete by themselves.
#pragma once

#include <inagg/inagg.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <optional>
#include <string>
#include <vector>

namespace inagg {

class ProcessGroupInagg;

uint64_t bytes_of(const std::vector<at::Tensor> &tensors);

// One call. One thread begins all calls of a group, in their order, another one finishes them; whoever has
// the handle waits.
class Collective : public c10d::Work {
public:
    Collective(c10d::OpType type, const std::string &name, std::vector<at::Tensor> tensors);

    // Give it to libinagg.
    void begin(ProcessGroupInagg &group) noexcept;
    // Have the result in the tensors, or an error.
    void finish(ProcessGroupInagg &group) noexcept;
    // Wake who waits, call back who wants to be.
    void complete();

    // It may turn out that Gloo has to make this sum.
    virtual bool may_fall_back() const { return false; }

    std::vector<at::Tensor> result() override { return tensors_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

protected:
    // Begin libinagg's call; returns its error number.
    virtual int start(inagg_comm *comm, inagg_request **request) = 0;
    // It is over, with this error number: throw what users are to see, or have the result in the tensors.
    virtual void end(ProcessGroupInagg &group, int code);

    const std::string name_;
    std::vector<at::Tensor> tensors_;

private:
    template <typename Step> void attempt(Step step) noexcept;

    inagg_request *request_ = nullptr;

    std::exception_ptr error_;
    const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// How elements travel: as `type`, after conversion to `as`.
struct Wire {
    inagg_dtype type;
    at::ScalarType as;
};

// Nothing if inagg does not sum such elements.
std::optional<Wire> wire_of(at::ScalarType type);

// The sum (minimum, ...) of all ranks' tensors, in place: on all ranks, or at `root`.
class Reduction : public Collective {
public:
    Reduction(c10d::OpType type, const std::string &name, std::vector<at::Tensor> tensors, Wire wire, inagg_op op,
              std::optional<uint16_t> root = std::nullopt);

    bool may_fall_back() const override;

protected:
    int start(inagg_comm *comm, inagg_request **request) override;
    void end(ProcessGroupInagg &group, int code) override;

private:
    void reduce_by_gloo(ProcessGroupInagg &group);

    const inagg_dtype type_;
    const inagg_op op_;
    const std::optional<uint16_t> root_;
    at::Tensor buffer_; // what travels: the tensor itself if it can
};

// The tensor of one rank, bit for bit whatever its elements are.
class Broadcast : public Collective {
public:
    Broadcast(std::vector<at::Tensor> tensors, uint16_t root);

protected:
    int start(inagg_comm *comm, inagg_request **request) override;
    void end(ProcessGroupInagg &group, int code) override;

private:
    const uint16_t root_;
    at::Tensor data_;             // all of them, contiguous
    std::vector<uint32_t> words_; // what travels: libinagg has no type for bytes, so the last word may be padded
};

class Barrier : public Collective {
public:
    Barrier();

protected:
    int start(inagg_comm *comm, inagg_request **request) override;
};

} // namespace inagg
