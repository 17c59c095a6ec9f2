// SPDX-License-Identifier: BSD-2-Clause
// Float addition of the core and of the XDP switch beside the processor's: all pairs of boundary numbers, and random ones.
#include "support/float_pairs.hpp"
#include "support/xdp_plane.hpp"

#include <inagg/core/float32.h>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <stdexcept>

namespace {

using namespace support;

// What the processor gives, with one NaN for all.
uint32_t expected(uint32_t a, uint32_t b) {
    const float sum = std::bit_cast<float>(a) + std::bit_cast<float>(b);
    return std::isnan(sum) ? INAGG_NAN : std::bit_cast<uint32_t>(sum);
}

// A job of two ranks; each block adds as many pairs as a packet holds.
class Adder {
public:
    explicit Adder(Plane &on) : plane(on) {
        job.ranks = 2;
        job.elements = INAGG_MAX_ELEMENTS;
        job.algorithm = INAGG_PANAMA;
        plane.add_job(job);
    }

    void add(uint32_t a, uint32_t b) {
        terms[0].push_back(a);
        terms[1].push_back(b);
        if (terms[0].size() == job.elements)
            flush();
    }

    void flush() {
        if (terms[0].empty())
            return;
        for (auto &side : terms)
            side.resize(job.elements);
        send(0);
        const Answer answer = send(1);
        const auto result = answer.action == Action::multicast ? parse(answer.frame) : std::nullopt;
        if (!result)
            throw std::runtime_error(
                fmt::format("block {}: no result, {} {}", block, action_name(answer.action), reason_name(answer.reason)));
        const std::vector<uint32_t> sums = element_values(result->payload, INAGG_WIRE_FLOAT32);
        for (size_t i = 0; i < sums.size(); i++)
            check(terms[0][i], terms[1][i], sums[i]);
        pairs += sums.size();
        block++;
        for (auto &side : terms)
            side.clear();
    }

    uint64_t pairs = 0;

private:
    Answer send(uint32_t rank) {
        Packet packet = contribution(job, rank, block, 0);
        packet.dtype = INAGG_WIRE_FLOAT32;
        packet.elements = job.elements;
        packet.payload = element_bytes(terms[rank], packet.dtype);
        return plane.receive(build(packet));
    }

    static void check(uint32_t a, uint32_t b, uint32_t sum) {
        const uint32_t right = expected(a, b), core = inagg_float32_add(a, b);
        if (core != right || sum != right)
            throw std::runtime_error(
                fmt::format("{:08x} + {:08x}: core {:08x}, XDP {:08x}, the processor {:08x}", a, b, core, sum, right));
    }

    Plane &plane;
    JobSpec job;
    uint32_t block = 0;
    std::vector<uint32_t> terms[2];
};

} // namespace

int main(int argc, char **argv) {
    uint64_t random_pairs = 5'000'000, seed = 1;
    CLI::App app("Adds pairs of floats in the core and in the XDP switch, and compares with the processor.");
    app.add_option("--random", random_pairs, "Random pairs, after all pairs of boundary numbers")->capture_default_str();
    app.add_option("--seed", seed)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    if (geteuid() != 0) {
        fmt::print("SKIP: needs root to load BPF programs\n");
        return 77;
    }
    try {
        XdpPlane plane(8);
        Adder adder(plane);
        const std::vector<uint32_t> numbers = boundary_floats();
        for (const uint32_t a : numbers)
            for (const uint32_t b : numbers)
                adder.add(a, b);
        RandomFloats random(seed);
        for (uint64_t i = 0; i < random_pairs; i++) {
            const auto [a, b] = random.pair();
            adder.add(a, b);
        }
        adder.flush();
        fmt::print("{} pairs agree\n", adder.pairs);
    } catch (const std::exception &error) {
        fmt::print(stderr, "float-sums: {}\n", error.what());
        return 1;
    }
}
