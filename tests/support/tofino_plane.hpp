// SPDX-License-Identifier: BSD-2-Clause
// A program for Tofino on the chip's open model: the harness that comes with its source (docs/P4-tofino.md).
#pragma once

#include "common/fd.hpp"
#include "p4/entries.hpp"
#include "support/p4_plane.hpp"

#include <string>
#include <sys/types.h>

namespace support {

class TofinoPlane : public P4Plane {
public:
    // Runs what the compiler has left in `folder`. Throws std::runtime_error.
    explicit TofinoPlane(std::string folder);
    ~TofinoPlane() override { stop(); }
    void reset() override;
    void add_job(const JobSpec &spec) override { change_job(spec); }
    void change_job(const JobSpec &spec) override;
    void clear_slots() override;
    void clear_records() override {}
    void sweep() override {}
    Answer tick() override;

private:
    Frames exchange(const Frame &frame, uint16_t port) override;
    std::vector<inagg_stats> counters() override;

    void start();
    void stop();
    void restart();
    void put_job(const JobSpec &spec);
    void say(const std::string &line);
    std::string heard_until_now();
    void need_no_complaint();
    std::vector<std::pair<uint32_t, uint32_t>> asked_counters() const;
    void put(const inaggd::p4::Entry &entry);
    void put_group(uint16_t group, const std::vector<inaggd::p4::Copy> &copies);
    Frames frames_in(const std::string &text) const;

    const std::string folder_;
    pid_t child_ = 0;
    inagg::Fd to_, from_;
    std::string heard_;
    unsigned marks_ = 0;
    std::vector<inagg_stats> before_; // counted by the models that were stopped
};

} // namespace support
