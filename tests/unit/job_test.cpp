// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/job.h>

#include <gtest/gtest.h>

namespace {

inagg_job example_job() {
    inagg_job job{};
    job.all = inagg_all_ranks(4);
    job.slots = 128;
    job.control_slots = 8;
    job.generation = 7;
    job.size = 4;
    job.elements = 352;
    job.fan_in_log2 = 2;
    return job;
}

constexpr __u8 type_of(__u8 dtype, __u8 op = INAGG_WIRE_SUM) { return dtype << 4 | op; }

inagg_block example_block() {
    inagg_block b{};
    b.generation = 7;
    b.rank = 3;
    b.elements = 352;
    b.dtype_op = type_of(INAGG_WIRE_INT32);
    return b;
}

int admits(const inagg_block &b, __u32 slot = 0, int payload = -1) {
    const inagg_job job = example_job();
    const __u32 bytes = b.elements * inagg_element_bytes(b.dtype_op >> 4);
    return inagg_job_admits(&job, &b, slot, payload < 0 ? bytes : static_cast<__u32>(payload));
}

} // namespace

TEST(Job, AdmitsWhatItShould) {
    inagg_block b = example_block();
    EXPECT_EQ(admits(b), 0);
    EXPECT_EQ(admits(b, 127), 0);
    EXPECT_EQ(admits(b, 135), 0);
    for (__u16 elements : {0, 32, 320}) {
        b.elements = elements;
        EXPECT_EQ(admits(b), 0);
    }
    for (__u8 op : {INAGG_WIRE_SUM, INAGG_WIRE_MIN, INAGG_WIRE_MAX}) {
        b.dtype_op = type_of(INAGG_WIRE_INT32, op);
        EXPECT_EQ(admits(b), 0);
    }
    for (__u8 dtype : {INAGG_WIRE_FLOAT16, INAGG_WIRE_BFLOAT16}) {
        b.dtype_op = type_of(dtype);
        b.elements = 704;
        EXPECT_EQ(admits(b), 0);
    }
    b.dtype_op = type_of(INAGG_WIRE_NONE);
    b.elements = 0;
    EXPECT_EQ(admits(b, 128), 0);
}

TEST(Job, FloatsAreForAtp) {
    inagg_job job = example_job();
    inagg_block b = example_block();
    b.dtype_op = type_of(INAGG_WIRE_FLOAT32);
    EXPECT_EQ(inagg_job_admits(&job, &b, 0, 4U * b.elements), -INAGG_R_DTYPE);
    job.algorithm = INAGG_ATP;
    EXPECT_EQ(inagg_job_admits(&job, &b, 0, 4U * b.elements), 0);
    b.dtype_op = type_of(INAGG_WIRE_FLOAT32, INAGG_WIRE_MAX);
    EXPECT_EQ(inagg_job_admits(&job, &b, 0, 4U * b.elements), -INAGG_R_DTYPE);
}

TEST(Job, SumsOfPanamaAreFloatsUnlessASwitchAddsNone) {
    inagg_job job = example_job();
    job.algorithm = INAGG_PANAMA;
    for (const bool integers : {false, true}) {
        job.flags = integers ? INAGG_JOIN_INTEGERS : 0;
        for (const __u8 dtype : {INAGG_WIRE_FLOAT32, INAGG_WIRE_FIXED32, INAGG_WIRE_FLOAT16, INAGG_WIRE_BFLOAT16})
            EXPECT_EQ(inagg_foldable(&job, dtype, INAGG_WIRE_SUM), (dtype != INAGG_WIRE_FLOAT32) == integers) << +dtype;
        EXPECT_TRUE(inagg_foldable(&job, INAGG_WIRE_INT32, INAGG_WIRE_MAX));
    }
}

TEST(Job, Generation) {
    inagg_block b = example_block();
    for (__u16 generation : {6, 8, 0, 0xffff}) {
        b.generation = generation;
        EXPECT_EQ(admits(b), -INAGG_R_GENERATION);
    }
}

TEST(Job, Rank) {
    inagg_block b = example_block();
    for (__u16 rank : {4, 63, 64, 0xffff}) {
        b.rank = rank;
        EXPECT_EQ(admits(b), -INAGG_R_RANK);
    }
}

TEST(Job, Slot) {
    for (__u32 slot : {136u, 1u << 31, 0xffffffffu})
        EXPECT_EQ(admits(example_block(), slot), -INAGG_R_SLOT);
}

TEST(Job, DtypeAndOperator) {
    inagg_block b = example_block();
    for (int dtype = 0; dtype < 16; dtype++)
        for (int op = 0; op < 16; op++) {
            b.dtype_op = type_of(static_cast<__u8>(dtype), static_cast<__u8>(op));
            b.elements = 0;
            const bool sums = dtype == INAGG_WIRE_NONE || dtype == INAGG_WIRE_FIXED32 || dtype == INAGG_WIRE_FLOAT16 ||
                              dtype == INAGG_WIRE_BFLOAT16;
            const bool good = dtype == INAGG_WIRE_INT32 ? op <= INAGG_WIRE_MAX : sums && op == INAGG_WIRE_SUM;
            EXPECT_EQ(admits(b), good ? 0 : -INAGG_R_DTYPE) << dtype << " " << op;
        }
}

TEST(Job, Elements) {
    inagg_block b = example_block();
    for (__u16 elements : {1, 31, 33, 384, 0xffe0, 0xffff}) {
        b.elements = elements;
        EXPECT_EQ(admits(b), -INAGG_R_ELEMENTS) << elements;
    }
    b.dtype_op = type_of(INAGG_WIRE_FLOAT16);
    b.elements = 736;
    EXPECT_EQ(admits(b), -INAGG_R_ELEMENTS);
}

// A header that promises elements of no type has no payload to take them from.
TEST(Job, ControlBlocksHaveNoElements) {
    inagg_block b = example_block();
    b.dtype_op = type_of(INAGG_WIRE_NONE);
    b.elements = 32;
    EXPECT_EQ(admits(b), -INAGG_R_ELEMENTS);
}

TEST(Job, Length) {
    inagg_block b = example_block();
    for (int payload : {0, 4, 351 * 4, 353 * 4, 3000})
        EXPECT_EQ(admits(b, 0, payload), -INAGG_R_LENGTH);
    b.elements = 0;
    EXPECT_EQ(admits(b, 0, 4), -INAGG_R_LENGTH);
}

TEST(Job, BlockOfHeaderIsInHostOrder) {
    inagg_hdr h{};
    h.block = inagg_swap32(0x01020304);
    h.generation = inagg_swap16(0x0506);
    h.source = inagg_swap16(3);
    h.elements = inagg_swap16(352);
    h.dtype_op = 0x21;
    h.scale = 9;
    h.next_scale = 10;
    h.level_flags = inagg_swap16(INAGG_F_VERSION | INAGG_F_RESEND);
    inagg_block b = inagg_block_of(&h);
    EXPECT_EQ(b.block, 0x01020304u);
    EXPECT_EQ(b.generation, 0x0506);
    EXPECT_EQ(b.rank, 3);
    EXPECT_EQ(b.elements, 352);
    EXPECT_EQ(b.dtype_op, 0x21);
    EXPECT_EQ(b.scale, 9);
    EXPECT_EQ(b.next_scale, 10);
    EXPECT_EQ(b.saturated, 0);
    h.level_flags = inagg_swap16(INAGG_F_SATURATED);
    b = inagg_block_of(&h);
    EXPECT_EQ(b.saturated, 1);
}

TEST(Job, SeveralBlocksInAPacket) {
    inagg_job job = example_job();
    job.elements = 512;
    job.blocks = 4;
    inagg_block b = example_block();
    b.elements = 512;
    const auto blocks = [&](__u32 payload, __u32 slot = 0) { return inagg_blocks_in(&job, &b, slot, payload); };
    EXPECT_EQ(blocks(2 * 2048), 2u);
    EXPECT_EQ(blocks(4 * 2048), 4u);
    EXPECT_EQ(blocks(2048), 0u) << "that is one";
    EXPECT_EQ(blocks(5 * 2048), 0u) << "too many";
    for (__u32 payload : {0u, 2 * 2048u - 4, 2 * 2048u + 4, 3 * 2048u - 64, UINT32_MAX})
        EXPECT_EQ(blocks(payload), 0u) << payload;
    EXPECT_EQ(blocks(2 * 2048, 126), 2u);
    EXPECT_EQ(blocks(2 * 2048, 127), 0u) << "the second would be a control block, or of the other copy";
    EXPECT_EQ(blocks(2 * 2048, 128), 0u);
    for (__u8 type : {type_of(INAGG_WIRE_INT32, INAGG_WIRE_MIN), type_of(INAGG_WIRE_FLOAT16), type_of(INAGG_WIRE_FLOAT32)}) {
        b.dtype_op = type;
        EXPECT_EQ(blocks(2 * 2048), 0u) << int{type};
    }
    b.dtype_op = type_of(INAGG_WIRE_FIXED32);
    EXPECT_EQ(blocks(2 * 2048), 2u);
    b.absent = 1;
    EXPECT_EQ(blocks(2 * 2048), 0u);
    b.absent = 0;
    b.elements = 480;
    EXPECT_EQ(blocks(2 * 1920), 0u) << "as many elements as packets have";
    b.elements = job.elements = 352;
    EXPECT_EQ(blocks(2 * 1408), 0u) << "one block might be as long";
    EXPECT_EQ(blocks(3 * 1408), 3u);
    job.blocks = 2;
    EXPECT_EQ(blocks(3 * 1408), 0u) << "more than CONFIG said";
    job.blocks = 0;
    EXPECT_EQ(blocks(3 * 1408), 0u);
}

TEST(Job, WhoTakesSeveralBlocksInAPacket) {
    inagg_job job = example_job();
    const auto takes = [&](inagg_algorithm algorithm, __u8 flags = 0) {
        job.algorithm = static_cast<__u8>(algorithm);
        job.flags = flags;
        return inagg_job_takes_several(&job);
    };
    EXPECT_TRUE(takes(INAGG_SWITCHML));
    EXPECT_TRUE(takes(INAGG_TRIO));
    for (inagg_algorithm other : {INAGG_ATP, INAGG_PANAMA, INAGG_CANARY})
        EXPECT_FALSE(takes(other)) << other;
    EXPECT_FALSE(takes(INAGG_SWITCHML, INAGG_JOIN_TREE));
    EXPECT_FALSE(takes(INAGG_TRIO, INAGG_JOIN_CHECKED));
    job.group_port = 1;
    EXPECT_FALSE(takes(INAGG_SWITCHML)) << "results come to a group";
}
