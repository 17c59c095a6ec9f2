// SPDX-License-Identifier: BSD-2-Clause
// What the parts of the pipeline know of a packet.
#ifndef INAGG_P4_TNA_STATE
#define INAGG_P4_TNA_STATE

// A slot's copy: pool index, then pool version.  With 12 bits a lane's register, which has its spare bank beside it, fills
// the smallest memory that it can have.
#ifndef KEY_BITS
#define KEY_BITS 12
#endif
#define KEYS (1 << KEY_BITS)
typedef bit<KEY_BITS> key_t;

// The parser's opinion of a packet by its type, data type and length.
typedef bit<8> form_t;
const form_t FORM_ORDINARY = 0;
const form_t FORM_LENGTH = 1;
const form_t FORM_VERSION = 2;
const form_t FORM_TYPE = 3;
const form_t FORM_DTYPE = 4;
const form_t FORM_ELEMENTS = 5;
const form_t FORM_JOIN = 6;
const form_t FORM_FULL = 0x10;	// a contribution with elements
const form_t FORM_EMPTY = 0x11;	// ... without
const form_t FORM_RESTORE = 0x12;	// with elements
@noWarn("unused") const form_t FORM_RESTORE_EMPTY = 0x13;	// of a control block
const form_t FORM_REQUEST = 0x14;
const form_t FORM_PARTIAL = 0x15;	// of a switch below
#ifdef AGGREGATORS
const form_t FORM_SERVERS = 0x17;	// with elements that the server alone sums
const form_t FORM_SERVERS_EMPTY = 0x18;
const form_t FORM_RESULT = 0x19;	// from the parent
const form_t FORM_RESULT_EMPTY = 0x1a;
const form_t FORM_WAIT = 0x1b;
#endif
#ifdef CANARY
const form_t FORM_UNFIT = 0x16;	// a contribution that cannot be summed here
const form_t FORM_UNFIT_EMPTY = 0x17;
// What only a leader says.
const form_t FORM_RESULT = 0x20;	// with elements
const form_t FORM_RESULT_EMPTY = 0x21;
const form_t FORM_WAIT = 0x22;
const form_t FORM_FAILED = 0x23;	// BLOCK_FAILED
#define FORM_WORD 0x20 &&& 0xf0
#endif
#ifdef CLOCK
const form_t FORM_NO_TICK = 0x30;	// of the clock, but for nothing here
const form_t FORM_TICK = 0x31;
#endif

// Which way through the switch.
typedef bit<8> path_t;
const path_t PATH_ORDINARY = 0;
const path_t PATH_TO_AGENT = 1;
const path_t PATH_FROM_AGENT = 2;
#ifdef AGGREGATORS
const path_t PATH_AGAIN = 3;	// once more through ingress
#endif
// Packets of blocks, which are counted. One condition asks for their bits: where it compares numbers it hashes them.
#define IS_COUNTED(path) path[7:2] != 0
const path_t PATH_NOWHERE = 4;
const path_t PATH_BLOCK = 5;	// to its slot
#ifdef AGGREGATORS
const path_t PATH_UP = 6;	// to the parent, as it came
const path_t PATH_DOWN = 7;	// to one rank
const path_t PATH_ALL = 8;
const path_t PATH_SUM = 9;	// as PATH_UP, a sum
const PortId_t PORT_NONE = 0x1ff;
#endif

const bit<16> INAGG_CHUNK = 32;

// A rank's bit.
#define EACH_RANK(set) \
    0: set(1 << 0); 1: set(1 << 1); 2: set(1 << 2); 3: set(1 << 3); \
    4: set(1 << 4); 5: set(1 << 5); 6: set(1 << 6); 7: set(1 << 7); \
    8: set(1 << 8); 9: set(1 << 9); 10: set(1 << 10); 11: set(1 << 11); \
    12: set(1 << 12); 13: set(1 << 13); 14: set(1 << 14); 15: set(1 << 15); \
    16: set(1 << 16); 17: set(1 << 17); 18: set(1 << 18); 19: set(1 << 19); \
    20: set(1 << 20); 21: set(1 << 21); 22: set(1 << 22); 23: set(1 << 23); \
    24: set(1 << 24); 25: set(1 << 25); 26: set(1 << 26); 27: set(1 << 27); \
    28: set(1 << 28); 29: set(1 << 29); 30: set(1 << 30); 31: set(1 << 31);

// What a slot's tag has if it has one at all.
@noWarn("unused") const bit<32> TAG_HELD = 0x10000;
@noWarn("unused") const bit<32> TAG_DTYPE = 0xf000;

// What a packet wants of its slot, once it is admitted.
typedef bit<8> wish_t;
const wish_t WISH_NONE = 0;
const wish_t WISH_ADD = 1;
@noWarn("unused") const wish_t WISH_ASK = 2;
@noWarn("unused") const wish_t WISH_RESTORE = 3;
#ifdef CANARY
const wish_t WISH_HEAR = 4;	// RESULT: who has come?
const wish_t WISH_FAIL = 5;	// BLOCK_FAILED for all
const wish_t WISH_PASS = 6;
const wish_t WISH_EVADE = 7;	// to pass, and no switch is to touch it any more
#endif

// What has become of that.
typedef bit<8> deed_t;
const deed_t DEED_NONE = 0;
const deed_t DEED_TAKE = 1;	// the slot is the block's now
const deed_t DEED_FOLD = 2;	// it was; whether something is folded the other answers say
const deed_t DEED_LOOK = 3;
@noWarn("unused") const deed_t DEED_RESTORE = 4;
@noWarn("unused") const deed_t DEED_STALE = 5;
@noWarn("unused") const deed_t DEED_MISMATCH = 6;
@noWarn("unused") const deed_t DEED_UNSOLICITED = 7;

#ifdef AGGREGATORS
// With aggregators wishes are ADD and
const wish_t WISH_REPEAT = 5;	// what was sent again, for the first time
const wish_t WISH_CLOSE = 7;	// likewise, in the second pass
const wish_t WISH_PASS = 8;	// to the server, as it is
const wish_t WISH_RESULT = 9;
const wish_t WISH_WAIT = 10;

// ... and these deeds TAKE, FOLD, LOOK, and
const deed_t DEED_CLOSE = 9;
#endif
#ifdef CANARY
const deed_t DEED_HEAR = 8;
const deed_t DEED_FAIL = 9;
const deed_t DEED_PASS = 10;
const deed_t DEED_EVADE = 11;
const deed_t DEED_COLLIDE = 12;
#endif

// A stateful ALU says by one bit of four which of its two comparisons hold.
typedef bit<4> pair_t;
#define FIRST_ONLY 2
#define SECOND_ONLY 4
#define BOTH 8

// What egress is to do with a frame.
typedef bit<8> errand_t;
const errand_t ERRAND_NONE = 0;
const errand_t ERRAND_FLOOD = 1;
@noWarn("unused") const errand_t ERRAND_REPLY = 2;	// to whom it came from
const errand_t ERRAND_MULTICAST = 4;	// each copy to its rank
@noWarn("unused") const errand_t ERRAND_ELEMENTS = 8;	// a flag: there are elements
#ifdef AGGREGATORS
const errand_t ERRAND_SEND = 16;	// to one rank, or to the parent
const bit<16> COPY_ABOVE = 0xffff;	// the parent's row of `copies`, where ranks have others
#endif

// From ingress to egress.
header bridge_h {
    @padding bit<7> padding;
    bit<9>   port;		// that the frame came by
    bit<16>  job;
#ifdef AGGREGATORS
    bit<16>  target;		// rank, or COPY_ABOVE
#else
    bit<16>  receive_port;
#endif
    errand_t errand;
#ifdef CANARY
    bit<16>  target;		// the one rank that it is for
    bit<32>  told;		// or the ranks
#endif
}

#ifdef AGGREGATORS
// What a packet's first pass tells its second one: of whom there were elements.
header again_h {
    bit<32> came;
    bit<32> unused;
}
const bit<3> RESUBMIT_AGAIN = 1;
#endif

struct frame_t {
    bridge_h   bridge;
    punt_h     punt;
    ethernet_h ethernet;
    ipv4_h     ipv4;
    ipv6_h     ipv6;
    udp_h      udp;
    inagg_h    inagg;
    chunk_h    chunk0;
}

#if __TARGET_TOFINO__ == 2 || defined(CANARY)
@pa_container_size("ingress", "meta.slot_tag", 16)	// what an ALU says is not to be moved within words
#endif
#ifdef CANARY
// What several tables of one stage find out is in containers of its own.
@pa_solitary("ingress", "meta.is_own")
@pa_solitary("ingress", "meta.is_forged")
@pa_solitary("ingress", "meta.is_whole")
@pa_solitary("ingress", "meta.job_is_known")
@pa_solitary("ingress", "meta.member_is_known")
@pa_solitary("ingress", "meta.position_is_known")
@pa_solitary("ingress", "meta.age")
@pa_solitary("ingress", "meta.attempt")
@pa_solitary("ingress", "meta.fit")
@pa_solitary("ingress", "meta.order")
@pa_solitary("ingress", "meta.open")
@pa_solitary("ingress", "meta.lack")
#endif
// Of what has to be equal the difference is kept, for the one table that judges all of it.
struct facts_t {
    form_t   form;
    bit<1>   is_own;		// it is for this switch
    bit<1>   is_forged;		// it says that it is from this switch
    bool     is_corrupt;	// header checksum
    bit<1>   is_whole;		// lengths of IP and UDP
    bit<9>   agent_off;		// 0: it comes from the agent
    PortId_t cpu_port;
    bit<16>  boot;
    // the packet's job
    bit<1>   job_is_known;
    bit<8>   row;		// of its counters
    bit<16>  generation_off;
    bit<32>  generation;	// with GENERATION_LIVE
    bit<16>  size;
    bit<16>  slots_left;	// 0: the index is outside the job's pool
    bit<16>  key;		// of the pair of slots
    bit<32>  everyone;
    // who sent it
    bit<1>   member_is_known;
    bit<9>   port_off;
    bit<96>  source_high;	// its address, IPv4's in the last 4 bytes; then how far that is off
    bit<32>  source_low;
    bit<32>  rank;		// its bit
    bit<32>  others;		// everyone else's
    // its slot
    key_t    index;
    wish_t   wish;
#ifdef AGGREGATORS
    bit<16>  tag;		// the packet's type and scale
#else
    bit<32>  tag;		// the packet's version, type and scale: a slot of zeros has no version
#endif
    pair_t   order;		// FIRST_ONLY: the slot is not past the block; BOTH: it is; else: it is of another generation
    pair_t   fit;		// BOTH: it holds the block; FIRST_ONLY: the block, but as another type or scale
#ifdef AGGREGATORS
    bit<16>  slot_tag;
#else
    bit<32>  slot_tag;		// likewise, of its block
#endif
    bit<32>  next_scale;
#ifdef MARKS_QUEUES
    bit<1>   is_marked;		// by a router, because of its queue (RFC 3168)
#endif
    bit<12>  flags;		// of the answer
    bit<32>  result_flags;	// ... if it is a sum
    bit<32>  twice;		// the packet's rank, if it is in already
    pair_t   lack;		// FIRST_ONLY: no rank is missing; SECOND_ONLY: this one alone
    bit<32>  missing;		// ranks
    deed_t   deed;
#ifdef AGGREGATORS
    bit<1>   is_again;		// the second pass
    bit<1>   is_above;		// from the parent
    bit<1>   is_alone;		// its rank is the only one here
    bit<32>  lacking;		// RESULT: ranks that it lacks, or has too many
    bit<32>  here;		// ranks behind this switch
    bit<16>  base;		// of its job's share
    bit<32>  who;		// the position: job, generation, index
    pair_t   claim;		// FIRST_ONLY, BOTH: the aggregator is its; SECOND_ONLY: it was free
    bit<32>  expected;		// if these have come, the packet's rank is the last; or it is as the first pass has seen it
    bit<32>  mark;		// flags, or ranks as `expected`
    bit<32>  came;
    bit<32>  gone;
    bit<32>  sum;		// whose sum goes on
    bit<16>  low_ranks;		// how many, of 16
    bit<16>  high_ranks;	// and of the others
    bit<12>  sum_flags;
    bit<9>   way_up;		// port
    bit<9>   way_down;
#endif
    path_t   path;
    bool     is_answer;		// of this switch, not only passed on
    bit<8>   reason;		// enum inagg_reason: why it is dropped
#ifdef CANARY
    // the block's descriptor, and its leader
    bit<1>   position_is_known;
    bit<32>  id;		// of the slot's descriptors
    bit<16>  descriptor;	// number of the first of the two
    bit<16>  leader;		// rank
    bit<16>  leader_off;	// 0: it is the sender
    bit<16>  speaker;		// rank whose address the packet has
    bit<16>  position;		// that the block has, ...
    bit<16>  said_position;	// ... and that the packet says, from where its stream begins
    bit<32>  turn;		// block and attempt
    bit<32>  slot_turn;
    bit<32>  slot_id;
    bit<1>   is_tick;		// ... of a job that is known
    bit<32>  patience;		// visits of the clock that a sum waits
    pair_t   age;		// of the descriptor's block. FIRST_ONLY: it is the packet's; SECOND_ONLY: a later one
    pair_t   attempt;		// likewise, if the block is
    pair_t   open;		// BOTH: the sum has not gone on; of a tick: it is to go on now
    bit<32>  left;		// ranks that are missing once this one has come
    bit<32>  children;
    bit<16>  byte0;		// of the ranks of a sum
    bit<16>  byte1;
    bit<16>  byte2;
    bit<16>  byte3;
#endif
}

struct egress_facts_t {
    bit<128> address;	// of the copy's rank
#ifdef AGGREGATORS
    bit<16>  copy;	// row of `copies`
#endif
#ifdef CANARY
    bit<16>  rank;
    bit<32>  told;
#endif
}

// Of all ports, for ordinary frames; a job's is its index and 1.
const bit<16> FLOOD_GROUP = 0xffff;

#endif
