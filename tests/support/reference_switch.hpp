// SPDX-License-Identifier: BSD-2-Clause
// The switch as plain as possible: include/inagg/core decides, loops over elements add.
#pragma once

#include "support/plane.hpp"

#include <map>

namespace support {

class ReferenceSwitch : public Plane {
public:
    explicit ReferenceSwitch(uint32_t slots);
    void reset() override;
    void add_job(const JobSpec &spec) override;
    Answer receive(const Frame &frame) override;
    void clear_slots() override;
    inagg_stats stats(uint32_t index) override { return rows[index]; }
    inagg_stats unowned() override { return no_job; }
    std::string pool(const JobSpec &spec) override;

private:
    struct Copy {
        inagg_slot state;
        std::array<uint32_t, INAGG_MAX_ELEMENTS> lanes; // 16-bit floats: fixed point until complete
    };
    struct Request; // a packet that passed admission

    Answer drop(inagg_stats &row, uint32_t reason);
    Answer admit(const Frame &frame, const Packet &packet);
    Answer join(const Packet &packet);
    Answer serve(Request &request);
    Answer contribute(Request &request);
    Answer restore(Request &request);
    Answer ask(Request &request);
    Answer result(const Request &request, bool everyone);
    Answer tell(const Request &request, bool everyone);
    Packet answer_to(const Request &request, uint8_t type, uint64_t contributors, bool everyone) const;

    std::vector<Copy> memory;
    std::map<uint32_t, JobSpec> jobs; // by number
    std::map<uint32_t, inagg_stats> rows;
    inagg_stats no_job{};
};

} // namespace support
