// SPDX-License-Identifier: BSD-2-Clause
// How a flow of segments reacts to marks and losses (DCTCP, SIGCOMM 2010; RFC 8257), with an acknowledgement
// for each segment.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sim {

class Dctcp {
public:
    explicit Dctcp(uint32_t most) : most_(std::max(most, 2u)), window_(std::min(first_window, most_)) {}

    uint32_t window() const { return static_cast<uint32_t>(window_); }

    // A segment has been acknowledged; `marked`: it found a long queue.
    void acknowledged(bool marked) {
        acks_++;
        marks_ += marked;
        if (marked)
            cut(alpha_ / 2);
        else
            window_ = std::min(most_, window_ + (window_ < threshold_ ? 1 : 1 / window_));
        if (acks_ >= round_)
            end_round();
    }

    void lost() { cut(0.5); }

    // Nothing comes any more.
    void timed_out() {
        threshold_ = std::max(window_ / 2, least);
        window_ = least;
        begin_round();
    }

private:
    static constexpr double first_window = 10, least = 2, gain = 1.0 / 16;

    // Once for each window.
    void cut(double share) {
        if (is_cut_)
            return;
        is_cut_ = true;
        window_ = threshold_ = std::max(window_ * (1 - share), least);
    }

    void end_round() {
        alpha_ += gain * (marks_ / acks_ - alpha_);
        begin_round();
    }

    void begin_round() {
        acks_ = marks_ = 0;
        round_ = window_;
        is_cut_ = false;
    }

    const double most_;
    double window_, threshold_ = 1e9, alpha_ = 1, round_ = first_window, acks_ = 0, marks_ = 0;
    bool is_cut_ = false;
};

} // namespace sim
