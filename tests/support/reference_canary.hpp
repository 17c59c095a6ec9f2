// SPDX-License-Identifier: BSD-2-Clause
// A switch of canary as plain as possible: core/descriptor.h decides, loops over elements add.
#pragma once

#include "support/plane.hpp"

#include <inagg/core/descriptor.h>

#include <deque>
#include <vector>

namespace support {

class ReferenceCanary {
public:
    // What has passed the checks that need only the packet, and the job's counters.
    struct Request {
        const JobSpec &spec;
        inagg_job job;
        inagg_stats &row;
        Packet packet;
        inagg_block block;
    };

    ReferenceCanary() : descriptors_(switch_descriptors) {}

    // `intact`: what the payload's checksum says.
    Answer receive(Request request, bool intact);
    // All timers expire: a tick finds each block that waits.
    void sweep(const JobSpec &spec);
    // The sum of one of them goes on; absorbed if there is none. `row_of` finds a job's counters.
    template <typename RowOf> Answer tick(RowOf row_of);
    // Nobody knows any more whose timers have.
    void forget_expired() { expired_.clear(); }
    void clear() { *this = ReferenceCanary(); }
    std::string pool(const JobSpec &spec) const;

private:
    struct Descriptor {
        inagg_descriptor state{};
        std::vector<uint32_t> lanes = std::vector<uint32_t>(INAGG_MAX_ELEMENTS);
    };
    struct Expired {
        JobSpec spec;
        inagg_block block;
        uint32_t position;
    };

    Answer contribute(Request &request, bool from_above);
    Answer spread(Request &request, bool from_above);
    Answer send_sum(Request &request, const Descriptor &d);
    Answer relay(Request &request, uint32_t rank, bool from_above);
    Answer forward(Request &request, uint32_t rank, bool from_above);
    Answer finish(const Expired &expired, inagg_stats &row);
    Descriptor &descriptor(const Request &request, uint16_t attempt);
    static Answer drop(Request &request, int verdict);

    std::vector<Descriptor> descriptors_;
    std::deque<Expired> expired_;
};

template <typename RowOf> Answer ReferenceCanary::tick(RowOf row_of) {
    if (expired_.empty())
        return {Action::absorb, 0, {}};
    const Expired next = expired_.front();
    expired_.pop_front();
    return finish(next, row_of(next.spec.index));
}

} // namespace support
