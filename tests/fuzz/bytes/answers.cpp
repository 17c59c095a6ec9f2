// SPDX-License-Identifier: BSD-2-Clause
// What a rank takes from a switch that lies: CONFIG and the answers to its blocks, into the window of core/worker.h. A model
// that knows only what was sent says what the window may do.
#include "bytes.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/packet.h>
#include <inagg/core/worker.h>

namespace {

using fuzz::Bytes;
using fuzz::need;

constexpr uint16_t offered = 352;
constexpr uint32_t most_slots = 16;

inagg_job_config asked(Bytes &bytes) {
    inagg_job_config job{};
    job.job = 7;
    job.size = static_cast<uint16_t>(1 + bytes.below(INAGG_MAX_RANKS));
    job.rank = static_cast<uint16_t>(bytes.below(job.size));
    job.elements = offered;
    job.algorithm = static_cast<uint8_t>(bytes.below(5));
    return job;
}

// True if the job can go on with what a CONFIG has said.
bool configured(inagg_job_config &job, Bytes &bytes) {
    const inagg_job_config before = job;
    inagg_hdr header{};
    header.generation = bytes.take<uint16_t>();
    header.boot = bytes.take<uint16_t>();
    auto config = bytes.take<inagg_config>();
    if (bytes.below(8)) { // mostly one that can be
        config.size = inagg_swap16(job.size);
        config.algorithm = job.algorithm;
        config.elements = inagg_swap16(static_cast<uint16_t>(INAGG_CHUNK * (1 + bytes.below(11))));
        config.slots = inagg_swap32(1u << bytes.below(5));
        config.control_slots = inagg_swap32(1);
    }
    if (inagg_config_accept(&job, &header, &config))
        return false;
    need(job.job == before.job && job.rank == before.rank && job.size == before.size, "a rank stays who it is");
    need(job.elements && job.elements <= offered && job.elements % INAGG_CHUNK == 0, "packets are no larger than offered");
    need(job.slots && job.slots <= INAGG_MAX_SLOTS && !(job.slots & (job.slots - 1)), "the window is a power of two");
    return job.slots <= most_slots;
}

// The window beside what the model knows of it: which block of each slot is in flight.
class Window {
public:
    explicit Window(const inagg_job_config &job) : job_(job) {
        inagg_worker_init(&worker_, job.slots, INAGG_RTO_FLOOR_NS);
        worker_.limit = 100'000;
        for (uint32_t slot = 0; slot < job.slots; slot++) {
            inagg_wslot_init(&slots_[slot], slot);
            next_[slot] = slot;
        }
    }

    void send(uint32_t slot) {
        slot %= job_.slots;
        inagg_wslot &s = slots_[slot];
        const bool opened = inagg_worker_open(&worker_, &s, now_) != 0;
        need(!opened || (!flying_[slot] && s.block == next_[slot]), "a slot has one block in flight, each in its turn");
        flying_[slot] |= opened;
    }

    void wait(Bytes &bytes) {
        now_ += 1 + bytes.take<uint32_t>() % 600'000'000u;
        for (uint32_t slot = 0; slot < job_.slots; slot++)
            if (flying_[slot] && slots_[slot].due_ns <= now_)
                inagg_worker_timeout(&worker_, &slots_[slot], now_);
    }

    void answer(Bytes &bytes) {
        inagg_hdr header = answer_header(bytes);
        const uint32_t block = inagg_swap32(header.block), bytes_behind = payload_of(bytes, header);
        if (inagg_answer_admits(&job_, &header) || inagg_block_admits(&job_, &worker_, 0, &header, bytes_behind))
            return;
        const uint32_t slot = inagg_slot_index(&worker_, block);
        need(slot < job_.slots && slot == inagg_swap32(header.slot), "an answer is for a slot of the window");
        const inagg_block_meta meta = inagg_hdr_meta(&header);
        if (inagg_hdr_type(&header) == INAGG_RESULT) {
            need(bytes_behind == inagg_block_bytes(&meta) && bytes_behind <= job_.elements * 4u, "a result has its length");
            need(!(meta.contributors & ~inagg_all_ranks(job_.size)), "a result is of ranks of the job");
            take(slot, block);
        } else if (inagg_hdr_type(&header) == INAGG_WAIT) {
            inagg_worker_wait(&worker_, &slots_[slot], block, meta.contributors, job_.rank, now_);
            check_unmoved(slot);
        }
    }

    void reboot() {
        for (uint32_t slot = 0; slot < job_.slots; slot++)
            inagg_worker_rebooted(&slots_[slot]);
    }

    void check() const {
        need(worker_.rto_ns >= worker_.floor_ns && worker_.rto_ns <= INAGG_RTO_CEILING_NS, "time-outs stay in bounds");
        for (uint32_t slot = 0; slot < job_.slots; slot++) {
            need(slots_[slot].block == next_[slot], "slots go on by results only");
            need((slots_[slot].state == INAGG_WSLOT_SENT) == flying_[slot], "what was sent is in flight until its result");
        }
    }

private:
    inagg_hdr answer_header(Bytes &bytes) {
        inagg_hdr header{};
        const uint8_t how = bytes.take<uint8_t>();
        inagg_job_config told = job_;
        if (how & 1)
            told.generation = bytes.take<uint8_t>();
        const uint8_t types[] = {INAGG_RESULT, INAGG_WAIT, INAGG_BLOCK_FAILED, bytes.take<uint8_t>()};
        inagg_hdr_start(&header, &told, types[how >> 1 & 3] & 15);
        const uint32_t slot = bytes.below(job_.slots);
        const uint32_t block = how & 8 ? next_[slot] + job_.slots * (bytes.below(5) - 2) : next_[slot];
        inagg_hdr_set_block(&header, &worker_, 0, block);
        const uint64_t all = inagg_all_ranks(job_.size);
        const uint64_t in = how & 16 ? bytes.take<uint64_t>() : all;
        header.contributors = inagg_swap64(in);
        header.count = inagg_swap16(static_cast<uint16_t>(inagg_count_ranks(in)));
        header.elements = inagg_swap16(how & 32 ? bytes.take<uint16_t>() : job_.elements);
        if (how & 64)
            header.level_flags ^= bytes.take<uint16_t>();
        inagg_hdr_seal(&header);
        if (how & 128)
            reinterpret_cast<uint8_t *>(&header)[bytes.below(sizeof header)] ^= bytes.take<uint8_t>();
        return header;
    }

    static uint32_t payload_of(Bytes &bytes, const inagg_hdr &header) {
        const inagg_block_meta meta = inagg_hdr_meta(&header);
        const bool whole = inagg_hdr_type(&header) == INAGG_RESULT && bytes.below(8);
        return whole ? inagg_block_bytes(&meta) : bytes.take<uint16_t>();
    }

    void take(uint32_t slot, uint32_t block) {
        const bool wanted = flying_[slot] && block == next_[slot];
        need((inagg_worker_result(&worker_, &slots_[slot], block, 0, now_) == INAGG_W_ACCEPT) == wanted,
             "the result of what is in flight counts, once");
        if (!wanted)
            return;
        flying_[slot] = false;
        next_[slot] += job_.slots;
    }

    void check_unmoved(uint32_t slot) const { need(slots_[slot].block == next_[slot], "who waits stays"); }

    const inagg_job_config job_;
    inagg_worker worker_{};
    inagg_wslot slots_[most_slots]{};
    uint32_t next_[most_slots]{};
    bool flying_[most_slots]{};
    uint64_t now_ = 1'000'000'000;
};

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Bytes bytes(data, size);
    inagg_job_config job = asked(bytes);
    if (!configured(job, bytes))
        return 0;
    Window window(job);
    while (!bytes.empty()) {
        switch (bytes.below(8)) {
        case 0:
        case 1:
        case 2:
            window.send(bytes.take<uint8_t>());
            break;
        case 3:
            window.wait(bytes);
            break;
        case 4:
            window.reboot();
            break;
        default:
            window.answer(bytes);
        }
        window.check();
    }
    return 0;
}
