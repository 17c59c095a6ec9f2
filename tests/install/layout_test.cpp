// SPDX-License-Identifier: BSD-2-Clause
// The layout of what programs hand to libinagg, as it is in programs that are built already. What fails here breaks them:
// docs/ABI.md says what to do.
#include <gtest/gtest.h>
#include <inagg/inagg.h>

#include <array>

#define EXPECT_FIELD(type, field, offset, bytes)                                                                                 \
    EXPECT_EQ(offsetof(type, field), offset);                                                                                    \
    EXPECT_EQ(sizeof(type::field), bytes)

TEST(layout, inagg_options) {
    EXPECT_FIELD(inagg_options, struct_size, 0u, 8u);
    EXPECT_FIELD(inagg_options, switch_address, 8u, 256u);
    EXPECT_FIELD(inagg_options, job, 264u, 2u);
    EXPECT_FIELD(inagg_options, rank, 266u, 2u);
    EXPECT_FIELD(inagg_options, size, 268u, 2u);
    EXPECT_FIELD(inagg_options, algorithm, 270u, 16u);
    EXPECT_FIELD(inagg_options, transport, 286u, 16u);
    EXPECT_FIELD(inagg_options, timeout_ms, 304u, 4u);
    EXPECT_FIELD(inagg_options, scale, 308u, 4u);
    EXPECT_FIELD(inagg_options, checked, 312u, 4u);
    EXPECT_FIELD(inagg_options, expiry_us, 316u, 4u);
    EXPECT_FIELD(inagg_options, quorum, 320u, 2u);
    EXPECT_FIELD(inagg_options, history_mib, 324u, 4u);
    EXPECT_FIELD(inagg_options, exclude_ms, 328u, 4u);
    EXPECT_FIELD(inagg_options, congestion_control, 332u, 4u);
    EXPECT_FIELD(inagg_options, trees, 336u, 2u);
    EXPECT_FIELD(inagg_options, poll_us, 340u, 4u); // was padding
    EXPECT_FIELD(inagg_options, aggregate_from, 344u, 8u);
    EXPECT_FIELD(inagg_options, key, 352u, 33u);
    EXPECT_FIELD(inagg_options, join_key, 385u, 33u);
    EXPECT_FIELD(inagg_options, join_timeout_ms, 420u, 4u);
    EXPECT_EQ(sizeof(inagg_options), 424u);
}

TEST(layout, inagg_stats_t) {
    EXPECT_FIELD(inagg_stats_t, blocks, 0u, 8u);
    EXPECT_FIELD(inagg_stats_t, contributions, 8u, 8u);
    EXPECT_FIELD(inagg_stats_t, retransmissions, 16u, 8u);
    EXPECT_FIELD(inagg_stats_t, requests, 24u, 8u);
    EXPECT_FIELD(inagg_stats_t, restores, 32u, 8u);
    EXPECT_FIELD(inagg_stats_t, duplicates, 40u, 8u);
    EXPECT_FIELD(inagg_stats_t, rejected, 48u, 8u);
    EXPECT_FIELD(inagg_stats_t, reboots, 56u, 8u);
    EXPECT_FIELD(inagg_stats_t, srtt_ns, 64u, 8u);
    EXPECT_FIELD(inagg_stats_t, degraded, 72u, 8u);
    EXPECT_FIELD(inagg_stats_t, skipped, 80u, 8u);
    EXPECT_FIELD(inagg_stats_t, abstained, 88u, 8u);
    EXPECT_FIELD(inagg_stats_t, refused, 96u, 8u);
    EXPECT_FIELD(inagg_stats_t, cuts, 104u, 8u);
    EXPECT_FIELD(inagg_stats_t, parts, 112u, 8u);
    EXPECT_FIELD(inagg_stats_t, reissues, 120u, 8u);
    EXPECT_FIELD(inagg_stats_t, mismatches, 128u, 8u);
    EXPECT_EQ(sizeof(inagg_stats_t), 136u);
}

TEST(layout, inagg_outcome) {
    EXPECT_FIELD(inagg_outcome, struct_size, 0u, 8u);
    EXPECT_FIELD(inagg_outcome, blocks, 8u, 8u);
    EXPECT_FIELD(inagg_outcome, degraded_blocks, 16u, 8u);
    EXPECT_FIELD(inagg_outcome, in_all, 24u, 8u);
    EXPECT_FIELD(inagg_outcome, in_any, 32u, 8u);
    EXPECT_FIELD(inagg_outcome, block_elements, 40u, 4u);
    EXPECT_FIELD(inagg_outcome, fewest, 44u, 2u);
    EXPECT_EQ(sizeof(inagg_outcome), 48u);
}

TEST(layout, numbers) {
    EXPECT_EQ(sizeof(inagg_dtype), sizeof(int));
    EXPECT_EQ(sizeof(inagg_op), sizeof(int));
    EXPECT_EQ((std::array<int, 6>{INAGG_INT32, INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16, INAGG_INT64, INAGG_FLOAT64}),
              (std::array<int, 6>{0, 1, 2, 3, 16, 17}));
    EXPECT_EQ((std::array<int, 4>{INAGG_SUM, INAGG_MIN, INAGG_MAX, INAGG_AVG}), (std::array<int, 4>{0, 1, 2, 3}));
    EXPECT_EQ((std::array<int, 10>{INAGG_OK, INAGG_EINVAL, INAGG_ENOSWITCH, INAGG_EREFUSED, INAGG_EDEADLINE, INAGG_ERANGE,
                                   INAGG_ESYSTEM, INAGG_EPRIVILEGE, INAGG_ECLOSED, INAGG_EVERIFY}),
              (std::array<int, 10>{0, -1, -2, -3, -4, -5, -6, -7, -8, -9}));
    EXPECT_EQ(INAGG_SCALE_AUTO, INT32_MIN);
}
