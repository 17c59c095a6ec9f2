// SPDX-License-Identifier: BSD-2-Clause
#include "fuzz.hpp"

#include "frames.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace fuzz {
namespace {

using namespace support;

constexpr uint64_t frames_per_job = 20000; // then a new seed, other settings

int64_t nanoseconds(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Switches take the time from a coarse clock, and all planes must see the same. How far it lags behind tells nothing: that
// changes with the processor that drives it.
void keep_clear_of_the_next_tick() {
    constexpr int64_t enough = 2'000'000; // half of a tick
    static int64_t tick = 0, since = 0;
    if (nanoseconds(CLOCK_MONOTONIC_COARSE) == tick && nanoseconds(CLOCK_MONOTONIC) - since < enough)
        return;
    tick = nanoseconds(CLOCK_MONOTONIC_COARSE);
    while (nanoseconds(CLOCK_MONOTONIC_COARSE) == tick)
        ;
    tick = nanoseconds(CLOCK_MONOTONIC_COARSE);
    since = nanoseconds(CLOCK_MONOTONIC);
}

JobSpec attacker(uint64_t round) {
    JobSpec spec;
    spec.first_slot = 10;
    spec.algorithm = round % 2 ? INAGG_TRIO : INAGG_SWITCHML;
    spec.family = round / 2 % 2 ? 6 : 4;
    spec.flags = round / 4 % 2 ? INAGG_JOIN_CHECKED : 0;
    spec.expiry_sweeps = round / 8 % 2 ? 0 : 1;
    spec.quorum = round / 4 % 3 ? 0 : 2;
    spec.most_open = round / 4 % 2 ? 6 : 24;
    if (round / 2 % 3) { // a leaf, or a root
        spec.here = round / 2 % 3 == 1 ? 0b011 : 0b111;
        spec.subtrees = {0b011, 0b011, 0};
    }
    if (round % 5 == 4) { // between ranks and a server; one rank may be a switch
        spec.algorithm = INAGG_ATP;
        spec.here = 0b011;
        spec.subtrees = {round / 5 % 2 ? 0b01UL : 0, 0, 0};
    }
    if (round % 5 == 1) {
        spec.algorithm = INAGG_PANAMA;
        spec.cap = static_cast<uint16_t>(round / 5 % 4); // 0: none
        if (spec.here == 0b111)                          // a rack, and a rank
            spec.subtrees = {0b011, 0b011, 0};
        else
            spec.subtrees.clear();
    }
    if (round % 5 == 3) { // one switch, a leaf, or a spine
        spec.algorithm = INAGG_CANARY;
        spec.here = 0;
        spec.subtrees.clear();
        if (round / 5 % 3 == 1) {
            spec.here = 0b011;
            spec.ports = {the_port, the_port, 0};
        } else if (round / 5 % 3 == 2) {
            spec.here = 0b111;
            spec.subtrees = {0b011, 0b011, 0};
        }
    }
    return spec;
}

// The other job: its pools lie on both sides of the attacker's. Its ranks are behind another port.
JobSpec neighbour(uint32_t number, uint32_t first_slot, uint32_t port, uint8_t algorithm = INAGG_SWITCHML) {
    JobSpec spec;
    spec.algorithm = algorithm;
    spec.number = number;
    spec.index = number;
    spec.first_slot = first_slot;
    spec.ports = {port, port, port};
    return spec;
}

// Half-filled slots, which any stray addition would change.
void settle(Plane &plane, const JobSpec &there) {
    JobSpec here = there;
    here.ports.clear();
    plane.add_job(here);
    for (uint32_t block = 0; block < here.slots; block++)
        for (uint32_t rank = 0; rank < 1 + block % here.ranks; rank++)
            plane.receive(build(contribution(here, rank, block, INAGG_CHUNK)));
    plane.add_job(there);
}

uint64_t fates(const inagg_stats &s) {
    return std::accumulate(std::begin(s.drops), std::end(s.drops),
                           s.additions + s.replies + s.waits + s.restores + s.joins + s.expired + s.relayed);
}

struct Totals {
    uint64_t by_action[static_cast<int>(Action::fail)] = {};
    uint64_t ticks = 0; // that decided a block
    uint64_t degraded = 0, late = 0, recoveries = 0, restores = 0;
};

// One plane with the jobs of one round.
class Subject {
public:
    Subject(Plane &on, const JobSpec &job)
        : plane(on), spec(job), left(neighbour(20, 4, 2)),
          right(neighbour(21, 16, 2, job.algorithm == INAGG_TRIO ? INAGG_TRIO : INAGG_SWITCHML)) {
        plane.reset();
        settle(plane, left);
        settle(plane, right);
        plane.add_job(spec);
        pools = plane.pool(left) + plane.pool(right);
        counted = count();
    }

    Answer receive(const Frame &frame) {
        const Answer answer = plane.receive(frame);
        if (answer.action == Action::fail)
            throw std::runtime_error("the plane failed, or gave more than one reason");
        const uint64_t before = std::exchange(counted, count());
        const bool silent = answer.action == Action::pass || is_membership(frame, answer);
        if (counted - before != (silent ? 0 : 1))
            throw std::runtime_error(fmt::format("counted {} times, action {}", counted - before, action_name(answer.action)));
        return answer;
    }

    Answer tick() {
        const Answer answer = plane.tick();
        const uint64_t before = std::exchange(counted, count());
        if (counted - before != (answer.action == Action::absorb ? 0 : 1))
            throw std::runtime_error(
                fmt::format("a tick counted {} times, action {}", counted - before, action_name(answer.action)));
        return answer;
    }

    void sweep() { plane.sweep(); }

    // Records make room; the neighbour's, too, so they are no longer looked at.
    void clear_records() {
        plane.clear_records();
        pools = plane.pool(left) + plane.pool(right);
    }

    void check_neighbours() {
        if (plane.pool(left) + plane.pool(right) != pools)
            throw std::runtime_error("another job's slots have changed");
    }

    inagg_stats stats() { return plane.stats(spec.index); }
    inagg_stats unowned() { return plane.unowned(); }
    static uint32_t victim() { return 20; }

private:
    uint64_t count() {
        return fates(plane.stats(spec.index)) + fates(plane.stats(left.index)) + fates(plane.stats(right.index)) +
               fates(plane.unowned());
    }

    // Left to the agent, who counts it.
    static bool is_membership(const Frame &frame, const Answer &answer) {
        if (answer.action != Action::absorb)
            return false;
        const uint8_t type = frame[header_offset(frame[12] == 0x86 ? 6 : 4)] & 0xf;
        return type == INAGG_JOIN || type == INAGG_LEAVE || type == INAGG_CONFIG || type == INAGG_REFUSED;
    }

    Plane &plane;
    const JobSpec spec, left, right;
    std::string pools;
    uint64_t counted;
};

bool same_packet(const Frame &a, const Frame &b) {
    const auto x = parse(a), y = parse(b);
    if (!x || !y)
        return false;
    const auto fields = [](const Packet &p) {
        return std::tie(p.family, p.source_mac, p.target_mac, p.source, p.target, p.source_port, p.target_port, p.type, p.dtype,
                        p.op, p.flags, p.job, p.generation, p.rank, p.block, p.slot, p.count, p.fan_in, p.boot, p.contributors,
                        p.window_cap, p.epoch, p.scale, p.next_scale, p.elements, p.port, p.payload);
    };
    return fields(*x) == fields(*y);
}

std::string hex(const Frame &frame) {
    std::string text;
    for (uint8_t byte : frame)
        text += fmt::format("{:02x}", byte);
    return text;
}

void compare(const Answer &a, const Answer &b) {
    if (a.action != b.action || a.reason != b.reason)
        throw std::runtime_error(fmt::format("the planes disagree: {} {} and {} {}", action_name(a.action), reason_name(a.reason),
                                             action_name(b.action), reason_name(b.reason)));
    if (!a.frame.empty() && !same_packet(a.frame, b.frame))
        throw std::runtime_error(fmt::format("the planes send different packets:\n  {}\n  {}\nfor", hex(a.frame), hex(b.frame)));
}

// What happens to all subjects at once must have the same answer.
template <typename Event> Answer all(std::vector<Subject> &subjects, Event event) {
    const Answer first = event(subjects[0]);
    for (size_t other = 1; other < subjects.size(); other++)
        compare(first, event(subjects[other]));
    return first;
}

// Time passes: sweeps, the ticks that follow, now and then a loss of all records.
void pass_time(std::vector<Subject> &subjects, std::mt19937_64 &random, Totals &totals) {
    if (random() % 15 == 0)
        for (Subject &subject : subjects)
            subject.sweep();
    if (random() % 10 == 0)
        totals.ticks += all(subjects, [](Subject &subject) { return subject.tick(); }).action == Action::multicast;
    if (random() % 2000 == 0)
        for (Subject &subject : subjects)
            subject.clear_records();
}

// Returns the number of frames that there was time for: `count`, unless this process is held up.
uint64_t run_round(const std::vector<Plane *> &planes, uint64_t seed, uint64_t round, uint64_t count, Totals &totals) {
    const JobSpec spec = attacker(round);
    std::vector<Subject> subjects;
    for (Plane *plane : planes)
        subjects.emplace_back(*plane, spec);
    Frames frames(seed + round, spec, neighbour(Subject::victim(), 4, 2));
    std::mt19937_64 time(seed + round);
    const bool depends_on_time = planes.size() > 1 && spec.algorithm != INAGG_SWITCHML;
    for (uint64_t i = 0; i < count; i++) {
        const Frame frame = frames.next();
        if (depends_on_time)
            keep_clear_of_the_next_tick();
        const int64_t now = nanoseconds(CLOCK_MONOTONIC_COARSE);
        // One plane may have seen a later time.
        const auto was_held_up = [&] { return depends_on_time && nanoseconds(CLOCK_MONOTONIC_COARSE) != now; };
        try {
            if (spec.algorithm == INAGG_TRIO || spec.algorithm == INAGG_CANARY)
                pass_time(subjects, time, totals);
            const Answer first = all(subjects, [&](Subject &subject) { return subject.receive(frame); });
            frames.heard(first.frame);
            totals.by_action[static_cast<int>(first.action)]++;
            if (i % 64 == 0 || i + 1 == count)
                for (Subject &subject : subjects)
                    subject.check_neighbours();
        } catch (const std::exception &error) {
            if (was_held_up())
                return i + 1;
            throw std::runtime_error(fmt::format("round {}, frame {}: {}\n  {}", round, i, error.what(), hex(frame)));
        }
        if (was_held_up())
            return i + 1;
    }
    const inagg_stats counted = subjects[0].stats();
    totals.degraded += counted.degraded;
    totals.late += counted.late;
    totals.recoveries += counted.recoveries;
    totals.restores += counted.restores;
    for (size_t other = 1; other < subjects.size(); other++) {
        const inagg_stats a = subjects[0].stats(), b = subjects[other].stats();
        const inagg_stats c = subjects[0].unowned(), d = subjects[other].unowned();
        if (std::memcmp(&a, &b, sizeof a) || std::memcmp(&c, &d, sizeof c))
            throw std::runtime_error(fmt::format("round {}: the planes' counters differ", round));
    }
    return count;
}

} // namespace

int run(int argc, char **argv, const std::vector<Plane *> &planes) {
    CLI::App app("Random and mutated frames into the switch.");
    uint64_t seed = 1, count = 100000;
    app.add_option("--seed", seed, "First seed")->capture_default_str();
    app.add_option("--frames", count, "How many")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    Totals totals;
    try {
        for (uint64_t round = 0, done = 0; done < count; round++)
            done += run_round(planes, seed, round, std::min(frames_per_job, count - done), totals);
    } catch (const std::exception &error) {
        fmt::print(stderr, "seed {}: {}\n", seed, error.what());
        return 1;
    }
    fmt::print("{} frames:", count);
    for (int action = 0; action < 6; action++)
        fmt::print(" {} {}", totals.by_action[action], action_name(static_cast<Action>(action)));
    fmt::print("; {} ticks, {} degraded, {} late, {} recoveries, {} restores\n", totals.ticks, totals.degraded, totals.late,
               totals.recoveries, totals.restores);
    return 0;
}

} // namespace fuzz
