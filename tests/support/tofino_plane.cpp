// SPDX-License-Identifier: BSD-2-Clause
#include "support/tofino_plane.hpp"

#include "p4/tofino.hpp"

#include <inagg/core/packet.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <set>
#include <sstream>
#include <stdexcept>

namespace support {
namespace {

constexpr uint16_t flood_group = 0xffff;
constexpr uint32_t reasons = 64; // of a row of the counters
constexpr int answer_ms = 60000;
constexpr uint16_t clock_port = 68;             // of the packet generator
constexpr size_t byte_columns = 1 + 16 * 3 + 1; // of a line that shows a part of a frame

// Tables whose keys have a name in the program that is not the agent's business.
struct Table {
    const char *name, *full;
    std::vector<const char *> keys;
    unsigned first_bit = 0; // of its first key in the field that it is a part of: the harness wants the field
};
const Table tables[] = {
    {"settings", "Ingress.findings.settings", {}},
    {"own4", "Ingress.findings.own4", {"hdr.ipv4.dst"}},
    {"own6", "Ingress.findings.own6", {"hdr.ipv6.dst"}},
    {"own_sources", "Ingress.findings.own_sources", {"meta.source_high", "meta.source_low"}},
    {"jobs", "Ingress.findings.jobs", {"hdr.inagg.job"}},
    {"members", "Ingress.findings.members", {"hdr.inagg.job", "hdr.inagg.source", "is_above"}},
    {"stations", "Ingress.leave.stations", {"hdr.ethernet.dst"}},
    {"copies", "Egress.copies", {"hdr.bridge.job", "rank"}},
    {"uplinks", "Ingress.uplinks", {"hdr.inagg.job"}},
    {"positions", "Ingress.position.positions", {"hdr.inagg.job", "hdr.inagg.slot"}},
    {"speakers", "Ingress.position.speakers", {"hdr.inagg.job", "meta.source_high", "meta.source_low", "port"}},
    {"places", "places", {"hdr.inagg.job", "rank"}}, // of Ingress, or of its leave: the harness goes by how names end
    {"rows", "Ingress.rows", {"id", "is_six"}, 16},
};

// The vectors' elements are little-endian, and those of the chip's packets are not.
Frame turned(Frame frame) {
    const int family = frame.size() > 12 && frame[12] == 0x86 ? 6 : 4;
    const size_t header = header_offset(family), elements = header + sizeof(inagg_hdr);
    if (frame.size() <= elements)
        return frame;
    const uint8_t type = frame[header] & 0xf;
    if (type != INAGG_JOIN && type != INAGG_LEAVE)
        inagg_turn_elements(frame.data() + elements, static_cast<uint32_t>(frame.size() - elements));
    return frame;
}

// A packet of the generator: its header, and what is in its buffer.
Frame clock_frame(uint16_t place, int family) {
    Frame frame =
        inaggd::p4::tofino_tick(switch_mac(), {.family = static_cast<uint8_t>(family), .bytes = switch_address(family)});
    const uint8_t application = family == 4 ? 2 : 3; // as in p4/tna/clock.p4
    const uint8_t before[] = {application, 0, 0, 0, static_cast<uint8_t>(place >> 8), static_cast<uint8_t>(place)};
    frame.insert(frame.begin(), std::begin(before), std::end(before));
    return frame;
}

std::string hex(const Frame &frame) { return fmt::format("{:02x}", fmt::join(frame, "")); }

} // namespace

TofinoPlane::TofinoPlane(std::string folder) : folder_(std::move(folder)) { signal(SIGPIPE, SIG_IGN); }

void TofinoPlane::start() {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        throw std::runtime_error("pipe");
    child_ = fork();
    if (child_ < 0)
        throw std::runtime_error("fork");
    if (!child_) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        execlp("tofino_test_harness", "tofino_test_harness", "-l", folder_.c_str(), "-", nullptr);
        _exit(127);
    }
    to_ = inagg::Fd(in[1]);
    from_ = inagg::Fd(out[0]);
    close(in[0]);
    close(out[1]);
    heard_.clear();
}

void TofinoPlane::stop() {
    to_.reset();
    from_.reset();
    if (child_ > 0) {
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
    }
    child_ = 0;
}

void TofinoPlane::say(const std::string &line) {
    const std::string text = line + "\n";
    if (write(to_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        throw std::runtime_error("tofino_test_harness has ended: " + heard_);
}

// All that is said of what has been asked for: no command has that name, of which it complains.
std::string TofinoPlane::heard_until_now() {
    const std::string mark = fmt::format("mark{}", ++marks_);
    say(mark);
    size_t end;
    while ((end = heard_.find(mark + "\n")) == std::string::npos) {
        pollfd readable{.fd = from_.get(), .events = POLLIN, .revents = 0};
        char buffer[65536];
        const ssize_t bytes = poll(&readable, 1, answer_ms) == 1 ? ::read(from_.get(), buffer, sizeof buffer) : 0;
        if (bytes <= 0)
            throw std::runtime_error("tofino_test_harness is not on the PATH, or says no more: " + heard_);
        heard_.append(buffer, static_cast<size_t>(bytes));
    }
    std::string said = heard_.substr(0, end);
    heard_.erase(0, end + mark.size() + 1);
    return said;
}

void TofinoPlane::reset() {
    jobs_.clear();
    before_.assign(INAGG_STATS_NO_JOB + 1, {});
    restart();
}

// The model forgets nothing by itself.
void TofinoPlane::restart() {
    stop();
    start();
    const inaggd::p4::Settings settings{.cpu_port = cpu_port,
                                        .address4 = {.family = 4, .bytes = switch_address(4)},
                                        .address6 = {.family = 6, .bytes = switch_address(6)},
                                        .boot = switch_boot};
    for (const inaggd::p4::Entry &entry : inaggd::p4::tofino_entries(inaggd::p4::settings_entry(settings)))
        put(entry);
    std::vector<inaggd::p4::Copy> all;
    for (uint16_t port : port_numbers)
        all.push_back({.rank = 0, .port = port});
    put_group(flood_group, all);
}

void TofinoPlane::change_job(const JobSpec &spec) {
    jobs_[spec.number] = spec;
    put_job(spec);
    need_no_complaint();
}

// Its complaints begin with the place of a command; the last one is of the mark. Parameters of more than 64 bits it tries as part
// of the match entry first, where they do not fit, and then as action data, where they do.
void TofinoPlane::need_no_complaint() {
    std::istringstream lines(heard_until_now());
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("<stdin>:") && !lines.eof() && line.find("out of range for 64 bits") == std::string::npos)
            throw std::runtime_error("tofino_test_harness: " + line);
}

void TofinoPlane::put_job(const JobSpec &spec) {
    inaggd::p4::Seats seats{};
    for (uint32_t rank = 0; rank < spec.ranks; rank++)
        seats[rank].member = spec.member(rank);
    const inaggd::p4::Above above{.ups = {parent_of(spec)}, .live = spec.has_parent(), .timeout_us = 0};
    const inaggd::p4::JobEntries job = inaggd::p4::tofino_job(
        {.number = static_cast<uint16_t>(spec.number), .record = spec.job(), .seats = seats, .above = above, .policy = {}},
        {.count = switch_aggregators, .share = switch_share});
    put_group(job.group, job.copies);
    for (const inaggd::p4::Entry &entry : job.entries)
        put(entry);
}

void TofinoPlane::put(const inaggd::p4::Entry &entry) {
    const auto *found = std::find_if(std::begin(tables), std::end(tables), [&](const Table &t) { return t.name == entry.table; });
    if (found == std::end(tables))
        throw std::runtime_error("no table " + entry.table);
    const Table &table = *found;
    std::string line = entry.key.empty() ? fmt::format("setdefault {}", table.full) : fmt::format("add {} 0", table.full);
    for (size_t i = 0; i < entry.key.size(); i++) {
        const bool is_part = !i && table.first_bit;
        line +=
            fmt::format(" {}:{}", table.keys.at(i),
                        is_part ? fmt::format("{:#x}", std::stoull(entry.key[i], nullptr, 16) << table.first_bit) : entry.key[i]);
    }
    std::vector<std::string> parameters;
    for (const inaggd::p4::Parameter &parameter : entry.parameters)
        parameters.push_back(parameter.name + ":" + parameter.value);
    say(fmt::format("{} {}({})", line, entry.action, fmt::join(parameters, ", ")));
}

void TofinoPlane::put_group(uint16_t group, const std::vector<inaggd::p4::Copy> &copies) {
    std::string line = fmt::format("multicast {}", group);
    for (const inaggd::p4::Copy &copy : copies)
        line += fmt::format(" {}:{}", copy.rank, copy.port);
    say(line);
}

void TofinoPlane::clear_slots() {
    before_ = counters();
    restart();
    for (const auto &[number, spec] : jobs_)
        put_job(spec);
    need_no_complaint();
}

P4Plane::Frames TofinoPlane::exchange(const Frame &frame, uint16_t port) {
    say(fmt::format("packet {} {}", port, hex(port == clock_port ? frame : turned(frame))));
    say("wait");
    return frames_in(heard_until_now());
}

// Descriptors' time is up always: one visit to each.
Answer TofinoPlane::tick() {
    std::vector<Frame> frames;
    for (uint16_t place = 0; place < switch_aggregators; place++)
        for (int family : {4, 6})
            frames.push_back(clock_frame(place, family));
    return first_answer(frames, clock_port);
}

// "packet output on port P:", and lines of an offset, 16 bytes and what they are as text.
P4Plane::Frames TofinoPlane::frames_in(const std::string &text) const {
    Frames frames;
    std::vector<Frame> *at = nullptr;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        unsigned port = 0, offset = 0;
        const size_t says = line.find("packet output on port ");
        if (says != std::string::npos && std::sscanf(line.c_str() + says, "packet output on port %u", &port) == 1) {
            at = &frames[static_cast<uint16_t>(port)];
            at->emplace_back();
        } else if (at && line.size() > 4 && std::sscanf(line.c_str(), "%4x", &offset) == 1 && offset == at->back().size()) {
            std::istringstream bytes(line.substr(4, byte_columns));
            for (unsigned byte; bytes >> std::hex >> byte;)
                at->back().push_back(static_cast<uint8_t>(byte));
        } else {
            at = nullptr;
        }
    }
    for (auto &[port, of_port] : frames)
        for (Frame &frame : of_port)
            if (port != cpu_port)
                frame = turned(frame);
    return frames;
}

// Drops only; there are no others. Of each the model shows what a read of the register finds, which is nothing, and then what is
// in the memory that it has, if that was ever used.
std::vector<inagg_stats> TofinoPlane::counters() {
    for (const auto &[row, reason] : asked_counters())
        say(fmt::format("check_counter Ingress.leave.drops({})", row * reasons + reason));
    std::vector<inagg_stats> rows = before_;
    std::istringstream lines(heard_until_now());
    unsigned counter = 0, place = 0;
    unsigned long packets = 0;
    for (std::string line; std::getline(lines, line);) {
        std::sscanf(line.c_str(), "counter Ingress.leave.drops(virtual %u)", &counter);
        if (std::sscanf(line.c_str(), "counter Ingress.leave.drops(physical %u): packets=%lu", &place, &packets) == 2)
            rows.at(counter / reasons).drops[counter % reasons] += packets;
    }
    return rows;
}

// (row, reason)
std::vector<std::pair<uint32_t, uint32_t>> TofinoPlane::asked_counters() const {
    std::vector<std::pair<uint32_t, uint32_t>> asked;
    std::set<uint32_t> used = {INAGG_STATS_NO_JOB};
    for (const auto &[number, spec] : jobs_)
        used.insert(spec.index);
    for (uint32_t row : used)
        for (uint32_t reason = INAGG_R_NONE + 1; reason < INAGG_R_COUNT; reason++)
            asked.emplace_back(row, reason);
    return asked;
}

} // namespace support
