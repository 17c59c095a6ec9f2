// SPDX-License-Identifier: BSD-2-Clause
// A switch in user space: core/slot.h, core/record.h and core/job.h over a UDP socket and a thread, or over whatever `emit`
// and receive() are. Tests run against it without privileges, and it drops packets, forgets slots and
// restarts on demand.
#pragma once

#include <inagg/core/job.h>
#include <inagg/core/presence.h>
#include <inagg/core/record.h>
#include <inagg/core/slot.h>
#include <inagg/wire.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace inagg {

// The address of one end of a packet.
struct Endpoint {
    sockaddr_storage address{};
    socklen_t length = 0;
};

struct SoftwareSwitchOptions {
    uint16_t elements = INAGG_MAX_ELEMENTS; // most 32-bit elements per packet
    uint32_t slots = 16, control_slots = 4; // of each job
    double loss = 0;                        // probability, of packets in and of packets out
    double duplication = 0;                 // likewise
    double corruption = 0;                  // one bit is turned over
    double reordering = 0;                  // of packets out: the next one, or a millisecond, goes first
    uint64_t seed = 1;
    uint32_t buckets = 64;           // trio: of each job, a power of two
    uint32_t most_open = UINT32_MAX; // trio: blocks of a job at once
    uint16_t window_cap = 0;         // panama: in each RESULT
    uint16_t buffers_cap = 0;        // panama: that of its share of buffers, which it tells only whom it refuses; 0: none
    bool integers = false;           // panama: it adds no floats, as a switch in P4
    bool big_endian = false;         // it adds elements in network byte order, as Tofino
    // panama: has a packet of this block met a long queue?
    std::function<bool(uint32_t)> congested{};
    double collision = 0;       // canary: probability that a contribution finds no room to be summed
    uint32_t sum_wait_us = 500; // canary: a sum waits so long for more
    // A switch that lies: changes what it sends to a rank, before the checksums are made.
    std::function<void(inagg_hdr &, std::span<std::byte>, int)> change{};
    // Sees what comes to it, lost or not.
    std::function<void(const inagg_hdr &, std::span<const std::byte>)> watch{};
    // Does this packet to the switch get lost?
    std::function<bool(const inagg_hdr &)> miss{};
    // Does this packet to this rank get lost?
    std::function<bool(const inagg_hdr &, int)> lose{};
    Endpoint group{};  // length not 0: what is for all ranks goes there, once
    bool ipv6 = false; // listen on ::1 instead of an address of its own in 127.0.0.0/8
    // Takes the packets that it sends. Then it has no socket and no thread, and gets packets by receive().
    std::function<void(std::span<const std::byte>, const Endpoint &)> emit{};
    std::function<uint64_t()> clock{}; // ns; else the machine's
};

struct SoftwareSwitchCounters {
    uint64_t additions = 0, completions = 0, replies = 0, waits = 0, restores = 0, dropped = 0;
    uint64_t degraded = 0, recoveries = 0; // trio
    uint64_t refused[INAGG_R_CAPACITY] = {};
    uint64_t partials = 0, collisions = 0; // canary: sums of several ranks, contributions not summed
    uint32_t most_open = 0;                // data blocks that had some rank's elements at one time
};

class SoftwareSwitch {
public:
    explicit SoftwareSwitch(const SoftwareSwitchOptions &options = {});
    ~SoftwareSwitch();
    SoftwareSwitch(const SoftwareSwitch &) = delete;

    const std::string &address() const { return address_; }
    // A packet arrives.
    void receive(std::span<std::byte> bytes, const Endpoint &from);
    // Time has passed: called by the thread that it may have.
    void sweep();
    // Forget what the slots hold, as eviction would; the ranks are not told.
    void clear_slots();
    // The same, and become another incarnation.
    void reboot();
    // Neither hear nor say anything any more.
    void silence();
    // Tell the members of `job` that it ended.
    // `above`: a server or switch that has said so, as in struct inagg_refusal.
    void end_job(uint16_t job, inagg_reason reason, std::optional<std::array<uint8_t, 16>> above = {});
    // The other ranks of `job` go on without this one.
    void exclude(uint16_t job, uint16_t rank);
    SoftwareSwitchCounters counters();
    // From now on.
    void reset_most_open();
    void set_most_open(uint32_t blocks); // trio: of all jobs

private:
    struct Member {
        uint64_t nonce = 0;
        Endpoint endpoint;
        bool left = false;
    };
    struct Slot {
        inagg_slot state{};
        std::vector<uint32_t> lanes;
        std::map<uint16_t, std::vector<float>> floats; // panama: of each rank
        std::vector<std::byte> result;                 // as on the wire, once complete
        inagg_hdr header{};                            // trio: of a contribution
    };
    // canary: what a switch remembers of a block (§3.1.1).
    struct Descriptor {
        Slot sum; // of those that have not gone on
        uint64_t children = 0, gone = 0;
        uint64_t opened_ns = 0;
        inagg_hdr header{}; // of a contribution
    };
    using DescriptorKey = std::array<uint32_t, 3>; // position, block, attempt
    struct Job {
        inagg_job record{};
        std::vector<Member> members;
        std::vector<Slot> slots; // slot * 2 + pool version; trio: by record
        // trio
        std::vector<inagg_record> records;
        std::vector<inagg_floor> floors; // by position
        inagg_policy policy{};
        uint32_t open = 0;
        uint64_t swept_ns = 0;
        uint64_t patience_ns = 0; // with a silent rank; 0: without end
        inagg_attendance attendance{};
        inagg_presence presence{};
        std::map<uint16_t, Member> next; // who goes on to the next generation, or waits to come back in it
        // canary
        std::map<DescriptorKey, Descriptor> descriptors;
    };
    // A packet while it is handled.
    struct Packet {
        inagg_hdr header;
        std::span<const std::byte> body;
        Endpoint from;
    };

    uint64_t now_ns() const;
    void open_socket(bool ipv6);
    void run();
    void arrived(std::span<const std::byte> bytes, const Endpoint &from);
    void handle(const Packet &packet);
    int handle_block(Job &job, const Packet &packet);
    int contribute(Job &job, Slot &slot, const inagg_block &block, const Packet &packet);
    int restore(Job &job, Slot &slot, const inagg_block &block, const Packet &packet);
    int request(Job &job, Slot &slot, const inagg_block &block, const Packet &packet);
    // trio
    int handle_record(Job &job, const inagg_block &block, const Packet &packet);
    int contribute(Job &job, const inagg_block &block, const Packet &packet);
    int restore(Job &job, const inagg_block &block, const Packet &packet);
    int request(Job &job, const inagg_block &block, const Packet &packet);
    void decide(Job &job, uint32_t index);
    void reply(Job &job, uint32_t index, int rank);
    void tell(Job &job, const inagg_record *record, const Packet &packet, int rank);
    // canary: software_canary.cpp
    int handle_canary(Job &job, const inagg_block &block, const Packet &packet);
    int gather(Job &job, const inagg_block &block, const Packet &packet);
    bool merge(Job &job, Descriptor &descriptor, const inagg_block &block, const Packet &packet);
    void send_sum(Job &job, Descriptor &descriptor);
    void send_due_sums(Job &job, uint64_t now);
    void scatter(Job &job, const inagg_block &block, const Packet &packet);
    void pass_on(const Job &job, const Packet &packet, uint16_t more_flags);

    void join(const Packet &packet);
    void leave(const Packet &packet);
    void refuse(const Packet &packet, const Endpoint &to, inagg_reason reason);
    Job &create(uint16_t number, const struct inagg_join &asked);
    void restart(Job &job);
    static void note_heard(Job &job, const inagg_hdr &header);
    static void look_for_silent(Job &job, uint64_t now);
    bool is_put_off(Job &job, const Packet &packet, const Member &member, uint8_t flags);
    static void forget(Job &job);
    static void turn(const Job &job, void *elements, std::size_t bytes);
    void fold(Job &job, Slot &slot, const inagg_block &block, bool first, std::span<const std::byte> body);
    static bool is_open(const Slot &slot);
    static uint32_t count_open(const Job &job);
    void note_open(const Job &job);
    bool may_begin(Job &job, const Slot &slot, const inagg_block &block) const;
    void complete(Job &job, Slot &slot);
    void send_result(const Job &job, const Slot &slot, const inagg_hdr &asked, int rank, uint16_t epoch = 0);
    void send_wait(const Job &job, uint64_t seen, const Packet &packet, int rank, uint16_t epoch = 0, uint16_t cap = 0);
    void send_to(const Job &job, inagg_hdr header, std::span<const std::byte> body, int rank);
    void transmit(inagg_hdr header, std::span<const std::byte> body, const Endpoint &to, bool checked = true);
    void emit(std::span<const std::byte> bytes, const Endpoint &to);
    void release_held();
    bool chance(double probability);

    const SoftwareSwitchOptions options_;
    std::string address_;
    int socket_ = -1;
    std::mutex mutex_; // over everything below
    std::map<uint16_t, Job> jobs_;
    SoftwareSwitchCounters counters_;
    std::mt19937_64 random_;
    uint16_t boot_ = 1;
    std::vector<std::pair<std::vector<std::byte>, Endpoint>> held_; // packets that others overtake
    bool silent_ = false;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

} // namespace inagg
