// SPDX-License-Identifier: BSD-2-Clause
// What the server does with packets: the root of a tree of switches in user space, without sockets.
//
// core/slot.h decides about blocks, inaggd's JobBook about who may join. Its slots are a job's own, two copies of each,
// so what is complete stays until all ranks have it, and the server never forgets while it runs: no RESTORE. With atp
// the switches in front of it are best effort, and it tells the ranks which of their aggregators to use next; what does
// not fit a scale it asks for as floats, and adds these.
#pragma once

#include "endpoint.hpp"
#include "gate.hpp"
#include "job_book.hpp"
#include "token_bucket.hpp"

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace ps {

using inaggd::Time;

// Bytes of memory that a slot of a job takes, in both copies. Raw floats may take as much as all slots of the policy.
inline constexpr uint32_t slot_bytes = 2 * (INAGG_MAX_ELEMENTS * 4 + 32);

// Which aggregators of the switches atp's blocks use: a hash's, moved after collisions; those with the numbers of their
// positions, of every job; those with the numbers of their slots, which no other job's are.
enum class Indices { hashed, linear, partitioned };

class Server {
public:
    // To the book everybody is behind this one.
    static constexpr uint32_t only_port = 1;

    // `policy.server` is set. `boot` names this incarnation, not 0; `random` gives first generations.
    Server(const inaggd::Policy &policy, uint16_t boot, std::function<uint16_t()> random, Outbox &outbox,
           Indices indices = Indices::hashed, inaggd::Keys keys = {});

    // A UDP payload, 4-byte aligned. `congested`: a router on its way marked it so.
    void receive(std::span<const std::byte> packet, const Endpoint &from, bool congested, Time now);
    // Removes jobs whose ranks do not come. Call it about once a second.
    void tick(Time now);
    // Throws inaggd::Error.
    void add_job(const inaggd::JobSpec &spec, Time now);
    // Ends all jobs; their members are told. The calls that are returned, while this lives, tell them again: nobody answers.
    std::vector<std::function<void()>> end();

    // Calls `each(number, stats)` for the jobs that there are.
    template <typename Each> void for_jobs(Each each) const {
        for (const auto &[number, state] : book_.jobs())
            each(number, jobs_.at(number).stats);
    }
    // Of all jobs that have gone, and of packets that belonged to none.
    const inagg_stats &past_stats() const { return past_; }
    const inagg_stats &no_job_stats() const { return no_job_; }
    const inaggd::JobBook &book() const { return book_; }

private:
    struct Slot {
        inagg_slot state{};
        uint16_t marks = 0; // COLLISION and CONGESTION of the block's packets
        uint16_t next = 0;  // atp: aggregator of the position's next block, once this one is complete
    };
    struct Job {
        uint16_t number = 0;
        inagg_job record{};
        std::vector<Slot> slots;                         // position * 2 + pool version
        std::unique_ptr<uint32_t[]> lanes;               // record.elements of each, as they travel
        std::vector<uint32_t> moves;                     // atp: by position, collisions that were acted on
        std::array<Endpoint, INAGG_MAX_RANKS> at{};      // where each rank has joined from
        std::array<uint64_t, INAGG_MAX_RANKS> subtree{}; // ranks behind its switch; 0: it is behind none
        std::vector<Endpoint> everyone;                  // ranks, and switches once each
        // By index of the slot: the floats that each rank has sent, until all have.
        std::unordered_map<std::size_t, std::unique_ptr<float[]>> raw;
        inagg_stats stats{};
        bool heard = false; // a packet of a rank, since tick() last looked
    };
    // A packet while it is handled.
    struct Packet {
        inagg_hdr header;
        std::span<const std::byte> body;
        Endpoint from;
        uint16_t flags; // enum inagg_flag
        inagg_block block;
        Time now;
    };

    // How much is answered that nobody has proven to be of a rank, by the sender's address.
    struct Limits {
        inaggd::TokenBucket strangers{100, 100};
        inaggd::TokenBucket joins{INAGG_ASKS_PER_SECOND, INAGG_ASKS_PER_SECOND}; // as EventLimit
        inaggd::TokenBucket refusals{200, 200};
    };

    void handle(const Packet &packet);
    void membership(const Packet &packet);
    void join(const Packet &packet, const struct inagg_join &join);
    bool has_joined(const Job &job, const Packet &packet, const struct inagg_join &join) const;
    void configure(Job &job, const Packet &packet, const struct inagg_join &join);
    void answer_stranger(const Packet &packet);
    void refuse(const inagg_hdr &header, const struct inagg_join &join, inagg_reason reason, const Endpoint &to,
                uint64_t challenge = 0);
    void apply(const inaggd::Outcome &outcome);
    void renew(uint16_t number);
    void seat(Job &job);
    void remove(uint16_t number);
    std::function<void()> farewell(const inaggd::Displaced &gone) const;
    inagg_hdr refusal(const inagg_hdr &asked, const struct inagg_join &join, inagg_reason reason, const Endpoint &to,
                      uint64_t challenge) const;
    Limits &limits_of(const Endpoint &from);

    int admit(const Job &job, const Packet &packet) const;
    int handle_block(Job &job, const Packet &packet);
    static uint64_t ranks_of(const Job &job, const Packet &packet);
    int contribute(Job &job, Slot &slot, const Packet &packet);
    int decide(const Job &job, Slot &slot, uint64_t ranks, const inagg_block &block) const;
    void fold(Job &job, const Slot &slot, const Packet &packet, int action);
    int request(Job &job, const Slot &slot, const Packet &packet);
    bool reserve_raw(Job &job, const Slot &slot, const inagg_block &block);
    std::size_t raw_bytes() const;
    void sum_raw(const Job &job, const Slot &slot, float *floats) const;
    void complete(Job &job, Slot &slot, const Packet &packet);
    uint16_t next_aggregator(const Job &job, uint32_t position) const;
    std::size_t index_of(const Job &job, const Slot &slot) const { return &slot - job.slots.data(); }
    uint32_t *lanes_of(const Job &job, const Slot &slot) const;
    void send_result(const Job &job, const Slot &slot, const Packet &packet, bool everyone);
    void send_wait(Job &job, const Slot &slot, const Packet &packet, bool everyone);
    void send_block(const Job &job, inagg_hdr &header, std::span<const std::byte> payload, bool everyone);
    inagg_hdr answer(const inagg_hdr &asked, inagg_type type) const;
    inagg_hdr answer(const Job &job, const Packet &packet, inagg_type type, bool everyone) const;
    Job *find(uint16_t number);

    inaggd::JobBook book_;
    inaggd::Gate gate_;
    const uint16_t boot_;
    Outbox &outbox_;
    const Indices indices_;
    std::unordered_map<uint16_t, Job> jobs_;
    inagg_stats past_{}, no_job_{};
    std::array<Limits, 256> limits_{};
    Limits in_all_{.strangers{1000, 1000}, .joins{16000, 16000}, .refusals{2000, 2000}};
    const inagg_mac_key limits_key_ = inaggd::random_key();
};

} // namespace ps
