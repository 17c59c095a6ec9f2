// SPDX-License-Identifier: BSD-2-Clause
// What a worker believes of a switch's answers: each field that is wrong has its reason.
#include <inagg/core/packet.h>

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace {

constexpr __u32 first_slot = 100, slots = 8;

inagg_job_config some_job() {
    inagg_job_config job{};
    job.job = 7;
    job.rank = 2;
    job.size = 3;
    job.generation = 41;
    job.boot = 42;
    job.elements = 352;
    job.slots = slots;
    job.control_slots = 2;
    return job;
}

struct Answers : testing::Test {
    inagg_job_config job = some_job();
    inagg_worker worker;

    Answers() { inagg_worker_init(&worker, slots, 0); }

    // A result of all ranks as a switch sends it.
    inagg_hdr result(__u32 block, __u16 elements = 64, __u8 dtype = INAGG_WIRE_INT32) const {
        inagg_block_meta meta{};
        meta.dtype_op = static_cast<__u8>(dtype << 4);
        meta.elements = elements;
        meta.contributors = inagg_all_ranks(job.size);
        inagg_hdr h;
        inagg_hdr_start(&h, &job, INAGG_RESULT);
        inagg_hdr_set_block(&h, &worker, first_slot, block);
        inagg_hdr_set_meta(&h, &meta);
        inagg_hdr_set_contributors(&h, &meta);
        return h;
    }
    int admits(const inagg_hdr &h, __u32 bytes) const { return inagg_block_admits(&job, &worker, first_slot, &h, bytes); }
};

} // namespace

TEST(Packet, ElementsOfAPath) {
    EXPECT_EQ(inagg_elements_for(1500 - 28), 352);
    EXPECT_EQ(inagg_elements_for(1500 - 48), 320);
    EXPECT_EQ(inagg_elements_for(sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD), INAGG_MAX_ELEMENTS);
    EXPECT_EQ(inagg_elements_for(9000), INAGG_MAX_ELEMENTS);
    EXPECT_EQ(inagg_elements_for(~0U), INAGG_MAX_ELEMENTS);
    EXPECT_EQ(inagg_elements_for(sizeof(inagg_hdr) + 4 * INAGG_CHUNK), INAGG_CHUNK);
    EXPECT_EQ(inagg_elements_for(sizeof(inagg_hdr) + 4 * INAGG_CHUNK - 1), 0);
    EXPECT_EQ(inagg_elements_for(sizeof(inagg_hdr)), 0);
    EXPECT_EQ(inagg_elements_for(0), 0);
}

TEST(Packet, StartsWithTheMembership) {
    const inagg_job_config job = some_job();
    inagg_hdr h;
    inagg_hdr_start(&h, &job, INAGG_CONTRIBUTION);
    EXPECT_EQ(inagg_hdr_version(&h), INAGG_WIRE_VERSION);
    EXPECT_EQ(inagg_hdr_type(&h), INAGG_CONTRIBUTION);
    EXPECT_EQ(inagg_swap16(h.job), 7);
    EXPECT_EQ(inagg_swap16(h.generation), 41);
    EXPECT_EQ(inagg_swap16(h.source), 2);
    EXPECT_EQ(inagg_swap16(h.count), 1);
    EXPECT_EQ(inagg_swap16(h.fan_in), 3);
    EXPECT_EQ(inagg_swap64(h.contributors), 4U);
    EXPECT_EQ(inagg_swap16(h.boot), 42);
    EXPECT_EQ(h.level_flags, 0);
    EXPECT_EQ(h.block | h.slot, 0U);
    for (const inagg_type type : {INAGG_REQUEST, INAGG_RESTORE}) {
        inagg_hdr_start(&h, &job, type);
        EXPECT_EQ(inagg_swap16(h.level_flags), INAGG_F_RESEND) << "neither is a first contribution";
    }
}

TEST_F(Answers, BlocksNameTheirSlotAndVersion) {
    for (const __u32 block : {0U, 5U, 8U, 13U, 16U, ~0U}) {
        const inagg_hdr h = result(block);
        EXPECT_EQ(inagg_swap32(h.block), block);
        EXPECT_EQ(inagg_swap32(h.slot), first_slot + block % slots);
        EXPECT_EQ(inagg_swap16(h.level_flags) & INAGG_F_VERSION, block / slots % 2) << block;
    }
}

TEST(Packet, MetaComesBack) {
    for (const __u8 saturated : {0, 1}) {
        inagg_block_meta meta{};
        meta.dtype_op = INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM;
        meta.scale = 130;
        meta.next_scale = 17;
        meta.saturated = saturated;
        meta.elements = 352;
        inagg_hdr h{};
        h.level_flags = inagg_swap16(INAGG_F_VERSION);
        inagg_hdr_set_meta(&h, &meta);
        const inagg_block_meta back = inagg_hdr_meta(&h);
        EXPECT_EQ(back.dtype_op, meta.dtype_op);
        EXPECT_EQ(back.scale, meta.scale);
        EXPECT_EQ(back.next_scale, meta.next_scale);
        EXPECT_EQ(back.saturated, meta.saturated);
        EXPECT_EQ(back.elements, meta.elements);
        EXPECT_EQ(inagg_block_bytes(&back), 352U * 4);
        EXPECT_EQ(inagg_swap16(h.level_flags), INAGG_F_VERSION | (saturated ? INAGG_F_SATURATED : 0));
    }
}

TEST(Packet, MetaSaysWhatARankWantsOfTheOthers) {
    for (const __u8 whole : {0, 1})
        for (const __u8 absent : {0, 1}) {
            inagg_block_meta meta{};
            meta.whole = whole;
            meta.absent = absent;
            meta.epoch = 4711;
            inagg_hdr h{};
            inagg_hdr_set_meta(&h, &meta);
            const inagg_block_meta back = inagg_hdr_meta(&h);
            EXPECT_EQ(back.whole, whole);
            EXPECT_EQ(back.absent, absent);
            EXPECT_EQ(back.epoch, 4711);
        }
}

TEST(Packet, JoinSaysWhatTheJobAsksFor) {
    inagg_job_config job = some_job();
    inagg_join body;
    job.checked = 1;
    job.algorithm = INAGG_TRIO;
    job.expiry_us = 70000;
    job.quorum = 2;
    inagg_join_fill(&body, &job, 0x123456789abcdef0, 4711);
    EXPECT_EQ(inagg_swap64(body.nonce), 0x123456789abcdef0U);
    EXPECT_EQ(inagg_swap16(body.size), 3);
    EXPECT_EQ(inagg_swap16(body.elements), 352);
    EXPECT_EQ(inagg_swap16(body.receive_port), 4711);
    EXPECT_EQ(body.algorithm, INAGG_TRIO);
    EXPECT_EQ(body.flags, INAGG_JOIN_CHECKED | INAGG_JOIN_BIG_ENDIAN);
    EXPECT_EQ(inagg_swap32(body.expiry_us), 70000U);
    EXPECT_EQ(inagg_swap16(body.quorum), 2);
    for (const __u8 byte : body.reserved)
        EXPECT_EQ(byte, 0);
    job.checked = 0;
    inagg_join_fill(&body, &job, 1, 2);
    EXPECT_EQ(body.flags, INAGG_JOIN_BIG_ENDIAN) << "it can turn its elements";
}

namespace {

// What accepting a CONFIG gives that a change makes different from a good one.
int accept(const std::function<void(inagg_config &)> &change, inagg_job_config *out = nullptr) {
    inagg_job_config job = some_job();
    inagg_hdr h{};
    h.generation = inagg_swap16(55);
    h.boot = inagg_swap16(56);
    inagg_config c{};
    c.size = inagg_swap16(3);
    c.elements = inagg_swap16(320);
    c.slots = inagg_swap32(128);
    c.control_slots = inagg_swap32(8);
    c.algorithm = job.algorithm;
    change(c);
    const int result = inagg_config_accept(&job, &h, &c);
    if (out)
        *out = job;
    return result;
}

} // namespace

TEST(Config, IsTakenOver) {
    inagg_job_config job;
    ASSERT_EQ(accept([](inagg_config &c) { c.flags = INAGG_JOIN_CHECKED; }, &job), 0);
    EXPECT_EQ(job.generation, 55);
    EXPECT_EQ(job.boot, 56);
    EXPECT_EQ(job.elements, 320);
    EXPECT_EQ(job.slots, 128U);
    EXPECT_EQ(job.control_slots, 8U);
    EXPECT_TRUE(job.checked);
    ASSERT_EQ(accept([](inagg_config &) {}, &job), 0);
    EXPECT_FALSE(job.checked);
    EXPECT_FALSE(job.big_endian);
    EXPECT_FALSE(job.tree);
    ASSERT_EQ(accept([](inagg_config &c) { c.flags = INAGG_JOIN_BIG_ENDIAN; }, &job), 0);
    EXPECT_TRUE(job.big_endian);
    EXPECT_TRUE(job.tree) << "no halves, which would be turned in pairs";
}

TEST(Elements, AreTurnedWordByWordWhereverTheyLie) {
    std::vector<uint8_t> bytes = {9, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    inagg_turn_elements(&bytes[1], 8);
    const std::vector<uint8_t> turned = {9, 4, 3, 2, 1, 8, 7, 6, 5, 9};
    EXPECT_EQ(bytes, turned);
    inagg_turn_elements(&bytes[1], 0);
    EXPECT_EQ(bytes, turned);
}

TEST(Config, WhatNoSaneSwitchAnswersHasItsReason) {
    EXPECT_EQ(accept([](inagg_config &c) { c.size = inagg_swap16(4); }), -INAGG_R_SIZE);
    EXPECT_EQ(accept([](inagg_config &c) { c.algorithm = INAGG_ATP; }), -INAGG_R_ALGORITHM);
    for (const __u16 elements : {0, 1, 100, 353, 384}) // none, not whole chunks, more than the path carries
        EXPECT_EQ(accept([&](inagg_config &c) { c.elements = inagg_swap16(elements); }), -INAGG_R_MTU) << elements;
    EXPECT_EQ(accept([](inagg_config &c) { c.elements = inagg_swap16(352); }), 0);
    for (const __u32 count : {0U, 3U, 127U, 2 * INAGG_MAX_SLOTS, ~0U}) {
        EXPECT_EQ(accept([&](inagg_config &c) { c.slots = inagg_swap32(count); }), -INAGG_R_SLOT) << count;
        EXPECT_EQ(accept([&](inagg_config &c) { c.control_slots = inagg_swap32(count); }), -INAGG_R_SLOT) << count;
    }
    EXPECT_EQ(accept([](inagg_config &c) { c.slots = inagg_swap32(INAGG_MAX_SLOTS); }), 0);
    EXPECT_EQ(accept([](inagg_config &c) { c.control_slots = inagg_swap32(1); }), 0);
}

TEST_F(Answers, HeaderOfThisJobAndVersion) {
    inagg_hdr h = result(0);
    EXPECT_EQ(inagg_answer_admits(&job, &h), -INAGG_R_HEADER_CHECKSUM) << "not sealed";
    inagg_hdr_seal(&h);
    EXPECT_EQ(inagg_answer_admits(&job, &h), 0);
    h.source ^= 1;
    EXPECT_EQ(inagg_answer_admits(&job, &h), -INAGG_R_HEADER_CHECKSUM);
    h = result(0);
    h.version_type = (INAGG_WIRE_VERSION + 1) << 4 | INAGG_RESULT;
    inagg_hdr_seal(&h);
    EXPECT_EQ(inagg_answer_admits(&job, &h), -INAGG_R_VERSION);
    h = result(0);
    h.job = inagg_swap16(8);
    inagg_hdr_seal(&h);
    EXPECT_EQ(inagg_answer_admits(&job, &h), -INAGG_R_JOB);
}

TEST_F(Answers, ResultsOfEveryBlockFit) {
    for (const __u32 block : {0U, 7U, 8U, 12345U, ~0U}) {
        EXPECT_EQ(admits(result(block), 64 * 4), 0);
        EXPECT_EQ(admits(result(block, 704, INAGG_WIRE_FLOAT16), 704 * 2), 0);
        EXPECT_EQ(admits(result(block, 0, INAGG_WIRE_NONE), 0), 0);
    }
}

TEST_F(Answers, ResultThatDoesNotFitHasItsReason) {
    inagg_hdr h = result(5);
    h.generation = inagg_swap16(40);
    EXPECT_EQ(admits(h, 64 * 4), -INAGG_R_GENERATION);

    h = result(5);
    h.slot = inagg_swap32(first_slot + 4);
    EXPECT_EQ(admits(h, 64 * 4), -INAGG_R_SLOT);
    h.slot = inagg_swap32(5);
    EXPECT_EQ(admits(h, 64 * 4), -INAGG_R_SLOT) << "of another stream";
    h = result(5);
    h.level_flags ^= inagg_swap16(INAGG_F_VERSION);
    EXPECT_EQ(admits(h, 64 * 4), -INAGG_R_SLOT);

    EXPECT_EQ(admits(result(5, 63), 63 * 4), -INAGG_R_ELEMENTS);
    EXPECT_EQ(admits(result(5, 384), 384 * 4), -INAGG_R_ELEMENTS) << "more than the job's packets hold";
    EXPECT_EQ(admits(result(5, 736, INAGG_WIRE_BFLOAT16), 736 * 2), -INAGG_R_ELEMENTS);
    for (const __u32 bytes : {0U, 64U, 63U * 4, 65U * 4})
        EXPECT_EQ(admits(result(5), bytes), -INAGG_R_LENGTH) << bytes;
    EXPECT_EQ(admits(result(5, 64, INAGG_WIRE_DTYPES), 64 * 4), -INAGG_R_LENGTH) << "no such type";

    h = result(5);
    h.contributors = inagg_swap64(3);
    EXPECT_EQ(admits(h, 64 * 4), -INAGG_R_RANK) << "a rank is missing";
    h.contributors = inagg_swap64(15);
    EXPECT_EQ(admits(h, 64 * 4), -INAGG_R_RANK) << "a rank too many";
}

TEST_F(Answers, WaitHasNoElementsAndAnyContributors) {
    inagg_hdr h = result(5);
    h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_WAIT;
    h.contributors = 0;
    EXPECT_EQ(admits(h, 0), 0);
    EXPECT_EQ(admits(h, 64 * 4), -INAGG_R_LENGTH);
    h.slot = inagg_swap32(first_slot);
    EXPECT_EQ(admits(h, 0), -INAGG_R_SLOT);
}

TEST(Packet, WhatOnlyTrioSaysComesBack) {
    for (const __u8 whole : {0, 1}) {
        inagg_block_meta meta{};
        meta.whole = whole;
        meta.epoch = 0x1234;
        inagg_hdr h{};
        inagg_hdr_set_meta(&h, &meta);
        EXPECT_EQ(inagg_swap16(h.level_flags), whole ? INAGG_F_WHOLE : 0);
        EXPECT_EQ(inagg_swap16(h.switch_id), 0x1234);
        const inagg_block_meta back = inagg_hdr_meta(&h);
        EXPECT_EQ(back.whole, whole);
        EXPECT_EQ(back.epoch, 0x1234);
    }
}

TEST(Packet, ARestoreNamesTheRanksInTheResult) {
    const inagg_job_config job = some_job();
    inagg_block_meta meta{};
    for (const __u64 in : {7U, 5U, 2U}) {
        inagg_hdr h;
        inagg_hdr_start(&h, &job, INAGG_RESTORE);
        meta.contributors = in;
        inagg_hdr_set_meta(&h, &meta);
        inagg_hdr_set_contributors(&h, &meta);
        EXPECT_EQ(inagg_swap64(h.contributors), in);
        EXPECT_EQ(inagg_swap16(h.count), inagg_count_ranks(in));
        EXPECT_EQ(inagg_swap16(h.level_flags) & INAGG_F_DEGRADED, in == 7 ? 0 : INAGG_F_DEGRADED);
        EXPECT_EQ(inagg_hdr_meta(&h).contributors, in);
    }
}

TEST_F(Answers, OnlyTrioLeavesRanksOutAndSaysSo) {
    struct {
        __u64 in;
        __u16 count;
        bool degraded, trio, others;
    } const cases[] = {
        {7, 3, false, true, true},                                // all
        {5, 2, true, true, false},                                // without rank 1
        {5, 2, false, false, false},                              // which the flag must say
        {5, 3, true, false, false},                               // and the count
        {7, 2, false, false, false},  {0, 0, true, false, false}, // somebody is in a result
        {13, 3, true, false, false},                              // rank 3 is not of the job
        {15, 4, false, false, false},
    };
    for (const auto &c : cases) {
        inagg_hdr h = result(5);
        h.contributors = inagg_swap64(c.in);
        h.count = inagg_swap16(c.count);
        h.level_flags |= inagg_swap16(c.degraded ? INAGG_F_DEGRADED : 0);
        for (const __u8 algorithm : {INAGG_SWITCHML, INAGG_TRIO}) {
            job.algorithm = algorithm;
            const bool admitted = algorithm == INAGG_TRIO ? c.trio : c.others;
            EXPECT_EQ(inagg_contributors_admitted(&job, &h), admitted) << c.in << " of " << c.count;
            EXPECT_EQ(admits(h, 64 * 4), admitted ? 0 : -INAGG_R_RANK) << c.in << " of " << c.count;
        }
    }
}

TEST_F(Answers, OnlyPanamasCapTheWindow) {
    inagg_hdr h = result(5);
    h.window_cap = inagg_swap16(300);
    for (const __u8 algorithm : {INAGG_SWITCHML, INAGG_TRIO, INAGG_ATP, INAGG_PANAMA}) {
        job.algorithm = algorithm;
        EXPECT_EQ(inagg_result_cap(&job, &h), algorithm == INAGG_PANAMA ? 300 : 0);
    }
}
