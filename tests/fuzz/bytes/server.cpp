// SPDX-License-Identifier: BSD-2-Clause
// inagg-ps, packet by packet: headers from fields or as they come, sealed or not, from hosts that may and may not.
#include "bytes.hpp"

#include "server.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/packet.h>

#include <arpa/inet.h>
#include <spdlog/spdlog.h>

#include <set>

namespace {

using namespace ps;
using fuzz::Bytes;
using fuzz::need;
using inaggd::Time;

constexpr uint16_t boot = 0x1234, job_number = 7;

Endpoint host(uint8_t number) {
    Endpoint at{.address = *inaggd::Address::parse("10.77.0.10"), .port = htons(5000)};
    at.address.bytes[3] = static_cast<uint8_t>(10 + number % 6);
    if (number % 6 == 5)
        at.port = htons(INAGG_PORT); // a switch
    return at;
}

// Nobody gets more than what a switch may say, nor without having spoken.
class Ear final : public Outbox {
public:
    void send(const inagg_hdr &header, std::span<const std::byte> payload, std::span<const Endpoint> to) override {
        need(inagg_hdr_intact(&header), "headers are sealed");
        need(inagg_hdr_version(&header) == INAGG_WIRE_VERSION && inagg_swap16(header.boot) == boot, "they are this server's");
        need(payload.size() <= INAGG_MAX_ELEMENTS * 4, "packets fit");
        for (const Endpoint &one : to)
            need(one.port && known.contains(one.address), "answers go to who has spoken");
    }
    std::set<inaggd::Address> known{};
};

struct Scene {
    Ear ear{};
    Server server;
    Time now = Time{} + std::chrono::hours(1);

    explicit Scene(const inaggd::Policy &policy)
        : server(
              policy, boot, [] { return uint16_t{41}; }, ear) {}

    void deliver(std::vector<uint32_t> &words, const Endpoint &from, bool congested) {
        ear.known.insert(from.address);
        server.receive(std::as_bytes(std::span(words)), from, congested, now);
    }
    uint16_t generation(uint16_t number) const {
        const auto job = server.book().jobs().find(number);
        return job == server.book().jobs().end() ? 0 : job->second.record.generation;
    }
};

std::vector<uint32_t> sealed(inagg_hdr header, const std::vector<uint32_t> &body, bool checked) {
    if (checked)
        inagg_hdr_seal_checked(&header, inagg_payload_checksum(body.data(), static_cast<uint32_t>(body.size() * 4)));
    else
        inagg_hdr_seal(&header);
    std::vector<uint32_t> words(sizeof header / 4);
    std::memcpy(words.data(), &header, sizeof header);
    words.insert(words.end(), body.begin(), body.end());
    return words;
}

void join(Scene &scene, Bytes &bytes) {
    const uint8_t who = bytes.take<uint8_t>(), how = bytes.take<uint8_t>();
    inagg_job_config config{};
    config.job = static_cast<uint16_t>(job_number + (who >> 6 & 1));
    config.rank = who & 3;
    config.size = how & 1 ? bytes.take<uint16_t>() : 3;
    config.elements = how & 2 ? bytes.take<uint16_t>() : 64;
    config.algorithm = how & 4 ? bytes.take<uint8_t>() : uint8_t{INAGG_ATP};
    config.checked = how >> 3 & 1;
    inagg_hdr header;
    inagg_hdr_start(&header, &config, static_cast<uint8_t>(how & 16 ? INAGG_LEAVE : INAGG_JOIN));
    if (how & 16)
        header.generation = inagg_swap16(scene.generation(config.job));
    struct inagg_join body;
    inagg_join_fill(&body, &config, 1000u + config.rank + (how >> 7), 5000);
    std::vector<uint32_t> words(sizeof body / 4);
    std::memcpy(words.data(), &body, sizeof body);
    std::vector<uint32_t> packet = sealed(header, words, true);
    scene.deliver(packet, host(how & 32 ? who >> 2 : static_cast<uint8_t>(config.rank)), false);
}

// As a rank of the job sends it, but for what the bytes change.
void block(Scene &scene, Bytes &bytes) {
    const uint8_t who = bytes.take<uint8_t>(), how = bytes.take<uint8_t>(), number = bytes.take<uint8_t>();
    inagg_job_config config{};
    config.job = job_number;
    config.rank = who & 3;
    config.size = 3;
    config.generation = scene.generation(job_number);
    config.boot = boot;
    inagg_hdr header;
    inagg_hdr_start(&header, &config, how & 1 ? bytes.take<uint8_t>() & 15 : INAGG_CONTRIBUTION);
    header.block = inagg_swap32(number);
    header.slot = inagg_swap32(how & 2 ? bytes.take<uint8_t>() : number % 4u);
    uint16_t flags = number / 4 & 1 ? INAGG_F_VERSION : 0;
    if (how & 4)
        flags = bytes.take<uint16_t>();
    header.level_flags |= inagg_swap16(flags);
    const auto chunks = static_cast<uint16_t>(bytes.below(4));
    header.elements = inagg_swap16(how & 8 ? bytes.take<uint16_t>() : static_cast<uint16_t>(chunks * INAGG_CHUNK));
    header.dtype_op = how & 16 ? bytes.take<uint8_t>() : static_cast<uint8_t>(INAGG_WIRE_INT32 << 4);
    if (how & 32)
        header.contributors = bytes.take<uint64_t>();
    std::vector<uint32_t> body(chunks * INAGG_CHUNK, bytes.take<uint32_t>());
    std::vector<uint32_t> words = sealed(header, body, how & 64);
    scene.deliver(words, host(who & 128 ? who >> 2 : static_cast<uint8_t>(config.rank)), how & 128);
}

void anything(Scene &scene, Bytes &bytes) {
    const std::vector<uint8_t> raw = bytes.some(bytes.take<uint8_t>());
    std::vector<uint32_t> words(raw.size() / 4);
    if (!words.empty())
        std::memcpy(words.data(), raw.data(), words.size() * 4);
    scene.deliver(words, host(bytes.take<uint8_t>()), false);
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    spdlog::set_level(spdlog::level::off);
    Bytes bytes(data, size);
    inaggd::Policy policy{.job_slots = 4, .job_control = 2, .mtu = 65536, .server = true};
    policy.children = {{Server::only_port, host(5).address}};
    Scene scene(policy);
    while (!bytes.empty())
        switch (bytes.below(8)) {
        case 0:
        case 1:
            join(scene, bytes);
            break;
        case 2:
            anything(scene, bytes);
            break;
        case 3:
            scene.now += std::chrono::milliseconds(bytes.take<uint8_t>() * 20);
            scene.server.tick(scene.now);
            break;
        default:
            block(scene, bytes);
        }
    return 0;
}
