// SPDX-License-Identifier: BSD-2-Clause
// The carrier that chooses: tensors below options.aggregate_from bytes go round a ring of the ranks' hosts, and do not
// take the switches' time; the others, and barriers, are another carrier's. All ranks make the same calls, so they choose
// alike, and before the first call they tell each other, through that carrier, from how many bytes on they aggregate and
// where they listen. Not at the join, which waits for nobody; and not at the first small tensor, because ranks that
// are configured differently would take different tensors for that.
#pragma once

#include "carrier.hpp"
#include "ring.hpp"

#include <deque>

namespace inagg {

class BySize final : public Carrier {
public:
    BySize(const inagg_options &options, std::unique_ptr<Ring> ring, std::unique_ptr<Carrier> aggregated);

    std::string_view name() const override { return aggregated_->name(); }
    Handle prepare(const Call &call) override;
    void start(const Handle &operation) override;
    bool progress(std::chrono::nanoseconds wait) override;
    uint32_t blocks_ahead() const override { return aggregated_->blocks_ahead(); }
    Stragglers stragglers() const override { return aggregated_->stragglers(); }
    bool renew() override { return aggregated_->renew(); }
    uint16_t elements() const override { return aggregated_->elements(); }
    uint32_t floats() const override { return aggregated_->floats(); }
    std::optional<std::string> stall() const override;
    inagg_stats_t stats() const override { return aggregated_->stats(); }
    std::chrono::nanoseconds linger() const override { return aggregated_->linger(); }
    void leave() override { aggregated_->leave(); }

private:
    bool is_small(const Call &call) const;
    void introduce();
    void meet();
    bool move();
    void sleep(std::chrono::nanoseconds wait) const;

    const inagg_options options_;
    std::unique_ptr<Carrier> aggregated_;
    const std::unique_ptr<Ring> ring_;
    std::deque<Handle> operations_; // started, in call order
    std::vector<int32_t> words_;    // all ranks' RingEntry
    Handle introduction_;           // the operation that gathers them
    bool met_ = false;
};

} // namespace inagg
