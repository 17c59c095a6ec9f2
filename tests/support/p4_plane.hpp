// SPDX-License-Identifier: BSD-2-Clause
// What a P4 switch answers, read from the frames that leave its ports and from its counters.
#pragma once

#include "support/plane.hpp"

#include "switch_maps.h"

#include <map>
#include <string>
#include <vector>

namespace support {

// Where the job's parent is; port 0: it has none.
inagg_uplink parent_of(const JobSpec &spec);

class P4Plane : public Plane {
public:
    Answer receive(const Frame &frame) override;
    void lose_floats() override {} // there are none
    inagg_stats stats(uint32_t index) override;
    inagg_stats unowned() override;
    std::string pool(const JobSpec &spec) override;

protected:
    using Frames = std::map<uint16_t, std::vector<Frame>>; // by port
    static constexpr uint16_t cpu_port = 64;
    static constexpr uint16_t port_numbers[] = {the_port, 2, cpu_port};

    // What the switch sends when that frame comes by that port.
    virtual Frames exchange(const Frame &frame, uint16_t port) = 0;
    // By rows, with that of no job as the last.
    virtual std::vector<inagg_stats> counters() = 0;

    // What of a frame is seen where it leaves a port as it came.
    virtual Frame as_received(Frame frame) const { return frame; }
    Answer first_answer(const std::vector<Frame> &questions, uint16_t port);
    bool is_there(uint8_t algorithm) const;

    std::map<uint32_t, JobSpec> jobs_; // by number

private:
    Answer answer_of(const Frame &sent, Frames frames, bool completed) const;
};

} // namespace support
