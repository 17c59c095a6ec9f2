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
    uint32_t tensor_of(uint32_t block) const;
    uint64_t beside_killed() const;
    bool expired(const Rank &rank) const;

    std::vector<uint32_t> tensor_start;
};

std::unique_ptr<Workers> make_switchml_workers(World &world);
std::unique_ptr<Workers> make_trio_workers(World &world);
std::unique_ptr<Workers> make_canary_workers(World &world);

} // namespace simulation
