// SPDX-License-Identifier: BSD-2-Clause
#include "background.hpp"

#include <fmt/core.h>

#include <numeric>
#include <regex>
#include <stdexcept>

namespace netns {
namespace {

constexpr size_t max_spine_flows = 24;

void complete(Background &flow, const Options &options) {
    if (options.leaf_spine() && flow.spines.empty()) {
        flow.spines.resize(options.spines);
        std::iota(flow.spines.begin(), flow.spines.end(), 0);
    }
    if (flow.is_udp() && flow.rate == 0) {
        flow.rate = options.leaf_spine() ? options.impairments.between_switches() : options.impairments.rate;
    }
}

void check_flow(const Background &flow, const Options &options) {
    for (const unsigned spine : flow.spines) {
        if (!options.leaf_spine()) {
            throw std::invalid_argument(fmt::format(
                "topology {} has no spine {} to load: leave it out, or give --topology leaf-spine", options.topology, spine));
        }
        if (spine >= options.spines) {
            throw std::invalid_argument(fmt::format("there is no spine {}: give one from 0 to {}", spine, options.spines - 1));
        }
    }
    if (flow.is_udp() && flow.rate == 0) {
        throw std::invalid_argument("udp on links without a limit needs a rate: write it like udp@100mbit");
    }
    if (options.hosts() < 2) {
        throw std::invalid_argument(fmt::format("{} needs two hosts: give --workers 2 or more", flow.kind));
    }
}

} // namespace

Background parse_background(const std::string &text) {
    static const std::regex pattern("(tcp|dctcp|udp)(?::([0-9](?:,[0-9])*))?(?:@(.+))?");
    std::smatch parts;
    if (!std::regex_match(text, parts, pattern)) {
        throw std::invalid_argument(fmt::format(
            "'{}' is not tcp, dctcp or udp with spines and a rate: write it like tcp, tcp:1 or udp:0,2@50mbit", text));
    }
    Background flow{.kind = parts[1], .spines = {}, .rate = parts[3].matched ? inagg::parse_rate(parts[3]) : 0};
    for (const char digit : parts[2].str()) {
        if (digit != ',') {
            flow.spines.push_back(digit - '0');
        }
    }
    return flow;
}

void prepare_background(Options &options) {
    size_t flows = 0;
    for (Background &flow : options.background) {
        complete(flow, options);
        check_flow(flow, options);
        flows += flow.spines.size();
    }
    if (flows > max_spine_flows) {
        throw std::invalid_argument(fmt::format("{} flows over spines: there are addresses for {}", flows, max_spine_flows));
    }
}

} // namespace netns
