// SPDX-License-Identifier: BSD-2-Clause
// Brings the switch program into the kernel: loads, pins, attaches, and takes over what an earlier
// agent left.
#pragma once

#include "common/fd.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

struct inagg_job;
struct switch_bpf;

namespace inaggd {

using inagg::Fd;

// Throws Error if one of the ports does not exist or runs a program other than the switch of `dir`.
void need_free_ports(const std::string &dir, const std::vector<std::string> &ports);

// Throws Error unless `path` is in a bpf file system.
void need_bpffs(const std::filesystem::path &path);

// Throws Error if a map that is pinned in `dir` is none that this inaggd's programs could take over.
void need_compatible_pins(const std::string &dir);

// Of maps that are made anew.
struct SwitchSizes {
    uint32_t slots;       // pairs
    uint32_t buckets;     // of trio's records, a power of two
    uint32_t aggregators; // of atp, likewise
    uint32_t buffers;     // of panama's floats
    uint32_t descriptors; // of canary's blocks, a power of two
    uint32_t shares;      // of both, likewise: a job has one
    bool queues;          // some port's rate is known
    bool quotas;          // jobs may send so much and no more
    bool uplink_quotas;   // likewise to switches above
    bool several;         // ports carry packets of several blocks
};

class Loader {
public:
    // Loads the programs. Maps that hold the switch's state are taken from the pins in `dir` if there
    // are any, unless `fresh`; `sizes` counts only for new ones. Throws Error, also when another
    // process has a Loader of `dir`.
    Loader(std::string dir, const SwitchSizes &sizes, bool fresh);
    ~Loader();
    Loader(const Loader &) = delete;
    Loader &operator=(const Loader &) = delete;

    // Loads what handles packets of such a job, unless it is there. Throws Error.
    void provide(const inagg_job &job);
    // Attaches the switch to those ports that it does not serve yet: to all or, with Error, to none.
    void attach_new(const std::vector<std::string> &ports);
    // Attaches the switch to a port, or gives it the new program if an earlier agent attached it.
    // Returns the interface index.
    uint32_t attach(const std::string &port);
    void detach(const std::string &port);
    // Counts what the kernel itself sends by the port, whose rate is known, from Linux 6.6 on.
    void meter(const std::string &port, uint32_t ifindex) const;
    void unmeter(const std::string &port) const;
    // Were the programs for packets of several blocks loaded?
    bool has_several() const;
    // Has tc send the results of packets that bring several blocks, from Linux 6.6 on. False: not here.
    bool spread(const std::string &port, uint32_t ifindex) const;
    void unspread(const std::string &port) const;
    // May such packets come? Who sends them none the less, for they were welcome before, sends their blocks again one by one.
    void take_several(bool take) const;
    // Pins the new table of algorithms, which ends the old programs. Call when all ports are attached.
    void publish();
    // Detaches every port and removes the switch's pins: nothing is left but what others pinned.
    void remove_all();
    // Maps were taken over from an earlier agent.
    bool resumed() const { return resumed_; }
    // The egress program of devmap entries.
    int egress() const;

private:
    void load(const SwitchSizes &sizes);
    void load_further(const std::vector<const char *> &wanted);
    void reuse_or_create(const SwitchSizes &sizes);
    void pin_new_maps();
    void pin_programs() const;
    void replace_pin(const char *name, int fd) const;
    void open_exit(const std::string &port, uint32_t ifindex);

    std::string dir_;
    bool made_directory_;
    Fd lock_;
    switch_bpf *skeleton_ = nullptr;
    bool resumed_ = false;
};

} // namespace inaggd
