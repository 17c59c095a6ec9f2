/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the portable core needs from its plane: fixed-size types and nothing else. */
#ifndef INAGG_CORE_TYPES_H
#define INAGG_CORE_TYPES_H

#include <linux/types.h>

#ifdef __bpf__
#define INAGG_INLINE static __attribute__((always_inline)) inline
/* BPF's verifier looks at such a function once, not on each path to it; its pointers may be NULL. */
#define INAGG_OUTLINE __attribute__((noinline))
#else
#define INAGG_INLINE static inline
#define INAGG_OUTLINE INAGG_INLINE
#endif

/* Byte order without libc: the compiler knows the machine's. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define inagg_swap16(x) __builtin_bswap16(x)
#define inagg_swap32(x) __builtin_bswap32(x)
#define inagg_swap64(x) __builtin_bswap64(x)
#else
#define inagg_swap16(x) (x)
#define inagg_swap32(x) (x)
#define inagg_swap64(x) (x)
#endif

/* A word of something else's memory: exempt from type-based alias analysis. */
typedef __u16 __attribute__((may_alias)) inagg_half;
typedef __u32 __attribute__((may_alias)) inagg_word;
typedef __u64 __attribute__((may_alias)) inagg_dword;

/** a is before b in serial number arithmetic (RFC 1982). */
INAGG_INLINE int inagg_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/** The same of epochs; 0, none, is before all. */
INAGG_INLINE int inagg_epoch_before(__u16 a, __u16 b)
{
	return b && (!a || (__s16)(a - b) < 0);
}

INAGG_INLINE __u64 inagg_rank_bit(__u32 rank)
{
	return 1ULL << (rank & 63);
}

/** How many ranks a bitmap names.  Not the compiler's: where there is no instruction, it calls a library. */
INAGG_INLINE __u32 inagg_count_ranks(__u64 ranks)
{
	ranks -= ranks >> 1 & 0x5555555555555555ULL;
	ranks = (ranks & 0x3333333333333333ULL) + (ranks >> 2 & 0x3333333333333333ULL);
	ranks = (ranks + (ranks >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (__u32)((ranks * 0x0101010101010101ULL) >> 56);
}

/** The first of them; @ranks is not empty. */
INAGG_INLINE __u32 inagg_lowest_rank(__u64 ranks)
{
	return inagg_count_ranks((ranks & -ranks) - 1) & 63;
}

/** Bitmap of ranks 0 .. size-1; @size is 1 .. 64. */
INAGG_INLINE __u64 inagg_all_ranks(__u32 size)
{
	return ~0ULL >> ((64 - size) & 63);
}

#endif /* INAGG_CORE_TYPES_H */
