/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Moving and folding elements.  A chunk is 32 elements: 16 words of 64 bits, two 32-bit lanes in each.
 *
 * All loops are bounded by INAGG_MAX_CHUNKS and check the packet's end once a chunk, which is what the
 * verifier can follow.
 */
#ifndef INAGG_LANES_H
#define INAGG_LANES_H

#include "parse.h"
#include "switch_maps.h"

#define INAGG_MAX_CHUNKS	(INAGG_MAX_ELEMENTS / INAGG_CHUNK)
#define CHUNK_WORDS		(INAGG_CHUNK / 2)
#define LINE_WORDS		8	/* 64 bytes: a chunk of 16-bit elements */
#define LANE_CARRY		0x100000000ULL	/* what the lower lane carries into the upper */
#define LOW_LANE		0xffffffffULL

/* Two 32-bit additions: one of 64 bits, less the carry between the lanes. */
static __always_inline __u64 add_wrapping(__u64 a, __u64 b)
{
	__u64 sum = a + b;

	return sum - ((a ^ b ^ sum) & LANE_CARRY);
}

/* Offset binary: the job's sum fits each lane, so no carry can happen (core/fixed.h). */
static __always_inline __u64 add_fixed(__u64 a, __u64 b)
{
	return a + b;
}

static __always_inline __u64 min_lanes(__u64 a, __u64 b)
{
	__u64 low = (__s32)a < (__s32)b ? a : b;
	__u64 high = (__s64)a < (__s64)b ? a : b;	/* a tie in the high lane is the same lane */

	return (high & ~LOW_LANE) | (low & LOW_LANE);
}

static __always_inline __u64 max_lanes(__u64 a, __u64 b)
{
	__u64 low = (__s32)a < (__s32)b ? b : a;
	__u64 high = (__s64)a < (__s64)b ? b : a;

	return (high & ~LOW_LANE) | (low & LOW_LANE);
}

/*
 * For each word of the packet (p) and of the slot (a) in the first @chunks chunks.  `continue` and
 * `break` mean nothing in @statement.
 */
#define FOR_EACH_WORD(payload, end, lanes, chunks, statement)                                         \
	for (__u32 chunk_ = 0; chunk_ < INAGG_MAX_CHUNKS; chunk_++) {                                 \
		__u64 *p_ = (__u64 *)(payload) + chunk_ * CHUNK_WORDS;                                \
		__u64 *a_ = (lanes) + chunk_ * CHUNK_WORDS;                                           \
                                                                                                      \
		if (chunk_ >= (chunks) || (void *)(p_ + CHUNK_WORDS) > (end))                         \
			break;                                                                        \
		_Pragma("unroll") for (int word_ = 0; word_ < CHUNK_WORDS; word_++) {                 \
			__u64 *p = p_ + word_, *a = a_ + word_;                                       \
                                                                                                      \
			statement;                                                                    \
		}                                                                                     \
	}

static __always_inline void lanes_store(void *payload, void *end, __u64 *lanes, __u32 chunks)
{
	FOR_EACH_WORD(payload, end, lanes, chunks, *a = *p)
}

static __always_inline void lanes_add(void *payload, void *end, __u64 *lanes, __u32 chunks, __u8 dtype_op)
{
	if (dtype_op == INAGG_WIRE_FIXED32 << 4) {
		FOR_EACH_WORD(payload, end, lanes, chunks, *a = add_fixed(*a, *p))
	} else {
		FOR_EACH_WORD(payload, end, lanes, chunks, *a = add_wrapping(*a, *p))
	}
}

/* Lanes of a block, whichever memory they are in. */
struct lanes {
	__u64	word[INAGG_MAX_ELEMENTS / 2];
};

/*
 * Where the work on an element has branches, or many instructions: verifiers look at a global function once, and not
 * once for each way to get there, and at the body of bpf_loop() once, and not at each of 26 chunks.
 */
struct choosing {
	struct xdp_md *ctx;
	struct lanes *lanes;
	__u32	op;
};

static long choose_chunk(__u32 chunk, void *context)
{
	struct choosing *c = context;
	struct inagg_hdr *h;
	__u64 *p, *a;
	void *end;

	h = header_of(c->ctx, &end);
	if (!h || chunk >= INAGG_MAX_CHUNKS)
		return 1;
	p = (__u64 *)(h + 1) + chunk * CHUNK_WORDS;
	a = c->lanes->word + chunk * CHUNK_WORDS;
	if ((void *)(p + CHUNK_WORDS) > end)
		return 1;
#pragma nounroll
	for (__u32 i = 0; i < CHUNK_WORDS; i++)
		a[i] = c->op == INAGG_WIRE_MIN ? min_lanes(a[i], p[i]) : max_lanes(a[i], p[i]);
	return 0;
}

/* Minimum or maximum, @op, of the packet's elements and a block's. */
__attribute__((noinline)) int lanes_choose(struct xdp_md *ctx, struct lanes *lanes, __u32 chunks, __u32 op)
{
	struct choosing c = { ctx, lanes, op };

	if (!lanes)
		return -1;
	bpf_loop(chunks, choose_chunk, &c, 0);
	return 0;
}

/*
 * The last contribution: the sum goes to the slot and into the packet, which becomes the result.  Four
 * words at a time, first to the one and then to the other: a CPU writes runs of stores to one place
 * faster than stores that alternate between two.
 */
#define COMPLETE_FOUR(p, a, add)                                                                      \
	do {                                                                                          \
		__u64 s0 = add((a)[0], (p)[0]), s1 = add((a)[1], (p)[1]);                             \
		__u64 s2 = add((a)[2], (p)[2]), s3 = add((a)[3], (p)[3]);                             \
                                                                                                      \
		(a)[0] = s0, (a)[1] = s1, (a)[2] = s2, (a)[3] = s3;                                   \
		(p)[0] = s0, (p)[1] = s1, (p)[2] = s2, (p)[3] = s3;                                   \
	} while (0)

#define COMPLETE_CHUNKS(payload, end, lanes, chunks, add)                                             \
	for (__u32 chunk_ = 0; chunk_ < INAGG_MAX_CHUNKS; chunk_++) {                                 \
		__u64 *p_ = (__u64 *)(payload) + chunk_ * CHUNK_WORDS;                                \
		__u64 *a_ = (lanes) + chunk_ * CHUNK_WORDS;                                           \
                                                                                                      \
		if (chunk_ >= (chunks) || (void *)(p_ + CHUNK_WORDS) > (end))                         \
			break;                                                                        \
		_Pragma("unroll") for (int word_ = 0; word_ < CHUNK_WORDS; word_ += 4)                \
			COMPLETE_FOUR(p_ + word_, a_ + word_, add);                                   \
	}

static __always_inline void lanes_complete(void *payload, void *end, __u64 *lanes, __u32 chunks, __u8 dtype_op)
{
	if (dtype_op == INAGG_WIRE_FIXED32 << 4) {
		COMPLETE_CHUNKS(payload, end, lanes, chunks, add_fixed)
	} else {
		COMPLETE_CHUNKS(payload, end, lanes, chunks, add_wrapping)
	}
}

/* Copy @lines lines of 64 bytes of a finished result between packet and slot. */
#define FOR_EACH_LINE(payload, end, lanes, lines, statement)                                          \
	for (__u32 line_ = 0; line_ < 2 * INAGG_MAX_CHUNKS; line_++) {                                \
		__u64 *p_ = (__u64 *)(payload) + line_ * LINE_WORDS;                                  \
		__u64 *a_ = (lanes) + line_ * LINE_WORDS;                                             \
                                                                                                      \
		if (line_ >= (lines) || (void *)(p_ + LINE_WORDS) > (end))                            \
			break;                                                                        \
		_Pragma("unroll") for (int word_ = 0; word_ < LINE_WORDS; word_++) {                  \
			__u64 *p = p_ + word_, *a = a_ + word_;                                       \
                                                                                                      \
			statement;                                                                    \
		}                                                                                     \
	}

static __always_inline void result_to_packet(__u64 *lanes, void *payload, void *end, __u32 lines)
{
	FOR_EACH_LINE(payload, end, lanes, lines, *p = *a)
}

/* The same of a block, of the packet's own payload; a global function as lanes_choose(). */
__attribute__((noinline)) int lanes_load(struct xdp_md *ctx, struct lanes *lanes, __u32 lines)
{
	struct inagg_hdr *h;
	void *end;

	h = header_of(ctx, &end);
	if (!h || !lanes)
		return -1;
	result_to_packet(lanes->word, h + 1, end, lines);
	return 0;
}

static __always_inline void packet_to_result(void *payload, void *end, __u64 *lanes, __u32 lines)
{
	FOR_EACH_LINE(payload, end, lanes, lines, *a = *p)
}

/*
 * The payload's part of the checksum (core/checksum.h), over @lines lines of 64 bytes.  A global function, as
 * lanes_choose(); 0 where there is no payload.
 */
__attribute__((noinline)) __u32 payload_checksum(struct xdp_md *ctx, __u32 lines)
{
	struct inagg_digest sum = {};
	struct inagg_hdr *h;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return 0;
	for (__u32 line = 0; line < 2 * INAGG_MAX_CHUNKS; line++) {
		__u64 *p = (__u64 *)(h + 1) + line * LINE_WORDS;

		if (line >= lines || (void *)(p + LINE_WORDS) > end)
			break;
#pragma unroll
		for (int word = 0; word < LINE_WORDS; word++)
			inagg_digest_add(&sum, p[word]);
	}
	return inagg_digest_fold(&sum);
}

/*
 * 16-bit floats are added as fixed point: widened into offset binary lanes when a packet comes,
 * narrowed once when the block is complete.  Both run outside the block's lock, on a per-CPU buffer.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lanes);
} scratch SEC(".maps");

static __always_inline struct lanes *get_widened(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

/* @halves is two 16-bit floats, a lane pair their offset binary. */
static __always_inline __u64 widen_pair(__u32 halves, __u32 mantissa_bits, __u32 fan_in_log2, __u32 scale,
					__u32 bias)
{
	__u32 low = bias + inagg_half_to_fixed(halves, mantissa_bits, fan_in_log2, scale);
	__u32 high = bias + inagg_half_to_fixed(halves >> 16, mantissa_bits, fan_in_log2, scale);

	return low | (__u64)high << 32;
}

static __always_inline __u32 narrow_pair(__u64 lanes, __u32 mantissa_bits, __u32 fan_in_log2, __u32 scale,
					 __u32 bias)
{
	__s32 low = (__u32)lanes - bias, high = (__u32)(lanes >> 32) - bias;

	return inagg_fixed_to_half(low, mantissa_bits, fan_in_log2, scale) |
	       (__u32)inagg_fixed_to_half(high, mantissa_bits, fan_in_log2, scale) << 16;
}

/* As lanes_choose().  @bias is that of one contribution to widen, of all together to narrow. */
struct widening {
	struct xdp_md *ctx;
	struct lanes *wide;
	__u32	mantissa_bits;
	__u32	fan_in_log2;
	__u32	scale;
	__u32	bias;
};

static long widen_chunk(__u32 chunk, void *context)
{
	const struct widening w = *(struct widening *)context;
	__u64 *wide = w.wide->word + chunk * CHUNK_WORDS;
	struct inagg_hdr *h;
	__u32 *p;
	void *end;

	h = header_of(w.ctx, &end);
	if (!h || chunk >= INAGG_MAX_CHUNKS)
		return 1;
	p = (__u32 *)(h + 1) + chunk * CHUNK_WORDS;
	if ((void *)(p + CHUNK_WORDS) > end)
		return 1;
#pragma unroll
	for (__u32 i = 0; i < CHUNK_WORDS; i++)
		wide[i] = widen_pair(p[i], w.mantissa_bits, w.fan_in_log2, w.scale, w.bias);
	return 0;
}

/* The packet's elements into the buffer, to the end of the frame, which has whole chunks. */
__attribute__((noinline)) int widen(struct xdp_md *ctx, __u32 mantissa_bits, __u32 fan_in_log2, __u32 scale,
				    __u32 bias)
{
	struct widening w = { ctx, get_widened(), mantissa_bits, fan_in_log2, scale, bias };

	if (!w.wide)
		return -1;
	bpf_loop(INAGG_MAX_CHUNKS, widen_chunk, &w, 0);
	return 0;
}

struct narrowing {
	struct lanes *wide;
	__u32	mantissa_bits;
	__u32	fan_in_log2;
	__u32	scale;
	__u32	bias;
};

static long narrow_chunk(__u32 chunk, void *context)
{
	struct narrowing *n = context;

	if (chunk >= INAGG_MAX_CHUNKS)
		return 1;
#pragma nounroll
	for (__u32 i = 0; i < CHUNK_WORDS; i++) {
		__u32 pair = chunk * CHUNK_WORDS + i;

		((inagg_word *)n->wide->word)[pair] = narrow_pair(n->wide->word[pair], n->mantissa_bits,
								  n->fan_in_log2, n->scale, n->bias);
	}
	return 0;
}

/* The first @chunks chunks of the buffer, in place. */
__attribute__((noinline)) int narrow(__u32 chunks, __u32 mantissa_bits, __u32 fan_in_log2, __u32 scale, __u32 bias)
{
	struct narrowing n = { get_widened(), mantissa_bits, fan_in_log2, scale, bias };

	if (!n.wide)
		return -1;
	bpf_loop(chunks, narrow_chunk, &n, 0);
	return 0;
}

/*
 * Between a block's lanes and the buffer, under the lock.  @chunks counts 32 elements, widened.  Global functions
 * again, which leave one state behind, where a loop leaves one for each exit.
 */
#define FOR_EACH_WIDE(wide, sums, chunks, statement)                                                  \
	for (__u32 chunk_ = 0; chunk_ < INAGG_MAX_CHUNKS; chunk_++) {                                 \
		if (chunk_ >= (chunks))                                                               \
			break;                                                                        \
		_Pragma("unroll") for (int word_ = 0; word_ < CHUNK_WORDS; word_++) {                 \
			__u64 *p = (wide)->word + chunk_ * CHUNK_WORDS + word_;                       \
			__u64 *a = (sums)->word + chunk_ * CHUNK_WORDS + word_;                       \
                                                                                                      \
			statement;                                                                    \
		}                                                                                     \
	}

__attribute__((noinline)) int wide_store(struct lanes *sums, __u32 chunks)
{
	struct lanes *wide = get_widened();

	if (!sums || !wide)
		return -1;
	FOR_EACH_WIDE(wide, sums, chunks, *a = *p)
	return 0;
}

__attribute__((noinline)) int wide_add(struct lanes *sums, __u32 chunks)
{
	struct lanes *wide = get_widened();

	if (!sums || !wide)
		return -1;
	FOR_EACH_WIDE(wide, sums, chunks, *a = add_fixed(*a, *p))
	return 0;
}

__attribute__((noinline)) int wide_add_wrapping(struct lanes *sums, __u32 chunks)
{
	struct lanes *wide = get_widened();

	if (!sums || !wide)
		return -1;
	FOR_EACH_WIDE(wide, sums, chunks, *a = add_wrapping(*a, *p))
	return 0;
}

__attribute__((noinline)) int wide_load(struct lanes *sums, __u32 chunks)
{
	struct lanes *wide = get_widened();

	if (!sums || !wide)
		return -1;
	FOR_EACH_WIDE(wide, sums, chunks, *p = *a)
	return 0;
}

#endif /* INAGG_LANES_H */
