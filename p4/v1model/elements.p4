// SPDX-License-Identifier: BSD-2-Clause
// The elements of slots: INAGG_CHUNK lanes a chunk, two chunks a packet.  On the wire they are little-endian.
#ifndef INAGG_P4_ELEMENTS
#define INAGG_P4_ELEMENTS

#ifndef SLOTS
#define SLOTS 512	// pairs
#endif

register<bit<32>>(SLOTS * 2 * 64) lanes;

#define FOR_EACH_ELEMENT(X, c) \
    X(c, 0) X(c, 1) X(c, 2) X(c, 3) X(c, 4) X(c, 5) X(c, 6) X(c, 7) \
    X(c, 8) X(c, 9) X(c, 10) X(c, 11) X(c, 12) X(c, 13) X(c, 14) X(c, 15) \
    X(c, 16) X(c, 17) X(c, 18) X(c, 19) X(c, 20) X(c, 21) X(c, 22) X(c, 23) \
    X(c, 24) X(c, 25) X(c, 26) X(c, 27) X(c, 28) X(c, 29) X(c, 30) X(c, 31)

#define SWAPPED(x) (x)[7:0] ++ (x)[15:8] ++ (x)[23:16] ++ (x)[31:24]
#define LESS(a, b) ((int<32>)(a) < (int<32>)(b))

#define STORE_ELEMENT(c, i) \
    lanes.write(first + 32 * c + i, SWAPPED(hdr.chunk##c.e##i));
#define LOAD_ELEMENT(c, i) \
    lanes.read(lane, first + 32 * c + i); \
    hdr.chunk##c.e##i = SWAPPED(lane);
// ... and the packet gets the result of the addition, which it may be about to tell everyone.
#define FOLD_ELEMENT(c, i, result) \
    value = SWAPPED(hdr.chunk##c.e##i); \
    lanes.read(lane, first + 32 * c + i); \
    lane = result; \
    lanes.write(first + 32 * c + i, lane); \
    hdr.chunk##c.e##i = SWAPPED(lane);
#define ADD_ELEMENT(c, i) FOLD_ELEMENT(c, i, lane + value)
#define MIN_ELEMENT(c, i) FOLD_ELEMENT(c, i, LESS(value, lane) ? value : lane)
#define MAX_ELEMENT(c, i) FOLD_ELEMENT(c, i, LESS(lane, value) ? value : lane)

#define FOR_EACH_CHUNK_ACTION(name, X) \
    action name##_chunk0() { FOR_EACH_ELEMENT(X, 0) } \
    action name##_chunk1() { FOR_EACH_ELEMENT(X, 1) }

// The packet has as many elements as its length says.
control Elements(inout headers_t hdr, in metadata_t meta) {
    bit<32> first;
    bit<32> lane;
    bit<32> value;

    FOR_EACH_CHUNK_ACTION(store, STORE_ELEMENT)
    FOR_EACH_CHUNK_ACTION(add, ADD_ELEMENT)
    FOR_EACH_CHUNK_ACTION(min, MIN_ELEMENT)
    FOR_EACH_CHUNK_ACTION(max, MAX_ELEMENT)
    FOR_EACH_CHUNK_ACTION(load, LOAD_ELEMENT)

#define MOVE_CHUNK(c) \
    if (hdr.chunk##c.isValid()) { \
        if (meta.move == move_t.store) { \
            store_chunk##c(); \
        } else if (meta.move == move_t.add) { \
            add_chunk##c(); \
        } else if (meta.move == move_t.minimum) { \
            min_chunk##c(); \
        } else if (meta.move == move_t.maximum) { \
            max_chunk##c(); \
        } else if (meta.move == move_t.load) { \
            load_chunk##c(); \
        } \
    }

    apply {
        first = meta.slot_key << 6;
        if (meta.move == move_t.load) {
            hdr.chunk0.setInvalid();
            hdr.chunk1.setInvalid();
            if (meta.sum_elements > 0) {
                hdr.chunk0.setValid();
            }
            if (meta.sum_elements > 32) {
                hdr.chunk1.setValid();
            }
        }
        MOVE_CHUNK(0)
        MOVE_CHUNK(1)
    }
}

#endif
