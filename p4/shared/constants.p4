// SPDX-License-Identifier: BSD-2-Clause
// The numbers of include/inagg/wire.h, reason.h and bpf/switch_maps.h that a P4 switch needs, by the same names:
// tests/p4/constants compares each of them with its C definition.
#ifndef INAGG_P4_CONSTANTS
#define INAGG_P4_CONSTANTS

@noWarn("unused") const bit<16> INAGG_PORT = 12000;
@noWarn("unused") const bit<4> INAGG_WIRE_VERSION = 1;
@noWarn("unused") const bit<8> INAGG_TOS = 0xe2;
@noWarn("unused") const bit<16> INAGG_CANARY_ATTEMPTS = 3;

// enum inagg_type
@noWarn("unused") const bit<4> INAGG_CONTRIBUTION = 1;
@noWarn("unused") const bit<4> INAGG_REQUEST = 2;
@noWarn("unused") const bit<4> INAGG_RESTORE = 3;
@noWarn("unused") const bit<4> INAGG_JOIN = 4;
@noWarn("unused") const bit<4> INAGG_LEAVE = 5;
@noWarn("unused") const bit<4> INAGG_RESULT = 6;
@noWarn("unused") const bit<4> INAGG_WAIT = 7;
@noWarn("unused") const bit<4> INAGG_CONFIG = 8;
@noWarn("unused") const bit<4> INAGG_REFUSED = 9;
@noWarn("unused") const bit<4> INAGG_PARTIAL = 10;
@noWarn("unused") const bit<4> INAGG_BLOCK_FAILED = 12;
@noWarn("unused") const bit<4> INAGG_TICK = 13;

// enum inagg_wire_dtype
@noWarn("unused") const bit<4> INAGG_WIRE_NONE = 0;
@noWarn("unused") const bit<4> INAGG_WIRE_INT32 = 1;
@noWarn("unused") const bit<4> INAGG_WIRE_FIXED32 = 2;
@noWarn("unused") const bit<4> INAGG_WIRE_FLOAT32 = 5;

// enum inagg_wire_op
@noWarn("unused") const bit<4> INAGG_WIRE_SUM = 0;
@noWarn("unused") const bit<4> INAGG_WIRE_MIN = 1;
@noWarn("unused") const bit<4> INAGG_WIRE_MAX = 2;

// enum inagg_flag
@noWarn("unused") const bit<12> INAGG_F_VERSION = 0x001;
@noWarn("unused") const bit<12> INAGG_F_RESEND = 0x002;
@noWarn("unused") const bit<12> INAGG_F_MULTICAST = 0x004;
@noWarn("unused") const bit<12> INAGG_F_SATURATED = 0x008;
@noWarn("unused") const bit<12> INAGG_F_DEGRADED = 0x020;
@noWarn("unused") const bit<12> INAGG_F_COLLISION = 0x080;
@noWarn("unused") const bit<12> INAGG_F_BYPASS = 0x100;
@noWarn("unused") const bit<12> INAGG_F_CONGESTION = 0x200;
@noWarn("unused") const bit<12> INAGG_F_WHOLE = 0x400;
@noWarn("unused") const bit<12> INAGG_F_ABSENT = 0x800;

// enum inagg_slot_flag
@noWarn("unused") const bit<8> INAGG_SLOT_LIVE = 0x01;
@noWarn("unused") const bit<8> INAGG_SLOT_COMPLETE = 0x02;
@noWarn("unused") const bit<8> INAGG_SLOT_SATURATED = 0x04;
@noWarn("unused") const bit<8> INAGG_SLOT_SENT = 0x08;

// enum inagg_record_flag
@noWarn("unused") const bit<8> INAGG_RECORD_RECOVERING = 0x01;
@noWarn("unused") const bit<8> INAGG_RECORD_WHOLE = 0x02;
@noWarn("unused") const bit<8> INAGG_RECORD_EXPIRED = 0x04;
@noWarn("unused") const bit<8> INAGG_RECORD_DEGRADED = 0x08;

// inagg/core/record.h
@noWarn("unused") const bit<16> INAGG_MOST_SWEEPS = 65535;
@noWarn("unused") const bit<16> INAGG_RECOVERY_SWEEPS = 200;
@noWarn("unused") const bit<16> INAGG_RECOVERY_TICKS = 1024;

// enum inagg_reason
@noWarn("unused") const bit<8> INAGG_R_NONE = 0;
@noWarn("unused") const bit<8> INAGG_R_LENGTH = 1;
@noWarn("unused") const bit<8> INAGG_R_VERSION = 2;
@noWarn("unused") const bit<8> INAGG_R_HEADER_CHECKSUM = 3;
@noWarn("unused") const bit<8> INAGG_R_TYPE = 5;
@noWarn("unused") const bit<8> INAGG_R_JOB = 6;
@noWarn("unused") const bit<8> INAGG_R_RANK = 7;
@noWarn("unused") const bit<8> INAGG_R_PORT = 8;
@noWarn("unused") const bit<8> INAGG_R_ADDRESS = 9;
@noWarn("unused") const bit<8> INAGG_R_SLOT = 10;
@noWarn("unused") const bit<8> INAGG_R_GENERATION = 11;
@noWarn("unused") const bit<8> INAGG_R_STALE = 12;
@noWarn("unused") const bit<8> INAGG_R_MISMATCH = 13;
@noWarn("unused") const bit<8> INAGG_R_ELEMENTS = 14;
@noWarn("unused") const bit<8> INAGG_R_DTYPE = 15;
@noWarn("unused") const bit<8> INAGG_R_UNSOLICITED = 16;
@noWarn("unused") const bit<8> INAGG_R_DUPLICATE = 18;
@noWarn("unused") const bit<8> INAGG_R_ALGORITHM = 19;
@noWarn("unused") const bit<8> INAGG_R_FULL = 23;
@noWarn("unused") const bit<8> INAGG_R_PARSE = 26;
@noWarn("unused") const bit<8> INAGG_R_PARENT = 29;
@noWarn("unused") const bit<8> INAGG_R_EXCLUDED = 30;

// enum inagg_algorithm
@noWarn("unused") const bit<8> INAGG_SWITCHML = 0;
@noWarn("unused") const bit<8> INAGG_TRIO = 1;
@noWarn("unused") const bit<8> INAGG_ATP = 2;
@noWarn("unused") const bit<8> INAGG_PANAMA = 3;
@noWarn("unused") const bit<8> INAGG_CANARY = 4;

// bpf/switch_maps.h
@noWarn("unused") const bit<16> INAGG_MAX_RANKS = 64;
@noWarn("unused") const bit<32> INAGG_STATS_NO_JOB = 64;

#endif
