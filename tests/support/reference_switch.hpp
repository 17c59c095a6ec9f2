// SPDX-License-Identifier: BSD-2-Clause
// The switch as plain as possible: include/inagg/core decides, loops over elements add.
#pragma once

#include "support/plane.hpp"
#include "support/reference_canary.hpp"

#include <inagg/core/aggregator.h>

#include <deque>
#include <map>

namespace support {

class ReferenceSwitch : public Plane {
public:
    explicit ReferenceSwitch(uint32_t slots);
    void reset() override;
    void add_job(const JobSpec &spec) override;
    void change_job(const JobSpec &spec) override;
    Answer receive(const Frame &frame) override;
    void clear_slots() override;
    void clear_records() override;
    void lose_floats() override;
    void sweep() override;
    Answer tick() override;
    inagg_stats stats(uint32_t index) override { return rows[index]; }
    inagg_stats unowned() override { return no_job; }
    std::string pool(const JobSpec &spec) override;

private:
    Answer pass(const Frame &frame);
    using Lanes = std::array<uint32_t, INAGG_MAX_ELEMENTS>; // 16-bit floats: fixed point until complete
    struct Copy {
        inagg_slot state;
        Lanes lanes;
        std::map<uint8_t, std::vector<float>> leaves{}; // panama, while they are added: until all are in
        uint64_t touched_ns = 0;                        // when their block was last heard of
    };
    struct Aggregator {
        inagg_aggregator state;
        Lanes lanes;
    };
    struct Expired {
        uint32_t job; // number
        inagg_block block;
    };
    struct Request; // a packet that passed admission
    struct Report;  // what there is to say about its block

    Answer drop(inagg_stats &row, uint32_t reason);
    Answer admit(const Frame &frame, const Packet &packet);
    Answer join(const Packet &packet);
    Answer serve(Request &request);
    Answer contribute(Request &request, uint64_t ranks);
    Answer contribute_floats(Request &request);
    bool may_begin_floats(const Request &request);
    static void touch_floats(const Request &request);
    Answer refuse(Request &request, uint16_t cap);
    Answer repeat(Request &request, int verdict);
    Answer add_partial(Request &request);
    Answer take(Request &request, int verdict);
    Answer ask(Request &request);
    Answer from_parent(const Frame &frame, const Packet &packet);
    Answer partial(const Request &request, const Report &report);
    Answer pass_up(const Request &request);
    Answer pass_down(Request &request, Report report);
    Answer serve_record(Request &request);
    Answer contribute_record(Request &request, uint64_t ranks);
    void count_gone(const inagg_loser &loser);
    Answer restore_record(Request &request);
    Answer ask_record(Request &request);
    Answer finish_record(Request &request, uint32_t way);
    Answer combine(Request &request, uint64_t ranks);
    Answer add_to_sum(Request &request, uint64_t ranks);
    Answer ask_combiner(Request &request);
    Answer from_parent_of_records(Request &request);
    Answer take_record(Request &request);
    Answer late_reply(Request &request, const inagg_record &record);
    Aggregator &aggregator_of(const Request &request);
    Answer serve_aggregator(Request &request);
    Answer aggregate(Request &request, uint64_t ranks);
    Answer send_sum(const Request &request, const Aggregator &from);
    Answer from_server(Request &request);
    Answer result(const Request &request, const Report &report, bool everyone);
    Answer tell(const Request &request, const Report &report, bool everyone);
    Packet answer_to(const Request &request, uint8_t type, const Report &report, bool everyone) const;
    inagg_record *bucket(const Request &request);
    Lanes &lanes_of(const inagg_record &record);
    std::map<uint32_t, JobSpec>::const_iterator owner_of(uint32_t row, uint16_t generation) const;

    std::vector<Copy> memory;
    std::vector<inagg_record> records;
    std::vector<Lanes> record_lanes;
    std::vector<inagg_floor> floors;
    std::vector<Aggregator> aggregators;
    ReferenceCanary canary;
    std::deque<Expired> expired;
    std::map<uint32_t, JobSpec> jobs;  // by number
    std::map<uint32_t, uint32_t> open; // by index
    std::map<uint32_t, Copy *> newest; // of panama: where a block began last, by index
    std::map<uint32_t, inagg_stats> rows;
    inagg_stats no_job{};
};

} // namespace support
