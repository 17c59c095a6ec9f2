// SPDX-License-Identifier: BSD-2-Clause
// A background flow: one process that sends as long as it lives, one that counts what it receives.
#pragma once

#include "network.hpp"

#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace netns {

class Flow {
public:
    // `number` tells it from others of the same hosts, `address` is the receiver's, `mtu` that of the links.
    Flow(const FlowPath &path, const std::string &address, unsigned number, unsigned mtu);

    const std::string &name() const { return path_.name; }
    // Starts both processes; returns them.
    std::vector<pid_t> start();

    // Notes what has been received until now.
    void sample();
    // From the first sample to the last.
    double mbit_per_s() const;
    // Samples are pairs of CLOCK_MONOTONIC in seconds and bytes of payload since the start.
    nlohmann::json to_json() const;

private:
    [[noreturn]] void receive(int bound) const;
    [[noreturn]] void send_stream(const Fd &socket) const;
    [[noreturn]] void send_datagrams(const Fd &socket) const;

    FlowPath path_;
    std::string address_;
    uint16_t port_;
    unsigned mtu_;
    std::unique_ptr<std::atomic<uint64_t>, void (*)(std::atomic<uint64_t> *)> received_; // shared with the receiver
    std::vector<std::pair<double, uint64_t>> samples_;
};

} // namespace netns
