// SPDX-License-Identifier: BSD-2-Clause
// One carrier made of several: each is a job of its own, with a switch or server of its own, and carries a share of
// each tensor. ATP's several servers (§3.2) and PANAMA's aggregation trees (§4.1) are this.
#pragma once

#include "carrier.hpp"

#include <deque>

namespace inagg {

class Forest final : public Carrier {
public:
    // `trees`: jobs options.job, options.job + 1, ..., two at least. Throws INAGG_EREFUSED if their switches do not
    // agree on the size of a block.
    Forest(const inagg_options &options, std::vector<std::unique_ptr<Carrier>> trees);

    std::string_view name() const override { return trees_[0]->name(); }
    Handle prepare(const Call &call) override;
    void start(const Handle &operation) override;
    bool progress(std::chrono::nanoseconds wait) override;
    uint32_t blocks_ahead() const override;
    Stragglers stragglers() const override;
    uint16_t elements() const override { return trees_[0]->elements(); }
    uint32_t floats() const override { return trees_[0]->floats(); }
    std::optional<std::string> stall() const override;
    inagg_stats_t stats() const override;
    std::chrono::nanoseconds linger() const override { return trees_[0]->linger(); } // it has the barriers
    void leave() override;

private:
    struct SharedOperation;

    std::size_t turn(std::size_t i) const { return (turn_ + i) % trees_.size(); }
    void share_out(SharedOperation &operation);
    bool move_trees();
    void finish_done();
    void finish(SharedOperation &operation) const;
    void sleep(std::chrono::nanoseconds wait) const;
    // What happens to a tree, by its name: its job's number is not the one that the caller has given.
    std::string of_tree(std::size_t tree, const std::string &what) const;
    Error of_tree(std::size_t tree, const Error &error) const;

    const inagg_options options_;
    std::vector<std::unique_ptr<Carrier>> trees_;
    std::size_t turn_ = 0;                                    // the tree that has the next tensor's first blocks
    std::deque<std::shared_ptr<SharedOperation>> operations_; // started, in call order
};

} // namespace inagg
