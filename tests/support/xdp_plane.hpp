// SPDX-License-Identifier: BSD-2-Clause
// The XDP switch under BPF_PROG_TEST_RUN: loaded for itself, attached to nothing.
#pragma once

#include "support/plane.hpp"

#include <map>
#include <set>

struct bpf_program;
struct inagg_uplink;
struct switch_bpf;
struct ring_buffer;

namespace support {

class XdpPlane : public Plane {
public:
    // Loads bpf/switch.bpf.c with room for `slots` slots. Throws std::runtime_error.
    explicit XdpPlane(uint32_t slots);
    ~XdpPlane() override;
    void reset() override;
    void add_job(const JobSpec &spec) override;
    void change_job(const JobSpec &spec) override;
    Answer receive(const Frame &frame) override;
    void clear_slots() override;
    void clear_records() override;
    void lose_floats() override;
    void sweep() override;
    Answer tick() override;
    inagg_stats stats(uint32_t index) override;
    inagg_stats unowned() override;
    // JOINs and LEAVEs left to the agent so far.
    uint64_t events() const { return event_count; }
    std::string pool(const JobSpec &spec) override;
    // The object itself, for what a Plane does not do.
    switch_bpf &bpf() { return *skeleton; }

private:
    switch_bpf *skeleton;
    ring_buffer *ring;
    uint64_t event_count = 0;
    uint32_t slots;
    void add_uplink(const JobSpec &spec);
    void add_route(const JobSpec &spec, const inagg_uplink &up);
    void expire_descriptors(uint32_t number, uint32_t index);
    void set_flags(uint16_t flags);
    void clear(uint32_t what, uint32_t count);
    void check_occupancy();
    Answer run(const bpf_program *program, const Frame &frame, const std::set<uint32_t> &rows_of_jobs);
    std::set<uint32_t> job_row(const Frame &frame) const;
    std::map<uint32_t, uint32_t> rows; // job number to row of stats
};

} // namespace support
