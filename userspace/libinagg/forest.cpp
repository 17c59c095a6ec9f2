// SPDX-License-Identifier: BSD-2-Clause
#include "forest.hpp"

#include "convert.hpp"
#include "error.hpp"

#include <inagg/core/tensor.h>

#include <poll.h>

#include <algorithm>

namespace inagg {

using namespace std::chrono_literals;

struct Forest::SharedOperation : Operation {
    using Operation::Operation;

    struct Share {
        std::size_t tree;
        Handle operation;
    };
    std::vector<Share> shares; // in the order of their elements
};

// A job's switches, for a message.
static const char *levels_of(const Carrier &carrier) { return carrier.floats() == INAGG_FLOATS_WIDENED ? " in a tree" : ""; }

Forest::Forest(const inagg_options &options, std::vector<std::unique_ptr<Carrier>> trees)
    : options_(options), trees_(std::move(trees)) {
    for (std::size_t i = 1; i < trees_.size(); i++)
        if (trees_[i]->elements() != elements() || trees_[i]->floats() != floats()) {
            leave();
            throw Error(INAGG_EREFUSED,
                        "job {} has packets of {} elements{}, job {} of {}{}: give the switches of all trees "
                        "the same MTU and the same levels",
                        options_.job, elements(), levels_of(*this), options_.job + i, trees_[i]->elements(),
                        levels_of(*trees_[i]));
        }
}

// Starting operations

Handle Forest::prepare(const Call &call) {
    auto operation = std::make_shared<SharedOperation>(call);
    if (call.kind == Call::Kind::reduction || call.kind == Call::Kind::broadcast)
        share_out(*operation);
    else // one tree tells that all ranks have come
        operation->shares.push_back({0, trees_[0]->prepare(call)});
    return operation;
}

// Whole blocks, so that they are the ones that one tree would have; what does not divide goes round, call by
// call. All ranks make the same calls, so they share alike. A run for each tree, where PANAMA (§4.1) deals
// blocks out in turn: either way a tree has as many, and in runs none waits for another whose window is full.
void Forest::share_out(SharedOperation &operation) {
    const Call &call = operation.call;
    const std::size_t bytes = inagg_memory_bytes(call.dtype);
    const std::size_t per_block = call.kind == Call::Kind::broadcast
                                      ? elements() * sizeof(uint32_t) / bytes
                                      : inagg::block_elements(elements(), call.dtype, call.op, floats());
    const std::size_t blocks = (call.count + per_block - 1) / per_block;
    std::size_t done = 0;
    for (std::size_t i = 0; i < trees_.size() && done < call.count; i++) {
        const std::size_t own = blocks / trees_.size() + (i < blocks % trees_.size());
        Call share = call;
        share.count = std::min(own * per_block, call.count - done);
        share.send = call.send ? static_cast<const std::byte *>(call.send) + done * bytes : nullptr;
        share.recv = call.recv ? static_cast<std::byte *>(call.recv) + done * bytes : nullptr;
        operation.shares.push_back({turn(i), trees_[turn(i)]->prepare(share)});
        done += share.count;
    }
    turn_ = turn(blocks);
}

void Forest::start(const Handle &prepared) {
    const auto operation = std::static_pointer_cast<SharedOperation>(prepared);
    operations_.push_back(operation);
    for (const auto &share : operation->shares)
        trees_[share.tree]->start(share.operation);
}

// Driving

bool Forest::progress(std::chrono::nanoseconds wait) {
    if (move_trees())
        return true;
    if (wait <= 0ns)
        return false;
    sleep(wait);
    return move_trees();
}

bool Forest::move_trees() {
    bool came = false;
    for (std::size_t tree = 0; tree < trees_.size(); tree++) {
        try {
            came |= trees_[tree]->progress(0ns);
        } catch (const Error &error) {
            throw of_tree(tree, error);
        }
    }
    finish_done();
    return came;
}

// What comes to one of the trees wakes this thread; their timers are looked at each millisecond.
void Forest::sleep(std::chrono::nanoseconds wait) const {
    const auto longest = std::min<std::chrono::nanoseconds>(wait, 1ms);
    const timespec timeout{0, static_cast<long>(longest.count())};
    std::vector<pollfd> polled;
    for (const auto &tree : trees_)
        polled.push_back({tree->descriptor(), POLLIN, 0});
    ppoll(polled.data(), polled.size(), &timeout, nullptr);
}

void Forest::finish_done() {
    for (const auto &operation : operations_) {
        for (const auto &share : operation->shares)
            operation->progress_ns = std::max(operation->progress_ns, share.operation->progress_ns);
        if (std::ranges::all_of(operation->shares, [](const auto &share) { return share.operation->done(); }))
            finish(*operation);
    }
    std::erase_if(operations_, [](const auto &operation) { return operation->done(); });
}

void Forest::finish(SharedOperation &operation) const {
    for (const auto &[tree, share] : operation.shares) {
        try {
            share->check();
        } catch (const Error &error) {
            operation.set_error(of_tree(tree, error));
        }
        operation.blocks += share->blocks;
        operation.block_elements = std::max(operation.block_elements, share->block_elements);
        operation.contributors.insert(operation.contributors.end(), share->contributors.begin(), share->contributors.end());
    }
    operation.shares.clear();
    operation.finish();
}

// What a later call finds is shared out like the calls before it.
uint32_t Forest::blocks_ahead() const {
    uint32_t fewest = UINT32_MAX;
    for (const auto &tree : trees_)
        fewest = std::min(fewest, tree->blocks_ahead());
    return fewest * static_cast<uint32_t>(trees_.size());
}

// As any of the trees' switches sees them.
Stragglers Forest::stragglers() const {
    Stragglers all;
    for (const auto &tree : trees_) {
        const Stragglers here = tree->stragglers();
        all.excluded |= here.excluded;
        all.temporary |= here.temporary;
        all.permanent |= here.permanent;
    }
    return all;
}

std::optional<std::string> Forest::stall() const {
    if (operations_.empty())
        return "nothing is in flight";
    for (const auto &[tree, share] : operations_.front()->shares)
        if (!share->done())
            if (const std::optional<std::string> why = trees_[tree]->stall())
                return of_tree(tree, *why);
    return std::nullopt;
}

std::string Forest::of_tree(std::size_t tree, const std::string &what) const {
    return fmt::format("tree {} (job {}): {}", tree, options_.job + tree, what);
}

Error Forest::of_tree(std::size_t tree, const Error &error) const { return {error.code(), of_tree(tree, error.what())}; }

inagg_stats_t Forest::stats() const {
    constexpr std::size_t counters = sizeof(inagg_stats_t) / sizeof(uint64_t);
    static_assert(sizeof(inagg_stats_t) == counters * sizeof(uint64_t));
    inagg_stats_t sum{};
    uint64_t srtt_ns = 0;
    for (const auto &tree : trees_) {
        const inagg_stats_t stats = tree->stats();
        for (std::size_t i = 0; i < counters; i++)
            reinterpret_cast<uint64_t *>(&sum)[i] += reinterpret_cast<const uint64_t *>(&stats)[i];
        srtt_ns = std::max(srtt_ns, stats.srtt_ns);
    }
    sum.srtt_ns = srtt_ns;
    return sum;
}

void Forest::leave() { leave_all(trees_); }

} // namespace inagg
