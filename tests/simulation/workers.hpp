// SPDX-License-Identifier: BSD-2-Clause
// The ranks' side: calls, timers, sleep and death, and what all algorithms do with WAITs and restores.
#pragma once

#include "world.hpp"

#include <inagg/core/worker.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace simulation {

struct Rank {
    inagg_worker worker;
    std::vector<inagg_wslot> slots;
    std::vector<std::optional<uint64_t>> heard; // contributors in the latest WAIT for the slot's block
    std::vector<uint32_t> missing;              // blocks of each tensor that are still to come
    uint32_t called = 0;                        // tensors
    uint32_t finished = 0;                      // tensors
    inagg_boots boots{1, 0, 0, 0};
    Time timer_at = ~0ULL;
    Time asleep_until = 0;
    Time progress_at = 0;
    bool dead = false;
    std::vector<Packet> inbox; // arrived while asleep
    uint16_t generation = first_generation;
    uint32_t first = 0;   // tensor of its generation
    uint32_t lives = 0;   // how often it has started again
    bool returns = false; // dead until the next generation begins
};

class Workers {
public:
    explicit Workers(World &shared);
    virtual ~Workers() = default;

    void start();
    void arrive(uint32_t r, const Packet &packet);
    void wake(uint32_t r);
    void call(uint32_t r);
    void sleep(uint32_t r, Time duration);
    void kill(uint32_t r);
    // A rank that has been excluded starts again, to be in the next generation.
    virtual void come_back(uint32_t) {}

    bool over() const;
    std::string stuck() const;
    void check_end();

protected:
    // Without progress; longer than every sleep and pause. At 30 % loss and the ceiling of the timers, 500
    // ms, each attempt fails with probability one half, and a block may need a request, a restore and a
    // resend in turn. What is given up after some ticks of a clock that is slow takes longer. Over several switches an
    // attempt fails as often as not at each of them.
    Time deadline() const { return (60 * s * std::max(sc.trio.clock_slows, 1u)) << sc.deepest; }
    virtual void receive_result(uint32_t r, inagg_wslot &slot, const Packet &packet) = 0;
    virtual void receive_wait(uint32_t r, inagg_wslot &slot, const Packet &packet);
    // Fills in a RESTORE.
    virtual void load_held(uint32_t r, Packet &packet) = 0;
    // Sends what may be sent.
    virtual void open(uint32_t r, inagg_wslot &slot);
    void open_all(uint32_t r);
    void send_next(uint32_t r, inagg_wslot &slot);
    virtual void receive(uint32_t r, const Packet &packet);
    virtual void act(uint32_t r, inagg_wslot &slot, int action);
    virtual void expire(uint32_t r, inagg_wslot &slot);
    // Results of other blocks show that this one's is lost.
    virtual bool overtaken(uint32_t r, inagg_wslot &slot);
    virtual void rebooted(uint32_t, inagg_wslot &slot) { inagg_worker_rebooted(&slot); }
    // Is there something to be done before the rank calls its next tensor, and in hand?
    virtual bool prepares(uint32_t) { return false; }
    virtual bool is_waiting(const Rank &rank) const { return rank.called > rank.finished; }
    // Rank `r` is not done and has nothing in flight: may it?
    virtual void check_idle(uint32_t r);
    // May a rank call its next tensor, beyond the depth that it drew?
    virtual bool may_call(const Rank &) const { return true; }
    // Rank `r` has waited in vain for the block of `slot`: may it?
    virtual void check_deadline(uint32_t r, const inagg_wslot &slot);

    // Result in hand, `slot` is idle with the next block: what follows from it.
    void accepted(uint32_t r, inagg_wslot &slot, uint32_t block);
    void expire_overtaken(uint32_t r);
    void finish_block(uint32_t r, uint32_t block);
    void send(uint32_t r, uint32_t block, uint8_t type, bool everyone, bool repeated = true);
    uint32_t index_of(uint32_t block) const { return block & (sc.slots - 1); }
    const inagg_wslot *oldest(const Rank &rank) const;
    bool done(const Rank &rank) const { return rank.finished == sc.tensors.size(); }
    // A rank of a generation that has begun, at the first block of this tensor.
    void begin(Rank &rank, uint32_t tensor);
    Content content_of(uint32_t r) const { return world.content.of(ranks[r].generation); }
    void notice_boot(uint32_t r, uint16_t heard);
    // What rank `r` accepts is the sum of all ranks.
    void check_result(uint32_t r, uint32_t block, const Packet &packet);
    // Nobody is more than one phase behind.
    void check_lag(uint32_t index);

    World &world;
    const Scenario &sc;
    const inagg_job &job;
    std::vector<Rank> ranks;

private:
    void load_raw(uint32_t r, Packet &packet) const;
    void arm(uint32_t r);
    uint32_t start_of(const Rank &rank, size_t tensor) const;
    uint32_t tensor_of(const Rank &rank, uint32_t block) const;
    uint64_t beside_killed() const;
    bool expired(const Rank &rank) const;
    bool is_over(uint32_t r) const;
};

std::unique_ptr<Workers> make_switchml_workers(World &world);
std::unique_ptr<Workers> make_trio_workers(World &world);
std::unique_ptr<Workers> make_canary_workers(World &world);

} // namespace simulation
