// SPDX-License-Identifier: BSD-2-Clause
// Leaves, spines, hosts and jobs, as an operator writes them down for `inaggctl plan`.
#pragma once

#include "names.hpp"

#include <optional>
#include <string>
#include <vector>

namespace inaggctl {

struct Spine {
    std::string name;
    inaggd::Address address;
};

// From a leaf to a spine.
struct Uplink {
    size_t spine;
    std::string leaf_port, spine_port;
};

struct Leaf {
    std::string name;
    inaggd::Address address;
    std::vector<Uplink> uplinks;
};

struct Host {
    inaggd::Address address;
    size_t leaf;
    std::string port; // of the leaf; several hosts may be behind one
};

// A job of the operator's, which takes a job of the switches for each of its trees.
struct Work {
    std::string name;
    std::vector<size_t> hosts; // ranks are numbered in this order
    unsigned ranks_per_host = 1;
    uint8_t algorithm = 0;
    unsigned trees = 0;         // 0: as many as there are spines for it
    std::vector<size_t> spines; // that it may have; in the order of the fabric
    std::string aggregate_from; // INAGG_AGGREGATE_FROM
    unsigned numbers = 1;       // job numbers that are kept for it, if those are more than its trees

    unsigned size() const { return static_cast<unsigned>(hosts.size()) * ranks_per_host; }
};

struct Fabric {
    std::vector<Spine> spines; // in the order of all leaves' parents
    std::vector<Leaf> leaves;
    std::vector<Host> hosts;
    std::vector<Work> works;
    std::string host_rate, uplink_rate; // as of inaggd --port-rate; or none
    uint16_t first_job = 0;
    bool only_planned = false; // spines admit no other jobs
};

// Reads TOML, described in inaggctl(8). Throws inaggd::Error, which names file, line and value.
Fabric read_fabric(const std::string &path);

} // namespace inaggctl
