/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Why a packet was dropped or a join refused: one enumeration for every plane.  Numbers are counted
 * per job, shown by `inaggctl drops`, and never reused.
 */
#ifndef INAGG_REASON_H
#define INAGG_REASON_H

#define INAGG_REASONS(X)                                                                              \
	X(0, NONE, "no reason")                                                                       \
	X(1, LENGTH, "length does not match the header")                                              \
	X(2, VERSION, "unknown wire version")                                                         \
	X(3, HEADER_CHECKSUM, "header checksum is wrong")                                             \
	X(4, PAYLOAD_CHECKSUM, "payload checksum is wrong")                                           \
	X(5, TYPE, "packet type not accepted here")                                                   \
	X(6, JOB, "no such job")                                                                      \
	X(7, RANK, "rank outside the job, or not joined")                                             \
	X(8, PORT, "rank belongs to another port")                                                    \
	X(9, ADDRESS, "rank belongs to another address")                                              \
	X(10, SLOT, "slot index outside the job's pool")                                              \
	X(11, GENERATION, "packet of another incarnation of the job")                                 \
	X(12, STALE, "block is older than the slot's")                                                \
	X(13, MISMATCH, "type, operator, scale or length differs from the block's other contributions") \
	X(14, ELEMENTS, "element count above the job's, no multiple of a chunk, or zero")                   \
	X(15, DTYPE, "unknown data type or operator")                                                 \
	X(16, UNSOLICITED, "restore or floats that nobody waits for")                                 \
	X(17, RESIZE, "frame cannot hold the answer")                                                 \
	X(18, DUPLICATE, "contribution is already in")                                                \
	X(19, ALGORITHM, "algorithm not available, or not the job's")                                 \
	X(20, SIZE, "job has another number of ranks")                                                \
	X(21, TAKEN, "rank is held by another host")                                                  \
	X(22, MTU, "MTU is smaller than the job's packets")                                           \
	X(23, FULL, "no slots, memory or job numbers left on this switch")                                    \
	X(24, POLICY, "the switch makes no such job on request")                                   \
	X(25, REPLACED, "the job was restarted by another run")                                       \
	X(26, PARSE, "headers cannot be parsed")                                                      \
	X(27, MULTICAST, "no port to send the result to")                                             \
	X(28, BUSY, "slot is in use by another CPU")                                                  \
	X(29, PARENT, "not a parent or child of this switch")                                          \
	X(30, EXCLUDED, "rank was excluded as a permanent straggler: join again")                      \
	X(31, MOVED, "the job is at another root")                                                    \
	X(32, UNLINKED, "no root that all ranks of the job have a link to: check the links between the switches") \
	X(33, FORMING, "too many jobs of this host, or behind this port of the switch, wait for ranks")                       \
	X(34, KEY, "ranks and switches need the same join key: INAGG_JOIN_KEY, inaggd --key-file") \
	X(35, CHALLENGE, "prove that with this challenge")                                            \
	X(36, QUOTA, "the job sends more than this switch has for one job: inaggd --job-rate, --job-uplink-rate") \
	X(37, RATE, "more JOINs and LEAVEs of one port, or host, than are looked at")

enum inagg_reason {
#define INAGG_REASON_ENUM(number, name, text) INAGG_R_##name = number,
	INAGG_REASONS(INAGG_REASON_ENUM)
#undef INAGG_REASON_ENUM
	INAGG_R_COUNT,
	INAGG_R_CAPACITY = 64,	/* size of counter arrays: room for later reasons without an ABI change */
};

#endif /* INAGG_REASON_H */
