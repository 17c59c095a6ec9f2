// SPDX-License-Identifier: BSD-2-Clause
// The P4 switch on BMv2's simple_switch, in a network namespace that the calling thread enters and that ends with it.
#pragma once

#include "common/fd.hpp"
#include "p4/bmv2.hpp"
#include "support/p4_plane.hpp"

#include <map>
#include <memory>
#include <string>
#include <sys/types.h>

namespace support {

class Bmv2Plane : public P4Plane {
public:
    // Runs the compiled program `json`, which is that of `algorithm`. Throws std::runtime_error, also when there is no
    // simple_switch.
    Bmv2Plane(uint8_t algorithm, const std::string &json);
    ~Bmv2Plane() override;
    void reset() override;
    void add_job(const JobSpec &spec) override;
    void change_job(const JobSpec &spec) override;
    void clear_slots() override;
    void clear_records() override;
    void sweep() override;
    Answer tick() override;

private:
    Frames exchange(const Frame &frame, uint16_t port) override;
    Frame as_received(Frame frame) const override;
    std::vector<inagg_stats> counters() override;
    void start(const std::string &json);
    void connect();
    void put_settings(bool has_parent);
    void put_floors(const JobSpec &spec);

    const uint8_t algorithm_;
    pid_t child_ = 0;
    std::map<uint16_t, inagg::Fd> ports_; // the outer ends
    std::unique_ptr<inaggd::p4::Bmv2> tables_;
    uint64_t sent_ = 0;
};

} // namespace support
