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

// An open record, as those who want its place see it.
struct rival_t {
    bit<32> job;	// row; none's if it is not open
    bool    is_fresh;	// not recovering
}

// A bucket, for a block: where its record is, and where there would be room for one.
struct bucket_t {
    bool    found;
    bit<32> record;
    bool    has_room;
    bit<32> room;	// inagg_record_room()
    bool    has_later;
    bit<32> later;	// inagg_record_later() of those that recover
    bool    has_later_fresh;
    bit<32> later_fresh;	// ... and of those that do not
    bool    recovers;	// inagg_record_recovers()
    bit<8>  fresh;	// open, and not recovering
    bit<32> first;
    rival_t way0;
    rival_t way1;
    rival_t way2;
    rival_t way3;
}

const bit<32> NO_ROW = 0xffffffff;

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
    bit<32> latest_fresh;

    action load_way(bit<32> key) {
        slot_flags.read(slot_flag, key);
        slot_block.read(block, key);
        slot_generation.read(generation, key);
        record_job.read(job, key);
        record_stream.read(stream, key);
        record_flags.read(flags, key);
        record_age.read(age, key);
    }

#define LOOK_AT_WAY(n) \
    load_way(first + n); \
    is_live = slot_flag & INAGG_SLOT_LIVE != 0; \
    is_open = is_live && slot_flag & INAGG_SLOT_COMPLETE == 0; \
    is_recovering = flags & INAGG_RECORD_RECOVERING != 0; \
    is_streams = job == meta.row && stream == meta.stream && generation == h.generation; \
    if (is_live && is_streams && block == h.block) { \
        bucket.found = true; \
        bucket.record = first + n; \
    } \
    age_here = is_live ? (bit<32>)age : (bit<32>)INAGG_MOST_SWEEPS + 1; \
    if (!is_open && (!bucket.has_room || age_here > best_age)) { \
        bucket.has_room = true; \
        bucket.room = first + n; \
        best_age = age_here; \
    } \
    if (is_open && is_recovering && is_streams && (int<32>)(latest - block) < 0) { \
        bucket.has_later = true; \
        bucket.later = first + n; \
        latest = block; \
    } \
    if (is_open && !is_recovering && is_streams && (int<32>)(latest_fresh - block) < 0) { \
        bucket.has_later_fresh = true; \
        bucket.later_fresh = first + n; \
        latest_fresh = block; \
    } \
    if (is_open && is_recovering && job == meta.row) { \
        bucket.recovers = true; \
    } \
    if (is_open && !is_recovering) { \
        bucket.fresh = bucket.fresh + 1; \
    } \
    bucket.way##n = { is_open ? job : NO_ROW, !is_recovering };

    apply {
        bool is_live;
        bool is_open;
        bool is_recovering;
        bool is_streams;
        bit<32> age_here;
        bucket = { false, 0, false, 0, false, 0, false, 0, false, 0, first,
                   { 0, false }, { 0, false }, { 0, false }, { 0, false } };
        best_age = 0;
        latest = h.block;
        latest_fresh = h.block;
        LOOK_AT_WAY(0)
        LOOK_AT_WAY(1)
        LOOK_AT_WAY(2)
        LOOK_AT_WAY(3)
    }
}

// What a packet of a job meets.
struct trio_t {
    slot_t   slot;
    record_t r;
    bit<32>  open;	// records of the job
    bit<16>  epoch_now;
    bit<8>   era;
    // when its blocks are decided without all ranks, and how many it may have open: struct inagg_policy
    bit<16>  expiry_sweeps;
    bit<16>  quorum;
    bit<32>  most_open;
}

// struct inagg_floor, of the packet's position.
struct floor_t {
    bit<32> key;
    bit<32> block;
    bool    is_known;
    bit<16> lost_epoch;
}

action load_floor(in metadata_t meta, out floor_t floor) {
    bit<16> generation;
    bit<1> known;
    floor.key = meta.slot_key >> 1;
    floor_block.read(floor.block, floor.key);
    floor_generation.read(generation, floor.key);
    floor_epoch.read(floor.lost_epoch, floor.key);
    floor_known.read(known, floor.key);
    floor.is_known = known == 1 && generation == meta.generation;
}

action store_trio(in metadata_t meta, in bit<32> key, in trio_t t) {
    store_slot(key, t.slot);
    store_record(key, t.r);
    open_records.write(meta.row, t.open);
}

// Who is in, and who has said to have nothing to add.
action tell(inout headers_t hdr, inout metadata_t meta, in trio_t t, in way_t way) {
    meta.way = way;
    count(meta.row, STAT_WAITS, 1);
    write_wait(hdr, meta, t.slot.seen | t.r.absent, 0);
    hdr.inagg.switch_id = t.r.epoch;
}

// The job or the bucket is full: the rank is told to slow down, as inagg_window_cap() says.
action tell_full(inout headers_t hdr, inout metadata_t meta, in trio_t t) {
    bit<32> half = t.open >> 1;
    meta.way = way_t.reply;
    count(meta.row, STAT_DROPS + (bit<32>)INAGG_R_FULL, 1);
    write_wait(hdr, meta, 0, 0);
    hdr.inagg.switch_id = 0;
    hdr.inagg.window_cap = half > 0xffff ? 16w0xffff : (half == 0 ? 16w1 : (bit<16>)half);
}

action send_result(inout headers_t hdr, inout metadata_t meta, in trio_t t, in way_t way) {
    meta.way = way;
    meta.sum_elements = t.slot.elements;
    write_sum(hdr, meta, t.slot, INAGG_RESULT, (bit<12>)(t.r.flags & INAGG_RECORD_DEGRADED) << 2);
    hdr.inagg.switch_id = t.r.epoch;
}

// ... whose elements the packet does not have.
action load_result(inout headers_t hdr, inout metadata_t meta, in trio_t t, in way_t way) {
    meta.move = move_t.load;
    send_result(hdr, meta, t, way);
}

// inagg_record_decide()
action decide(in metadata_t meta, inout trio_t t) {
    t.slot.flags = t.slot.flags | INAGG_SLOT_COMPLETE;
    t.r.age = 0;
    t.r.flags = t.r.flags | (t.slot.seen == meta.everyone ? 8w0 : INAGG_RECORD_DEGRADED);
    t.open = t.open |-| 1;
}

action count_decision(in metadata_t meta, in trio_t t) {
    count(meta.row, STAT_COMPLETIONS, 1);
    count(meta.row, STAT_DEGRADED, (bit<64>)(t.r.flags & INAGG_RECORD_DEGRADED) >> 3);
}

// inagg_record_open() of a block that nobody has sent before
action open_fresh(in inagg_h h, in metadata_t meta, in floor_t floor, inout trio_t t) {
    take_slot(h, t.slot);
    t.r = { meta.row, h.job, t.era, 0, meta.stream, 0, 0, 0 };
    floor_block.write(floor.key, h.block);
}

// ... and of one that somebody may have the result of: inagg_floor_epoch()
action open_recovering(in inagg_h h, in metadata_t meta, inout trio_t t) {
    bit<16> tick = t.epoch_now + 2 * (bit<16>)t.era;
    bit<16> epoch = tick == 0 ? 16w1 : tick;
    take_slot(h, t.slot);
    t.r = { meta.row, h.job, t.era, epoch, meta.stream, INAGG_RECORD_RECOVERING, 0, 0 };
}

// Is there nobody to wait for, or enough, or has its time passed?  inagg_record_decidable() and inagg_record_is_full()
control FindOutIfDecidable(in metadata_t meta, in trio_t t, out bool is_full, out bool is_decidable) {
    apply {
        bit<16> seen;
        count_ranks(t.slot.seen, seen);
        bool is_whole = t.r.flags & INAGG_RECORD_WHOLE != 0;
        bool may_lack_some = t.r.flags & (INAGG_RECORD_RECOVERING | INAGG_RECORD_WHOLE) == 0;
        bit<64> heard = is_whole ? t.slot.seen : t.slot.seen | t.r.absent;
        is_full = t.slot.seen != 0 && heard & meta.here == meta.here;
        is_decidable = is_full || (t.slot.seen != 0 && may_lack_some &&
                                   (t.r.flags & INAGG_RECORD_EXPIRED != 0 || (t.quorum != 0 && seen >= t.quorum)));
    }
}

// A clock packet visits a record, inagg_record_sweep(), and decides it if it has expired, inagg_record_finish().
control VisitRecord(inout headers_t hdr, inout metadata_t meta, inout trio_t t) {
    FindOutIfDecidable() find_out;
    DressClock() dress;

    apply {
        bool is_full;
        bool is_decidable;
        find_out.apply(meta, t, is_full, is_decidable);
        bit<16> age = t.r.age;
        bool is_open = t.slot.flags & INAGG_SLOT_COMPLETE == 0;
        bool is_recovering = t.r.flags & INAGG_RECORD_RECOVERING != 0;
        if (meta.clock & CLOCK_SWEEPS != 0) {
            if (age < INAGG_MOST_SWEEPS) {
                t.r.age = age + 1;
            }
            bool is_outdated = is_recovering && t.r.era != t.era;
            bool nobody_comes = t.slot.seen == 0 ||
                                (int<16>)(t.epoch_now - t.r.epoch) >= (int<16>)INAGG_RECOVERY_TICKS;
            bool is_given_up = is_recovering && !is_full && age >= INAGG_RECOVERY_SWEEPS && nobody_comes;
            bool is_due = !is_recovering && t.r.flags & INAGG_RECORD_WHOLE == 0 && t.slot.seen != 0 &&
                          t.expiry_sweeps != 0 && age >= t.expiry_sweeps;
            if (is_open && (is_outdated || is_given_up)) {
                t.slot.flags = 0;
                t.open = t.open |-| 1;
            } else if (is_open && (is_full || is_due)) {
                t.r.flags = t.r.flags | INAGG_RECORD_EXPIRED;
            }
        }
        if (meta.clock & CLOCK_DECIDES != 0 && is_open && t.slot.flags & INAGG_SLOT_LIVE != 0 &&
            t.r.flags & INAGG_RECORD_EXPIRED != 0) {
            decide(meta, t);
            count(meta.row, STAT_EXPIRED, 1);
            count_decision(meta, t);
            dress.apply(hdr, meta, meta.place.address[127:32] != 0);
            load_result(hdr, meta, t, way_t.multicast);
        }
        store_trio(meta, meta.slot_key, t);
    }
}

// A holder gives a result back: inagg_record_restore().
control RestoreRecord(inout headers_t hdr, inout metadata_t meta, in bucket_t bucket, in bool agrees, inout trio_t t) {
    apply {
        bool is_recovering = bucket.found && t.slot.flags & INAGG_SLOT_COMPLETE == 0 &&
                             t.r.flags & INAGG_RECORD_RECOVERING != 0;
        if (!is_recovering) {
            meta.reason = INAGG_R_UNSOLICITED;
        } else if (hdr.inagg.contributors == 0 || hdr.inagg.contributors & ~meta.everyone != 0) {
            meta.reason = INAGG_R_RANK;
        } else if (!agrees || (t.slot.elements != 0 && hdr.inagg.elements == 0)) {
            meta.reason = INAGG_R_MISMATCH;
        } else {
            give_back(hdr.inagg, hdr.inagg.contributors, hdr.inagg.flags & INAGG_F_CONGESTION, t.slot);
            decide(meta, t);
            store_trio(meta, bucket.record, t);
            meta.move = move_t.store;
            count(meta.row, STAT_RESTORES, 1);
            send_result(hdr, meta, t, way_t.multicast);
        }
    }
}

// How many of the bucket's records are a job's: inagg_record_share().
action count_share(in bucket_t bucket, in bit<32> job, out bit<8> share) {
    share = (bucket.way0.job == job ? 8w1 : 8w0) + (bucket.way1.job == job ? 8w1 : 8w0) +
            (bucket.way2.job == job ? 8w1 : 8w0) + (bucket.way3.job == job ? 8w1 : 8w0);
}

// inagg_record_rival()
control FindRival(in metadata_t meta, in bucket_t bucket, in bool only_fresh, out bool has_rival, out bit<32> rival,
                  out bit<32> row) {
    bit<8> most;
    bit<8> share;

#define LOOK_AT_RIVAL(n) \
    count_share(bucket, bucket.way##n.job, share); \
    if (bucket.way##n.job != NO_ROW && (!only_fresh || bucket.way##n.is_fresh) && share > most) { \
        has_rival = true; \
        rival = bucket.first + n; \
        row = bucket.way##n.job; \
        most = share; \
    }

    apply {
        has_rival = false;
        rival = 0;
        row = 0;
        count_share(bucket, meta.row, most);
        most = most + 1;
        LOOK_AT_RIVAL(0)
        LOOK_AT_RIVAL(1)
        LOOK_AT_RIVAL(2)
        LOOK_AT_RIVAL(3)
    }
}

// A place for another record: inagg_record_place().  What was open there is counted no longer.
control FindPlace(in metadata_t meta, in bucket_t bucket, in trio_t t, in bool is_fresh, out bool has_place,
                  out bit<32> key, out bit<32> opens) {
    FindRival() find_rival;

    apply {
        bit<32> most = is_fresh ? t.most_open : t.most_open << 1;
        bool is_crowded = is_fresh && bucket.fresh >= 3;	// new blocks leave a way to those that must be recovered
        bit<32> row;
        bit<32> open;
        has_place = false;
        key = bucket.room;
        opens = 1;
        if (t.open < most) {
            has_place = bucket.has_room && !is_crowded;
            if (!has_place) {
                find_rival.apply(meta, bucket, is_crowded, has_place, key, row);
                if (has_place) {
                    open_records.read(open, row);
                    open_records.write(row, open |-| 1);
                }
            }
        }
        // inagg_record_yields()
        if (!has_place && !is_crowded && t.open <= most) {
            opens = 0;
            if (bucket.has_later) {
                has_place = true;
                key = bucket.later;
            } else if (bucket.has_later_fresh && !is_fresh && !bucket.recovers) {
                has_place = true;
                key = bucket.later_fresh;
            }
        }
    }
}

// The block has a record of its own from now on: inagg_record_open().
control OpenRecord(inout headers_t hdr, inout metadata_t meta, in bucket_t bucket, in floor_t floor, inout trio_t t,
                   out bit<32> key, out bool has_place) {
    FindPlace() find_place;

    apply {
        bit<32> window = meta.stream == 1 ? meta.control_slots : meta.slots;
        bool is_fresh = floor.is_known && floor.block + window == hdr.inagg.block;
        bit<32> opens;
        find_place.apply(meta, bucket, t, is_fresh, has_place, key, opens);
        if (has_place) {
            t.open = t.open + opens;
            if (is_fresh) {
                open_fresh(hdr.inagg, meta, floor, t);
            } else {
                open_recovering(hdr.inagg, meta, t);
                count(meta.row, STAT_RECOVERIES, (bit<64>)opens);
            }
        }
    }
}

// The packet is of the record's block, and of its epoch: inagg_record_fold().
control FoldIntoRecord(inout headers_t hdr, inout metadata_t meta, in bit<32> key, in floor_t floor, in bool agrees,
                       inout trio_t t) {
    FoldIntoSlot() fold;
    FindOutIfDecidable() find_out;

    apply {
        bit<64> rank = 64w1 << (bit<8>)hdr.inagg.source;
        bool is_absent = hdr.inagg.flags & INAGG_F_ABSENT != 0;
        bool was_in = t.slot.seen & rank != 0;
        bool adds = !is_absent && !was_in;
        if (adds && !agrees) {
            meta.reason = INAGG_R_MISMATCH;
            return;
        }
        if (is_absent) {
            t.r.absent = t.r.absent | rank;
        }
        if (adds) {
            fold.apply(hdr.inagg, rank, hdr.inagg.flags, t.slot, meta.move);
            t.r.age = 0;
            if (hdr.inagg.flags & INAGG_F_WHOLE != 0) {
                t.r.flags = t.r.flags | INAGG_RECORD_WHOLE;
            }
        }
        bool is_full;
        bool decides;
        find_out.apply(meta, t, is_full, decides);
        if (decides) {
            // inagg_floor_found()
            if (t.r.flags & INAGG_RECORD_RECOVERING != 0 && t.era == 0 && (int<16>)(floor.lost_epoch - t.r.epoch) < 0 &&
                (!floor.is_known || (int<32>)(floor.block - hdr.inagg.block) < 0)) {
                floor_block.write(floor.key, hdr.inagg.block);
                floor_generation.write(floor.key, meta.generation);
                floor_known.write(floor.key, 1);
            }
            decide(meta, t);
        }
        store_trio(meta, key, t);
        meta.sum_elements = t.slot.elements;
        if (!adds && !decides) {
            count(meta.row, STAT_DUPLICATES, was_in ? 64w1 : 64w0);
            tell(hdr, meta, t, way_t.reply);
            return;
        }
        if (meta.move == move_t.none && hdr.inagg.elements != 0) {
            count(meta.row, STAT_EXPIRED, 1);	// it added nothing, and found the block decidable
        } else {
            count(meta.row, STAT_ADDITIONS, 1);
            count(meta.row, STAT_ELEMENTS, (bit<64>)hdr.inagg.elements);
        }
        if (decides) {
            count_decision(meta, t);
            if (meta.move == move_t.none) {
                meta.move = move_t.load;
            }
            send_result(hdr, meta, t, way_t.multicast);
        }
    }
}

// inagg_record_contribute_ranks()
control Contribute(inout headers_t hdr, inout metadata_t meta, in bucket_t bucket, in bool is_alike, inout trio_t t) {
    OpenRecord() open_record;
    FoldIntoRecord() fold;

    apply {
        bit<64> rank = 64w1 << (bit<8>)hdr.inagg.source;
        bit<32> key = bucket.record;
        bool agrees = is_alike;
        bool is_new = !bucket.found;
        floor_t floor;
        if (hdr.inagg.elements == 0 && hdr.inagg.dtype != INAGG_WIRE_NONE && hdr.inagg.dtype != INAGG_WIRE_INT32) {
            meta.reason = INAGG_R_ELEMENTS;
            return;
        }
        load_floor(meta, floor);
        if (is_new) {
            bool has_place;
            open_record.apply(hdr, meta, bucket, floor, t, key, has_place);
            if (!has_place) {
                tell_full(hdr, meta, t);
                return;
            }
        } else if (t.slot.flags & INAGG_SLOT_COMPLETE != 0) {
            count(meta.row, t.slot.seen & rank != 0 ? STAT_DUPLICATES : STAT_LATE, 1);
            count(meta.row, STAT_REPLIES, 1);
            load_result(hdr, meta, t, way_t.reply);
            meta.slot_key = key;
            return;
        } else if (t.r.flags & INAGG_RECORD_RECOVERING != 0 && t.r.era != t.era) {
            // Its recovery began when the job had more ranks: what they said in it counts no more.
            open_recovering(hdr.inagg, meta, t);
            is_new = true;
        }
        meta.slot_key = key;
        if (is_new) {
            agrees = true;
            // A floor that is lost notes when that was noticed.
            if (t.r.epoch != 0 && !floor.is_known &&
                (floor.lost_epoch == 0 || (int<16>)(t.r.epoch - floor.lost_epoch) < 0)) {
                floor.lost_epoch = t.r.epoch;
                floor_epoch.write(floor.key, floor.lost_epoch);
            }
        }
        if (hdr.inagg.switch_id == t.r.epoch) {
            fold.apply(hdr, meta, key, floor, agrees, t);
        } else {
            count(meta.row, STAT_DUPLICATES, t.slot.seen & rank != 0 ? 64w1 : 64w0);
            store_trio(meta, key, t);
            tell(hdr, meta, t, is_new ? way_t.multicast : way_t.reply);
        }
    }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    trio_t t;
    FindPosition() find_position;
    LookAtBucket() look_at_bucket;
    CompareWithSlot() compare;
    VisitRecord() visit;
    RestoreRecord() restore;
    Contribute() contribute;

    action set_policy(bit<16> sweeps, bit<16> ranks, bit<32> blocks) {
        t.expiry_sweeps = sweeps;
        t.quorum = ranks;
        t.most_open = blocks;
    }
    table policies {
        key = { hdr.inagg.job: exact; }
        actions = { set_policy; NoAction; }
        const default_action = NoAction;
        size = 64;
    }

    apply {
        bit<4> type = hdr.inagg.type;
        bit<64> rank = 64w1 << (bit<8>)hdr.inagg.source;
        bit<16> excluded;
        bucket_t bucket;
        t = { { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0, 0, 0 }, 0, 0, 0, 0, 0, 0 };
        policies.apply();
        find_position.apply(hdr, meta);
        count_ranks(meta.everyone & ~meta.here, excluded);
        t.era = (bit<8>)excluded;
        t.epoch_now = (bit<16>)(standard.ingress_global_timestamp >> 12);
        open_records.read(t.open, meta.row);

        if (type == INAGG_TICK) {
            load_slot(meta.slot_key, t.slot);
            load_record(meta.slot_key, t.r);
            if (t.slot.generation == meta.generation) {
                visit.apply(hdr, meta, t);
            } else {
                slot_flags.write(meta.slot_key, 0);
            }
            return;
        }
        // A block has one position only.
        bit<32> position;
        position_of(meta, hdr.inagg.block, position);
        if (position != hdr.inagg.slot) {
            meta.reason = INAGG_R_SLOT;
            return;
        }
        if (type == INAGG_PARTIAL) {
            meta.reason = INAGG_R_TYPE;
            return;
        }
        if (meta.here & rank == 0) {
            meta.reason = INAGG_R_EXCLUDED;
            return;
        }
        // inagg_bucket_of()
        bit<32> mixed = hdr.inagg.block + meta.row * 0x9e3779b1 + (bit<32>)meta.stream * 0x85ebca6b;
        look_at_bucket.apply(hdr.inagg, meta, (mixed & (bit<32>)meta.shared_mask) << 2, bucket);
        if (bucket.found) {
            load_slot(bucket.record, t.slot);
            load_record(bucket.record, t.r);
        }
        bool holds;
        bool is_past;
        bool agrees;
        compare.apply(hdr.inagg, t.slot, holds, is_past, agrees);
        if (type == INAGG_REQUEST) {
            // Decides nothing, not even about an expired block.
            meta.slot_key = bucket.record;
            if (bucket.found && t.slot.flags & INAGG_SLOT_COMPLETE != 0) {
                count(meta.row, STAT_REPLIES, 1);
                load_result(hdr, meta, t, way_t.reply);
            } else {
                tell(hdr, meta, t, hdr.inagg.flags & INAGG_F_MULTICAST != 0 ? way_t.multicast : way_t.reply);
            }
        } else if (type == INAGG_RESTORE) {
            meta.slot_key = bucket.record;
            restore.apply(hdr, meta, bucket, agrees, t);
        } else {
            contribute.apply(hdr, meta, bucket, agrees, t);
        }
    }
}

#include "pipeline.p4"
