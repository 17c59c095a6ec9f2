// SPDX-License-Identifier: BSD-2-Clause
// What the switch drops, whom its agent refuses, and what to do about it; docs/TROUBLESHOOTING.md has the same as a table.
#include "control.hpp"
#include "error.hpp"
#include "findings.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>

namespace inaggctl {
namespace {

constexpr std::chrono::minutes recent{10}; // refusals: later, what was wrong has been put right, or given up

// Of a network that loses or doubles packets, of a job that was started again, of every join with a key, and of ports whose
// frames have no room for an answer, which is asked for again.
const std::set<std::string_view> harmless = {
    "NONE", "GENERATION", "STALE", "UNSOLICITED", "DUPLICATE", "REPLACED", "CHALLENGE", "RESIZE",
};

// For all other reasons.
const std::map<std::string_view, const char *> advice = {
    {"LENGTH", "somebody sends to the port what is not of inagg, or frames are cut: tcpdump on the sending host, udp port 12000"},
    {"VERSION", "install the same release of inagg on ranks and switch"},
    {"HEADER_CHECKSUM", "a link damages frames: ethtool -S on its ends"},
    {"PAYLOAD_CHECKSUM", "a link damages frames: ethtool -S on its ends"},
    {"TYPE", "somebody sends what only a parent or a switch below may: name the switches to each other with inaggd "
             "--parent, --child, and give INAGG_SWITCH the address of the rank's own switch"},
    {"JOB", "ranks send for a job that has ended, or was never here: start them again"},
    {"RANK", "a rank sends that has not joined or has left: start the job again, with one INAGG_SIZE"},
    {"PORT", "a rank has moved to another port, or somebody uses its number: start the job again, or "
             "INAGG_RANK differs"},
    {"ADDRESS", "a rank's address has changed: start the job again; or somebody sends in another's name"},
    {"SLOT", "a rank counts on slots that the job does not have: start the job again"},
    {"MISMATCH", "ranks call with different tensors, types or operators: compare their programs"},
    {"ELEMENTS", "a rank's packets are not of the job's size: start the job again, with one release of inagg"},
    {"DTYPE", "this algorithm does not sum this type"},
    {"ALGORITHM", "the agent has not loaded this algorithm's program: its log says why"},
    {"SIZE", "give all ranks of the job the same INAGG_SIZE"},
    {"TAKEN", "two hosts have the same INAGG_RANK, or a host's address has changed: inaggctl job del"},
    {"MTU", "the MTU of a port is below the job's packets: ip link set dev PORT mtu"},
    {"FULL", "the switch's memory is full: inaggd --slots, --buckets for trio, --buffers for panama, or fewer jobs"},
    {"POLICY", "the switch makes no such job on request, and its log says why: --no-auto-jobs, or expiry and exclusion that it "
               "cannot keep"},
    {"PARSE", "frames with three VLAN tags: take them off before they reach the switch"},
    {"MULTICAST", "no port to send results to: inaggctl job show"},
    {"BUSY", "CPUs of the switch get in each other's way: keep other work off those that take the ports' interrupts"},
    {"PARENT", "name the switches to each other: inaggd --parent, --child"},
    {"EXCLUDED", "the others go on without a rank that was silent for INAGG_EXCLUDE_AFTER: start it again"},
    {"MOVED", "the job has gone to another root, since a link between switches was down: see that it is up"},
    {"UNLINKED", "no root has links to all ranks' switches: inaggctl job show on each"},
    {"FORMING", "earlier runs left jobs that were never complete: inaggctl job del, or wait for --join-timeout"},
    {"KEY", "give ranks and switch the same join key"},
    {"QUOTA", "the job sends more than inaggd --job-rate or --job-uplink-rate lets it"},
    {"RATE", "a host behind one port joins or leaves thousands of times a second: others behind that port wait"},
};

struct Seen {
    uint64_t packets = 0;
    std::string text;
};

std::map<std::string, Seen> dropped_by_reason(const Where &where) {
    std::map<std::string, Seen> found;
    for (const json &row : read_drops(where, {}))
        if (const std::string reason = row["reason"]; !harmless.contains(reason)) {
            found[reason].packets += row["packets"].get<uint64_t>();
            found[reason].text = row["text"];
        }
    return found;
}

std::string advice_about(const std::string &reason) {
    const auto known = advice.find(reason);
    return known != advice.end() ? known->second : "the switch is of a later release: use its inaggctl";
}

} // namespace

void examine_drops(const Where &where, json &findings) {
    const std::map<std::string, Seen> found = dropped_by_reason(where);
    if (found.empty())
        findings.push_back(finding("switch: drops", "ok", "none but of late and doubled packets"));
    for (const auto &[reason, seen] : found)
        findings.push_back(finding("switch: drops", "warn", fmt::format("{}: {} packets, {}", reason, seen.packets, seen.text),
                                   advice_about(reason)));
}

void examine_refusals(const Where &where, json &findings) {
    json reply;
    try {
        reply = inaggd::ask_daemon(where.run_dir, {{"command", "refusals"}});
    } catch (const inaggd::Error &error) {
        if (std::string_view(error.what()).find("unknown command") == std::string_view::npos)
            throw;
        findings.push_back(
            finding("switch: refusals", "warn", error.what(), "have the agent take up this release: inaggctl reload"));
        return;
    }
    const size_t before = findings.size();
    for (const json &row : reply["refusals"]) {
        const std::string reason = row["reason"];
        const std::chrono::milliseconds ago(row["ms_ago"].get<int64_t>());
        if (ago > recent || harmless.contains(reason))
            continue;
        findings.push_back(finding("switch: refusals", "warn",
                                   fmt::format("{}: {} joins, the last {} s ago: {}", reason, row["joins"].get<uint64_t>(),
                                               duration_cast<std::chrono::seconds>(ago).count(), row["last"].get<std::string>()),
                                   advice_about(reason)));
    }
    if (findings.size() == before)
        findings.push_back(finding("switch: refusals", "ok", fmt::format("none in the last {} minutes", recent.count())));
}

} // namespace inaggctl
