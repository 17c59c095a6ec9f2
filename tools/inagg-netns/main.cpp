// SPDX-License-Identifier: BSD-2-Clause
// inagg-netns: a network of namespaces, a switch in the middle, and one command on all its workers.
#include "bmv2.hpp"
#include "launch.hpp"
#include "network.hpp"
#include "options.hpp"
#include "sandbox.hpp"
#include "supervisor.hpp"

#include <fmt/core.h>

#include <exception>
#include <fstream>
#include <memory>

#include <unistd.h>

static int enter(const netns::Options &options) {
    try {
        return netns::enter_host(options.enter, options.command);
    } catch (const std::exception &error) {
        fmt::print(stderr, "inagg-netns: {}\n", error.what());
        return 255; // as ssh
    }
}

// Without a network there is nothing to count, which the summary says then.
static std::unique_ptr<netns::Network> build_network(const netns::Options &options, std::ofstream &summary) {
    try {
        return std::make_unique<netns::Network>(options);
    } catch (...) {
        summary << "{}\n" << std::flush;
        throw;
    }
}

int main(int argc, char **argv) {
    const netns::Options options = netns::parse_options(argc, argv);
    if (!options.enter.empty()) {
        return enter(options);
    }
    if (geteuid() != 0) {
        fmt::print(stderr, "inagg-netns: user {} cannot create network namespaces: run it as root, with sudo\n", geteuid());
        return 125;
    }
    netns::prepare_environment();
    try {
        if (options.with_bmv2()) {
            netns::need_bmv2(options.algorithm);
        }
        std::ofstream summary = netns::open_summary(options); // /run and /sys/fs/bpf are others in there
        return netns::run_isolated([&] {
            const auto network = build_network(options, summary);
            return netns::Supervisor(options, *network, std::move(summary)).run();
        });
    } catch (const std::exception &error) {
        fmt::print(stderr, "inagg-netns: {}\n", error.what());
        return 125;
    }
}
