// SPDX-License-Identifier: BSD-2-Clause
// Trio-ML (§4, §5, Appendix A.1) in one switch: records of blocks in buckets that all jobs share, decided once, with or
// without stragglers.  The rules, and why they hold, are in inagg/core/record.h and bpf/trio.h: what is here follows them
// function by function.
#include <core.p4>
#include <v1model.p4>

#include "../shared/constants.p4"
#include "../shared/headers.p4"

const bit<8> ALGORITHM = INAGG_TRIO;
#define CLOCK

#include "state.p4"
#include "parser.p4"
#include "admission.p4"
#include "elements.p4"
#include "slot.p4"
#include "tree.p4"
#include "clock.p4"

// struct inagg_record around its slot.  Index: 4 * bucket + way.
struct record_t {
    bit<32> job;	// row
    bit<16> number;	// of the job
    bit<8>  era;
    bit<16> epoch;
    bit<1>  stream;
    bit<8>  flags;	// enum inagg_record_flag
    bit<16> age;
    bit<64> absent;
}
register<bit<32>>(SLOTS * 2) record_job;
register<bit<16>>(SLOTS * 2) record_number;
register<bit<8>>(SLOTS * 2) record_era;
register<bit<16>>(SLOTS * 2) record_epoch;
register<bit<1>>(SLOTS * 2) record_stream;
register<bit<8>>(SLOTS * 2) record_flags;
register<bit<16>>(SLOTS * 2) record_age;
register<bit<64>>(SLOTS * 2) record_absent;

action load_record(in bit<32> key, out record_t r) {
    record_job.read(r.job, key);
    record_number.read(r.number, key);
    record_era.read(r.era, key);
    record_epoch.read(r.epoch, key);
    record_stream.read(r.stream, key);
    record_flags.read(r.flags, key);
    record_age.read(r.age, key);
    record_absent.read(r.absent, key);
}

action store_record(in bit<32> key, in record_t r) {
    record_job.write(key, r.job);
    record_number.write(key, r.number);
    record_era.write(key, r.era);
    record_epoch.write(key, r.epoch);
    record_stream.write(key, r.stream);
    record_flags.write(key, r.flags);
    record_age.write(key, r.age);
    record_absent.write(key, r.absent);
}

// struct inagg_floor, by slot of a job; the agent writes them when a generation begins (inagg_floor_at_start()).
register<bit<32>>(SLOTS * 2) floor_block;
register<bit<16>>(SLOTS * 2) floor_generation;
register<bit<16>>(SLOTS * 2) floor_epoch;
register<bit<1>>(SLOTS * 2) floor_known;

// How many records of each job are open.
register<bit<32>>(INAGG_STATS_NO_JOB) open_records;

// What a clock packet does: bits of its source address.
const bit<8> CLOCK_SWEEPS = 1;
const bit<8> CLOCK_DECIDES = 2;

control Clock(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    slot_t slot;
    record_t r;

    apply {
        meta.slot_key = (bit<32>)hdr.punt.port;
        meta.clock = hdr.punt.src[7:0];
        load_slot(meta.slot_key, slot);
        load_record(meta.slot_key, r);
        if (slot.flags & INAGG_SLOT_LIVE != 0) {
            become_tick(hdr, meta, slot, r.number, r.stream, r.epoch);
            lowest_rank(slot.seen, hdr.inagg.source);
        }
    }
}

// A bucket, for a block: where its record is, and where there would be room for one.
struct bucket_t {
    bool    found;
    bit<32> record;
    bool    has_room;
    bit<32> room;	// inagg_record_room()
    bool    has_later;
    bit<32> later;	// inagg_record_later()
    bit<8>  fresh;	// open, and not recovering
}

control LookAtBucket(in inagg_h h, in metadata_t meta, in bit<32> first, out bucket_t bucket) {
    bit<8> slot_flag;
    bit<32> block;
    bit<16> generation;
    bit<32> job;
    bit<1> stream;
    bit<8> flags;
    bit<16> age;
    bit<32> best_age;
    bit<32> latest;

    action load_way(bit<32> key) {
        slot_flags.read(slot_flag, key);
        slot_block.read(block, key);
        slot_generation.read(generation, key);
        record_job.read(job, key);
        record_stream.read(stream, key);
        record_flags.read(flags, key);
        record_age.read(age, key);
    }

#define LOOK_AT_WAY(way) \
    load_way(first + way); \
    is_live = slot_flag & INAGG_SLOT_LIVE != 0; \
    is_open = is_live && slot_flag & INAGG_SLOT_COMPLETE == 0; \
    is_recovering = flags & INAGG_RECORD_RECOVERING != 0; \
    is_streams = job == meta.row && stream == meta.stream && generation == h.generation; \
    if (is_live && is_streams && block == h.block) { \
        bucket.found = true; \
        bucket.record = first + way; \
    } \
    age_here = is_live ? (bit<32>)age : (bit<32>)INAGG_MOST_SWEEPS + 1; \
    if (!is_open && (!bucket.has_room || age_here > best_age)) { \
        bucket.has_room = true; \
        bucket.room = first + way; \
        best_age = age_here; \
    } \
    if (is_open && is_recovering && is_streams && (int<32>)(latest - block) < 0) { \
        bucket.has_later = true; \
        bucket.later = first + way; \
        latest = block; \
    } \
    if (is_open && !is_recovering) { \
        bucket.fresh = bucket.fresh + 1; \
    }

    apply {
        bool is_live;
        bool is_open;
        bool is_recovering;
        bool is_streams;
        bit<32> age_here;
        bucket = { false, 0, false, 0, false, 0, 0 };
        best_age = 0;
        latest = h.block;
        LOOK_AT_WAY(0)
        LOOK_AT_WAY(1)
        LOOK_AT_WAY(2)
        LOOK_AT_WAY(3)
    }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    slot_t slot;
    record_t r;
    bucket_t bucket;
    bit<16> epoch_now;
    bit<8> era;
    bit<32> open;
    bit<32> floor_key;
    bit<32> floor;
    bool floor_is_known;
    bit<16> lost_epoch;
    FindPosition() find_position;
    LookAtBucket() look_at_bucket;
    CompareWithSlot() compare;
    FoldIntoSlot() fold;
    DressClock() dress;

    // When a job's blocks are decided without all ranks, and how many it may have open: struct inagg_policy.
    bit<16> expiry_sweeps = 0;
    bit<16> quorum = 0;
    bit<32> most_open = 0;
    action set_policy(bit<16> sweeps, bit<16> ranks, bit<32> blocks) {
        expiry_sweeps = sweeps;
        quorum = ranks;
        most_open = blocks;
    }
    table policies {
        key = { hdr.inagg.job: exact; }
        actions = { set_policy; NoAction; }
        const default_action = NoAction;
        size = 64;
    }

    action refuse(bit<8> reason) {
        meta.reason = reason;
    }
    action wait(way_t way, bit<64> who, bit<16> epoch) {
        meta.way = way;
        write_wait(hdr, meta, who, 0);
        hdr.inagg.switch_id = epoch;
    }
    action tell(way_t way) {
        count(meta.row, STAT_WAITS, 1);
        wait(way, slot.seen | r.absent, r.epoch);
    }
    action send_sum(way_t way) {
        meta.way = way;
        write_sum(hdr, meta, slot, INAGG_RESULT,
                  (bit<12>)(r.flags & INAGG_RECORD_DEGRADED) << 2);
        hdr.inagg.switch_id = r.epoch;
    }
    action load_sum(way_t way) {
        meta.move = move_t.load;
        send_sum(way);
    }
    // inagg_record_decide()
    action decide() {
        slot.flags = slot.flags | INAGG_SLOT_COMPLETE;
        r.age = 0;
        r.flags = r.flags | (slot.seen == meta.everyone ? 8w0 : INAGG_RECORD_DEGRADED);
        open = open - 1;
    }
    action count_decision() {
        count(meta.row, STAT_COMPLETIONS, 1);
        count(meta.row, STAT_DEGRADED, (bit<64>)(r.flags & INAGG_RECORD_DEGRADED) >> 3);
    }
    action load_floor() {
        bit<16> generation;
        bit<1> known;
        floor_key = meta.slot_key >> 1;
        floor_block.read(floor, floor_key);
        floor_generation.read(generation, floor_key);
        floor_epoch.read(lost_epoch, floor_key);
        floor_known.read(known, floor_key);
        floor_is_known = known == 1 && generation == meta.generation;
    }
    // inagg_record_open() of a block that somebody may have the result of: a floor that is lost notes when.
    action open_recovering() {
        take_slot(hdr.inagg, slot);
        bit<16> tick = epoch_now + 2 * (bit<16>)era;
        bit<16> epoch = tick == 0 ? 16w1 : tick;
        r = { meta.row, hdr.inagg.job, era, epoch, meta.stream, INAGG_RECORD_RECOVERING, 0, 0 };
    }
    action open_fresh() {
        take_slot(hdr.inagg, slot);
        r = { meta.row, hdr.inagg.job, era, 0, meta.stream, 0, 0, 0 };
        floor_block.write(floor_key, hdr.inagg.block);
    }

    apply {
        bit<4> type = hdr.inagg.type;
        bit<64> rank = 64w1 << (bit<8>)hdr.inagg.source;
        bit<16> excluded;
        count_ranks(meta.everyone & ~meta.here, excluded);
        era = (bit<8>)excluded;
        epoch_now = (bit<16>)(standard.ingress_global_timestamp >> 12);
        meta.move = move_t.none;
        slot.elements = 0;
        policies.apply();
        find_position.apply(hdr, meta);
        open_records.read(open, meta.row);
        bit<32> window = meta.stream == 1 ? meta.control_slots : meta.slots;
        bit<32> position = hdr.inagg.block & (window - 1);
        if (meta.stream == 1) {
            position = meta.slots + position;
        }

        if (type == INAGG_TICK) {
            load_slot(meta.slot_key, slot);
            load_record(meta.slot_key, r);
            bit<16> age = r.age;
            bool is_open = slot.flags & INAGG_SLOT_COMPLETE == 0;
            bool is_recovering = r.flags & INAGG_RECORD_RECOVERING != 0;
            bool is_whole = r.flags & INAGG_RECORD_WHOLE != 0;
            bit<64> heard = is_whole ? slot.seen : slot.seen | r.absent;
            bool is_full = slot.seen != 0 && heard & meta.here == meta.here;
            if (slot.generation != meta.generation) {
                slot_flags.write(meta.slot_key, 0);
                return;
            }
            // inagg_record_sweep()
            if (meta.clock & CLOCK_SWEEPS != 0) {
                if (r.age < INAGG_MOST_SWEEPS) {
                    r.age = r.age + 1;
                }
                bool is_outdated = is_recovering && r.era != era;
                bool is_given_up = is_recovering && !is_full && age >= INAGG_RECOVERY_SWEEPS &&
                                   (slot.seen == 0 || (int<16>)(epoch_now - r.epoch) >= (int<16>)INAGG_RECOVERY_TICKS);
                if (is_open && (is_outdated || is_given_up)) {
                    slot.flags = 0;
                    open_records.write(meta.row, open - 1);
                } else if (is_open && (is_full || (!is_recovering && !is_whole && slot.seen != 0 && expiry_sweeps != 0 &&
                                                   age >= expiry_sweeps))) {
                    r.flags = r.flags | INAGG_RECORD_EXPIRED;
                }
            }
            // inagg_record_finish()
            if (meta.clock & CLOCK_DECIDES != 0 && slot.flags & INAGG_SLOT_LIVE != 0 && is_open &&
                r.flags & INAGG_RECORD_EXPIRED != 0) {
                decide();
                open_records.write(meta.row, open);
                count(meta.row, STAT_EXPIRED, 1);
                count_decision();
                dress.apply(hdr, meta, meta.place.address[127:32] != 0);
                load_sum(way_t.multicast);
            }
            store_slot(meta.slot_key, slot);
            store_record(meta.slot_key, r);
            meta.sum_elements = slot.elements;
            return;
        }
        // A block has one position only.
        if (position != hdr.inagg.slot) {
            refuse(INAGG_R_SLOT);
            return;
        }
        if (type == INAGG_PARTIAL) {
            refuse(INAGG_R_TYPE);
            return;
        }
        if (meta.here & rank == 0) {
            refuse(INAGG_R_EXCLUDED);
            return;
        }
        // inagg_bucket_of()
        bit<32> mixed = hdr.inagg.block + meta.row * 0x9e3779b1 + (bit<32>)meta.stream * 0x85ebca6b;
        look_at_bucket.apply(hdr.inagg, meta, (mixed & (bit<32>)meta.shared_mask) << 2, bucket);
        bit<32> key = bucket.record;
        if (bucket.found) {
            load_slot(key, slot);
            load_record(key, r);
        } else {
            slot = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
            r = { 0, 0, 0, 0, 0, 0, 0, 0 };
        }
        bool is_decided = bucket.found && slot.flags & INAGG_SLOT_COMPLETE != 0;

        if (type == INAGG_REQUEST) {
            // Decides nothing, not even about an expired block.
            if (is_decided) {
                count(meta.row, STAT_REPLIES, 1);
                load_sum(way_t.reply);
            } else if (hdr.inagg.flags & INAGG_F_MULTICAST != 0) {
                tell(way_t.multicast);
            } else {
                tell(way_t.reply);
            }
            meta.slot_key = key;
            meta.sum_elements = slot.elements;
            return;
        }
        bool holds;
        bool is_past;
        bool agrees;
        compare.apply(hdr.inagg, slot, holds, is_past, agrees);
        if (type == INAGG_RESTORE) {
            // inagg_record_restore()
            if (!bucket.found || is_decided || r.flags & INAGG_RECORD_RECOVERING == 0) {
                refuse(INAGG_R_UNSOLICITED);
            } else if (hdr.inagg.contributors == 0 || hdr.inagg.contributors & ~meta.everyone != 0) {
                refuse(INAGG_R_RANK);
            } else if (!agrees || (slot.elements != 0 && hdr.inagg.elements == 0)) {
                refuse(INAGG_R_MISMATCH);
            } else {
                slot.seen = hdr.inagg.contributors;
                slot.elements = hdr.inagg.elements;
                slot.next_scale = hdr.inagg.next_scale;
                slot.marks = hdr.inagg.flags & INAGG_F_CONGESTION;
                slot.cap = hdr.inagg.window_cap;
                slot.flags = INAGG_SLOT_LIVE | (bit<8>)(hdr.inagg.flags & INAGG_F_SATURATED) >> 1;
                decide();
                open_records.write(meta.row, open);
                store_slot(key, slot);
                store_record(key, r);
                meta.move = move_t.store;
                meta.slot_key = key;
                count(meta.row, STAT_RESTORES, 1);
                send_sum(way_t.multicast);
            }
            return;
        }

        // inagg_record_contribute_ranks()
        if (hdr.inagg.elements == 0 && hdr.inagg.dtype != INAGG_WIRE_NONE && hdr.inagg.dtype != INAGG_WIRE_INT32) {
            refuse(INAGG_R_ELEMENTS);
            return;
        }
        bool is_new = !bucket.found;
        bool opens = false;
        load_floor();
        if (is_new) {
            bool is_fresh = floor_is_known && floor + window == hdr.inagg.block;
            bit<32> most = is_fresh ? most_open : most_open << 1;
            bool has_place = open < most && bucket.has_room;
            key = bucket.room;
            opens = true;
            if (!has_place && open <= most && bucket.has_later) {
                has_place = true;	// in the place of one that is open
                key = bucket.later;
                opens = false;
            }
            // New blocks leave a way to those that must be recovered.
            if (!has_place || (is_fresh && bucket.fresh >= 3)) {
                // The job or the bucket is full: the rank is told to slow down.
                count(meta.row, STAT_DROPS + (bit<32>)INAGG_R_FULL, 1);
                wait(way_t.reply, 0, 0);
                // inagg_window_cap()
                hdr.inagg.window_cap = (open >> 1) > 0xffff ? 16w0xffff : (bit<16>)(open >> 1);
                if (hdr.inagg.window_cap == 0) {
                    hdr.inagg.window_cap = 1;
                }
                return;
            }
            if (is_fresh) {
                open_fresh();
            } else {
                open_recovering();
            }
            agrees = true;
        } else if (is_decided) {
            count(meta.row, slot.seen & rank != 0 ? STAT_DUPLICATES : STAT_LATE, 1);
            count(meta.row, STAT_REPLIES, 1);
            load_sum(way_t.reply);
            meta.slot_key = key;
            meta.sum_elements = slot.elements;
            return;
        } else if (r.flags & INAGG_RECORD_RECOVERING != 0 && r.era != era) {
            // Its recovery began when the job had more ranks: what they said in it counts no more.
            open_recovering();
            is_new = true;
            agrees = true;
        }
        if (is_new && r.epoch != 0 && !floor_is_known && (lost_epoch == 0 || (int<16>)(r.epoch - lost_epoch) < 0)) {
            lost_epoch = r.epoch;
            floor_epoch.write(floor_key, lost_epoch);
        }
        if (opens) {
            open = open + 1;
            count(meta.row, STAT_RECOVERIES, (bit<64>)(r.flags & INAGG_RECORD_RECOVERING));
        }
        bit<1> decides = 0;
        if (hdr.inagg.switch_id != r.epoch) {
            if (slot.seen & rank != 0) {
                count(meta.row, STAT_DUPLICATES, 1);
            }
            store_slot(key, slot);
            store_record(key, r);
            open_records.write(meta.row, open);
            tell(is_new ? way_t.multicast : way_t.reply);
            return;
        }
        // inagg_record_fold()
        bool is_absent = hdr.inagg.flags & INAGG_F_ABSENT != 0;
        bool adds = !is_absent && slot.seen & rank == 0;
        if (adds && !agrees) {
            refuse(INAGG_R_MISMATCH);
            return;
        }
        if (is_absent) {
            r.absent = r.absent | rank;
        }
        bool was_in = slot.seen & rank != 0;
        if (adds) {
            fold.apply(hdr.inagg, rank, hdr.inagg.flags, slot, meta.move);
            r.age = 0;
            if (hdr.inagg.flags & INAGG_F_WHOLE != 0) {
                r.flags = r.flags | INAGG_RECORD_WHOLE;
            }
        }
        // inagg_record_decidable()
        bit<16> in_it;
        count_ranks(slot.seen, in_it);
        bit<64> heard = r.flags & INAGG_RECORD_WHOLE != 0 ? slot.seen : slot.seen | r.absent;
        if (slot.seen != 0) {
            if (heard & meta.here == meta.here) {
                decides = 1;
            } else if (r.flags & (INAGG_RECORD_RECOVERING | INAGG_RECORD_WHOLE) == 0 &&
                       (r.flags & INAGG_RECORD_EXPIRED != 0 || (quorum != 0 && in_it >= quorum))) {
                decides = 1;
            }
        }
        if (decides == 1) {
            // inagg_floor_found()
            if (r.flags & INAGG_RECORD_RECOVERING != 0 && (!floor_is_known || (int<32>)(floor - hdr.inagg.block) < 0) &&
                (int<16>)(lost_epoch - r.epoch) < 0 && era == 0) {
                floor_block.write(floor_key, hdr.inagg.block);
                floor_generation.write(floor_key, meta.generation);
                floor_known.write(floor_key, 1);
            }
            decide();
        }
        store_slot(key, slot);
        store_record(key, r);
        open_records.write(meta.row, open);
        if (!adds && decides == 0) {
            if (was_in) {
                count(meta.row, STAT_DUPLICATES, 1);
            }
            tell(way_t.reply);
            return;
        }
        if (meta.move == move_t.none && hdr.inagg.elements != 0) {
            count(meta.row, STAT_EXPIRED, 1);	// it added nothing, and found the block decidable
        } else {
            count(meta.row, STAT_ADDITIONS, 1);
            count(meta.row, STAT_ELEMENTS, (bit<64>)hdr.inagg.elements);
        }
        if (decides == 1) {
            count_decision();
            if (meta.move == move_t.none) {
                meta.move = move_t.load;
            }
            send_sum(way_t.multicast);
        }
        meta.slot_key = key;
        meta.sum_elements = slot.elements;
    }
}

#include "pipeline.p4"
