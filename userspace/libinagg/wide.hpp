// SPDX-License-Identifier: BSD-2-Clause
// Elements of 64 bits over a carrier that knows 32.
#pragma once

#include "carrier.hpp"

#include <deque>
#include <vector>

namespace inagg {

class WideOperation;

// Has it elements of 64 bits?
bool is_wide(inagg_dtype dtype);

// A reduction of INT64 or FLOAT64 becomes two of INT32 (limbs.hpp): the second depends on the result of the first. So that
// all ranks' calls keep one order, calls that come between wait until the second has been started.
class Wide final : public Carrier {
public:
    Wide(const inagg_options &options, std::unique_ptr<Carrier> carrier);

    std::string_view name() const override { return carrier_->name(); }
    Handle prepare(const Call &call) override;
    void start(const Handle &operation) override;
    bool progress(std::chrono::nanoseconds wait) override;
    uint32_t blocks_ahead() const override { return carrier_->blocks_ahead(); }
    Stragglers stragglers() const override { return carrier_->stragglers(); }
    bool renew() override { return carrier_->renew(); }
    uint16_t elements() const override { return carrier_->elements(); }
    uint32_t floats() const override { return carrier_->floats(); }
    int descriptor() const override { return carrier_->descriptor(); }
    std::optional<std::string> stall() const override { return carrier_->stall(); }
    inagg_stats_t stats() const override { return carrier_->stats(); }
    std::chrono::nanoseconds linger() const override { return carrier_->linger(); }
    void leave() override { carrier_->leave(); }

private:
    Handle prepare_wide(const Call &call) const;
    void begin(const std::shared_ptr<WideOperation> &operation);
    bool advance();
    void advance(WideOperation &operation);
    static void fail(WideOperation &operation, const Error &error);
    void start_step(WideOperation &operation, const Call &step);
    static void finish(WideOperation &operation);
    bool is_waiting() const;

    const inagg_options options_;
    const bool trio_;
    std::unique_ptr<Carrier> carrier_;
    std::deque<std::shared_ptr<WideOperation>> under_way_; // only the last one may have a step to come
    std::deque<std::shared_ptr<WideOperation>> waiting_;   // until it has none
};

} // namespace inagg
