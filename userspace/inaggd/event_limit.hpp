// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "token_bucket.hpp"

#include <switch_maps.h>

#include <cstdint>
#include <map>

namespace inaggd {

// How many JOINs and LEAVEs of each port an agent looks at. Ranks repeat theirs every few milliseconds, and 64 of them may be
// behind one port. Most cost microseconds, and those that make, restart or remove a job up to a tenth of a second: so a port has
// a share of the agent's time, too, and leaves the others theirs.
class EventLimit {
public:
    using Time = std::chrono::steady_clock::time_point;

    // A LEAVE is not repeated, and no more of them cost something than JOINs have been let in.
    bool take(uint32_t port, Time now, bool is_leave = false) {
        Port &of = ports_[port];
        const bool has_time = of.microseconds.has(now);
        return (has_time || is_leave) && of.events.take(now);
    }
    // To say no, to an address that may be forged, which the kernel then looks for. Who has neither the key nor a copy of a JOIN
    // takes none of the challenges.
    bool take_refusal(uint32_t port, Time now, bool is_challenge) {
        Port &of = ports_[port];
        return (is_challenge ? of.challenges : of.refusals).take(now);
    }
    // What the event that was taken has cost; not more than such events do: the first job of an algorithm has its programs
    // loaded, and a busy machine is not the port's fault.
    void charge(uint32_t port, Time::duration spent) {
        ports_[port].microseconds.spend(std::chrono::duration<double, std::micro>(std::min(spent, dearest)).count());
    }
    // What is done while it lives is charged, to port 0 nothing.
    class Turn {
    public:
        Turn(EventLimit &limit, uint32_t port, Time begun) : limit_(limit), port_(port), begun_(begun) {}
        ~Turn() {
            if (port_)
                limit_.charge(port_, std::chrono::steady_clock::now() - begun_);
        }
        Turn(const Turn &) = delete;
        Turn &operator=(const Turn &) = delete;

    private:
        EventLimit &limit_;
        const uint32_t port_;
        const Time begun_;
    };
    void forget(uint32_t port) { ports_.erase(port); }

private:
    static constexpr Time::duration dearest = std::chrono::milliseconds(100);

    struct Port {
        TokenBucket events{INAGG_ASKS_PER_SECOND, INAGG_ASKS_PER_SECOND};
        TokenBucket microseconds{250'000, 2'000'000};
        TokenBucket refusals{200, 200}, challenges{200, 200};
    };
    std::map<uint32_t, Port> ports_;
};

} // namespace inaggd
