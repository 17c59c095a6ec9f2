// SPDX-License-Identifier: BSD-2-Clause
// What is set up, and whether it fits together; doctor.cpp looks at what the machine can do.
#include "common/fd.hpp"
#include "control.hpp"
#include "error.hpp"
#include "findings.hpp"
#include "links.hpp"
#include "names.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/packet.h>
#include <inagg/inagg.h>

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

namespace inaggctl {
namespace {

using inaggd::Address;
using inaggd::Fd;
using inaggd::system_text;

constexpr int answer_ms = 300, attempts = 3;

// A socket that sends to the switch; empty, with errno, if there is no way there.
Fd connect_to(const Address &address) {
    Fd fd(socket(address.family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int on = 1; // switches leave the UDP checksum out: RFC 6935
    if (fd && address.family == 6)
        setsockopt(fd.get(), IPPROTO_UDP, UDP_NO_CHECK6_RX, &on, sizeof on);
    sockaddr_storage storage;
    const socklen_t length = address.to_sockaddr(htons(INAGG_PORT), storage);
    if (fd && connect(fd.get(), reinterpret_cast<const sockaddr *>(&storage), length))
        return Fd();
    return fd;
}

// A JOIN that no agent grants: it names more ranks than a job may have, so whoever hears it answers and
// changes nothing.
bool answers(const Fd &fd, uint16_t job) {
    struct {
        inagg_hdr header;
        struct inagg_join join; // inagg.h has a function of that name
    } packet{};
    packet.header.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | INAGG_JOIN);
    packet.header.job = htons(job);
    packet.join.size = htons(INAGG_MAX_RANKS + 1);
    packet.join.elements = htons(INAGG_CHUNK);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    getsockname(fd.get(), reinterpret_cast<sockaddr *>(&own), &length);
    packet.join.receive_port = own.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in &>(own).sin_port
                                                        : reinterpret_cast<const sockaddr_in6 &>(own).sin6_port;
    if (getrandom(&packet.join.nonce, sizeof packet.join.nonce, 0) != sizeof packet.join.nonce)
        return false;
    inagg_hdr_seal_checked(&packet.header, inagg_body_checksum(&packet.join));
    for (int attempt = 0; attempt < attempts; attempt++) {
        if (send(fd.get(), &packet, sizeof packet, 0) < 0 && errno != ECONNREFUSED)
            return false;
        pollfd ready{.fd = fd.get(), .events = POLLIN, .revents = 0};
        std::array<char, 2048> reply;
        if (poll(&ready, 1, answer_ms) > 0 && recv(fd.get(), reply.data(), reply.size(), MSG_DONTWAIT) > 0)
            return true;
    }
    return false;
}

void examine_way(const std::string &text, uint16_t job, json &findings) {
    const auto address = Address::parse(text);
    if (!address) {
        findings.push_back(finding("worker: route", "missing", fmt::format("INAGG_SWITCH='{}' is no IPv4 or IPv6 address", text),
                                   "set it to the address that inaggctl status shows on the switch"));
        return;
    }
    const Fd fd = connect_to(*address);
    findings.push_back(judge("worker: route", static_cast<bool>(fd), "missing",
                             fmt::format("to {}{}", text, fd ? "" : ": " + system_text(errno)),
                             "give this host an address in the switch's network, and its interface a link: ip addr, ip link"));
    if (fd)
        findings.push_back(judge("worker: switch answers", answers(fd, job), "missing",
                                 fmt::format("{} port {}", text, INAGG_PORT),
                                 "is inaggd or inagg-ps running there? Is this host behind a port that inaggd --port names? "
                                 "Does a firewall let UDP pass?"));
}

void examine_jobs(const Where &where, json &findings) {
    for (const json &job : read_jobs(where)) {
        const std::string check = fmt::format("switch: job {}", job["job"].get<int>());
        std::vector<int> absent;
        const json shown = read_job(where, job["job"].get<uint16_t>());
        for (const json &member : shown["members"])
            if (member["state"] != "joined" && member["state"] != "elsewhere")
                absent.push_back(member["rank"].get<int>());
        findings.push_back(
            judge(check, absent.empty(), "warn",
                  absent.empty() ? "all ranks have joined" : fmt::format("waits for ranks {}", fmt::join(absent, ", ")),
                  "start them with the same INAGG_JOB and INAGG_SIZE; what keeps one out is in its error and in "
                  "inaggd's log"));
    }
}

void examine_ports(const json &status, bool has_xdp, json &findings) {
    std::set<uint32_t> mtus;
    std::vector<std::string> texts, slow;
    for (const json &port : status["ports"]) {
        const std::string name = port["port"];
        const uint32_t ifindex = if_nametoindex(name.c_str());
        if (!ifindex) // it is in another namespace, or has gone
            continue;
        mtus.insert(inaggd::mtu_of(name));
        texts.push_back(fmt::format("{} {}", name, inaggd::mtu_of(name)));
        if (is_generic(ifindex))
            slow.push_back(name);
        if (!inaggd::has_link(name))
            findings.push_back(finding("switch: link", "warn", name + " has none",
                                       "ip link set dev " + name + " up, and see what is at its other end"));
    }
    if (texts.empty())
        return;
    if (has_xdp)
        findings.push_back(judge("switch: native XDP", slow.empty(), "warn",
                                 slow.empty() ? "no port is in generic mode"
                                              : fmt::format("generic mode, which is slower: {}", fmt::join(slow, ", ")),
                                 "their drivers do not take native XDP: other NICs or a newer kernel may (docs/SUPPORTED.md)"));
    findings.push_back(judge("switch: MTUs", mtus.size() < 2, "warn", fmt::format("{}", fmt::join(texts, ", ")),
                             "a job's packets are as large as its smallest port allows: give all the same"));
}

void examine_slots(const json &status, json &findings) {
    const auto slots = status["slots"].get<uint32_t>(), used = status["slots_used"].get<uint32_t>();
    const uint32_t free = used < slots ? slots - used : 0;
    constexpr uint32_t usual = 128 + 8; // --job-slots, --control-slots
    findings.push_back(judge("switch: slots", free >= usual, "warn", fmt::format("{} of {} are free", free, slots),
                             "the next job of the usual size is refused (FULL): inaggctl job del, or inaggd --slots"));
}

} // namespace

bool is_worker() { return std::getenv("INAGG_SWITCH") || std::getenv("INAGG_RANK") || std::getenv("INAGG_SIZE"); }

void examine_worker(json &findings) {
    if (!is_worker())
        return;
    inagg_options options;
    const bool good = inagg_options_from_env(&options) == INAGG_OK;
    if (!good || !options.switch_address[0]) {
        findings.push_back(finding("worker: environment", "missing", good ? "INAGG_SWITCH is not set" : inagg_message(),
                                   "correct the variable that it names"));
        return;
    }
    findings.push_back(finding("worker: environment", "ok",
                               fmt::format("rank {} of {} in job {}, {}, {}", options.rank, options.size, options.job,
                                           options.algorithm, options.transport)));
    std::istringstream addresses(options.switch_address);
    for (std::string address; std::getline(addresses, address, ',');)
        examine_way(address, options.job, findings);
}

void examine_switch(const Where &where, json &findings) {
    try {
        if (!std::filesystem::exists(where.bpffs + "/jobs") && !inaggd::is_asked(where.run_dir))
            return;
        const json status = read_status(where);
        const bool runs = status["agent"] == "running";
        findings.push_back(judge("switch: agent", runs, "warn", status["agent"],
                                 "jobs go on, but none can begin: start inaggd as before, and it takes the switch over"));
        examine_slots(status, findings);
        examine_ports(status, !inaggd::is_asked(where.run_dir), findings);
        examine_jobs(where, findings);
        examine_drops(where, findings);
        if (runs)
            examine_refusals(where, findings);
    } catch (const std::exception &error) {
        findings.push_back(finding("switch: state", "warn", error.what(),
                                   "run inaggctl doctor as root, with the --bpffs and "
                                   "--run-dir of inaggd"));
    }
}

void examine_network(const std::string &interface, json &findings) {
    findings.push_back(judge(interface + ": link", inaggd::has_link(interface), "warn",
                             inaggd::has_link(interface) ? "up" : "down, or nobody at the other end",
                             "ip link set dev " + interface + " up, and see what is at its other end"));
    Address address = inaggd::address_near(interface, 4);
    if (!address.family)
        address = inaggd::address_near(interface, 6);
    findings.push_back(
        judge(interface + ": address", address.family, "warn", address.family ? address.text() : "none",
              "neither it nor its bridge has one: ip addr add ADDRESS/LENGTH dev " + interface + ", or inaggd --address4"));
}

} // namespace inaggctl
