// SPDX-License-Identifier: BSD-2-Clause
// Algorithm trio against a switch in user space: ranks that are late get what the others have, bit for bit, and each
// result is exactly the sum of the ranks that it names.
#include "encoding.hpp"
#include "history.hpp"
#include "ranks.hpp"
#include "same_bits.hpp"

#include <inagg/inagg.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

namespace inagg {
namespace {

using namespace std::chrono_literals;

constexpr uint16_t size = 3, straggler = 2;

void use_trio(inagg_options &options, uint32_t expiry_us, uint16_t quorum) {
    options.algorithm[std::string("trio").copy(options.algorithm, sizeof(options.algorithm) - 1)] = '\0';
    options.expiry_us = expiry_us;
    options.quorum = quorum;
    options.timeout_ms = 10000;
}
void expiring(inagg_options &options) { use_trio(options, 4000, 0); }
void quorum_of_two(inagg_options &options) { use_trio(options, 0, 2); }

// What rank r has of element i in iteration n: small integers, exact in every type.
float value(unsigned rank, std::size_t i, unsigned n = 0) {
    return static_cast<float>(static_cast<int>((rank * 7 + i * 3 + n) % 15) - 7);
}

std::vector<float> floats_of(unsigned rank, std::size_t count, unsigned n = 0) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; i++)
        values[i] = value(rank, i, n);
    return values;
}

// Each element must be the sum of the ranks that the operation names for its block, divided by them for an average.
void expect_sums_of_named_ranks(const Operation &operation, const std::vector<float> &result, unsigned n = 0) {
    const bool average = operation.call.op == INAGG_AVG;
    for (std::size_t i = 0; i < result.size(); i++) {
        const uint64_t ranks = operation.contributors.at(i / operation.block_elements);
        float sum = 0;
        for (unsigned rank = 0; rank < size; rank++)
            sum += ranks >> rank & 1 ? value(rank, i, n) : 0;
        if (average)
            sum /= static_cast<float>(std::popcount(ranks));
        ASSERT_EQ(result[i], sum) << "element " << i << " of ranks " << ranks;
    }
}

TEST(History, KeepsTheLastResultsAndThoseAhead) {
    JobConfig job{};
    job.algorithm = INAGG_TRIO;
    job.elements = 2;
    EXPECT_EQ(History(job, 2, 1000, 8).blocks(), 64U) << "as many as fit";
    job.algorithm = INAGG_SWITCHML;
    EXPECT_EQ(History(job, 2, 1000, 8).blocks(), 2U) << "a switch loses no more";
    job.algorithm = INAGG_TRIO;
    History history(job, 2, 0, 8);
    const std::array<std::byte, 8> payload{std::byte{1}};
    EXPECT_EQ(history.find(0), nullptr);
    for (uint32_t block = UINT32_MAX - 1; block != 2; block++) // across the end of the numbers
        history.keep(block, {}, payload);
    EXPECT_EQ(history.run(UINT32_MAX - 1), 4U);
    EXPECT_EQ(history.run(1), 1U);
    EXPECT_EQ(history.run(2), 0U);
    ASSERT_NE(history.find(0), nullptr);
    EXPECT_EQ(history.payload(*history.find(0))[0], std::byte{1});
    history.keep(2, {}, {});
    EXPECT_EQ(history.find(UINT32_MAX - 1), nullptr);
}

TEST(Trio, WithoutStragglersItIsExact) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.02});
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            std::vector<float> data = floats_of(c.rank(), 5000), sum(data.size());
            const auto handle = c.allreduce(data.data(), sum.data(), sum.size(), INAGG_FLOAT32, INAGG_SUM);
            c.wait(*handle);
            expect_sums_of_named_ranks(*handle, sum);
            const inagg_outcome outcome = outcome_of(*handle, size);
            EXPECT_EQ(outcome.degraded_blocks, 0U);
            EXPECT_EQ(outcome.fewest, size);
        },
        [](inagg_options &options) { use_trio(options, 0, 0); });
    EXPECT_EQ(software_switch.counters().degraded, 0U);
}

// Waits until so many ranks have done what the caller has not.
void wait_for(const std::atomic<int> &ranks, int count) {
    while (ranks < count)
        std::this_thread::sleep_for(1ms);
}

constexpr unsigned tensors = 12;

void expect_tensor(Communicator &c, SameBits &same, unsigned n) {
    constexpr std::size_t count = 3000;
    const std::vector<float> data = floats_of(c.rank(), count, n);
    std::vector<float> result(count);
    const auto handle = c.allreduce(data.data(), result.data(), count, INAGG_FLOAT32, n % 3 == 2 ? INAGG_AVG : INAGG_SUM);
    c.wait(*handle);
    expect_sums_of_named_ranks(*handle, result, n);
    same.expect(n, result);
}

// The straggler sleeps while the others go on, then makes the same calls.
void expect_catching_up(SoftwareSwitch &software_switch, const std::function<void(inagg_options &)> &how) {
    SameBits same;
    std::atomic<int> ahead{0};
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            if (c.rank() == straggler)
                wait_for(ahead, 2);
            for (unsigned n = 0; n < tensors; n++)
                expect_tensor(c, same, n);
            ahead++;
            c.wait(*c.barrier()); // nobody goes whom others may ask
            if (c.rank() == straggler) {
                EXPECT_GT(c.stats().skipped, 0U);
                EXPECT_GT(c.stats().degraded, 0U);
            }
        },
        how);
    EXPECT_GT(software_switch.counters().degraded, 0U);
}

TEST(Trio, AStragglerTakesWhatWasDecided) {
    SoftwareSwitch software_switch({.elements = 64});
    expect_catching_up(software_switch, expiring);
}

TEST(Trio, AStragglerTakesWhatAQuorumDecided) {
    SoftwareSwitch software_switch({.elements = 64});
    expect_catching_up(software_switch, quorum_of_two);
}

TEST(Trio, AStragglerRecoversWhatWasLost) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.05, .duplication = 0.02, .buckets = 8});
    expect_catching_up(software_switch, expiring);
    EXPECT_GT(software_switch.counters().recoveries, 0U);
    EXPECT_GT(software_switch.counters().restores, 0U);
}

// Until all ranks have come to where it forgot, nothing is decided without one: the straggler has to wake up by itself.
TEST(Trio, ASwitchForgetsWhileRanksAreLate) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.05});
    SameBits same;
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            for (unsigned n = 0; n < tensors; n++) {
                if (n % 3 == c.rank()) // each is late in its turn
                    std::this_thread::sleep_for(30ms);
                if (n % 3 == c.rank() && n % 4 == 3)
                    software_switch.clear_slots();
                expect_tensor(c, same, n);
            }
            c.wait(*c.barrier());
        },
        expiring);
    EXPECT_GT(software_switch.counters().degraded, 0U);
    EXPECT_GT(software_switch.counters().recoveries, 0U);
}

TEST(Trio, EveryTypeIsTheSumOfTheNamedRanks) {
    SoftwareSwitch software_switch({.elements = 64});
    std::atomic<int> ahead{0};
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            if (c.rank() == straggler)
                wait_for(ahead, 2);
            std::vector<int32_t> ints(1000, 1 << c.rank() * 8), most = ints;
            std::vector<uint16_t> halves(1000, 0x3c00), brains(1000, 0x3f80), averages(1000, c.rank() ? 0x3c00 : 0x3c01);
            const std::pair<Communicator::Handle, int> calls[] = {
                {c.allreduce(ints.data(), ints.data(), 1000, INAGG_INT32, INAGG_SUM), 0},
                {c.allreduce(most.data(), most.data(), 1000, INAGG_INT32, INAGG_MAX), 1},
                {c.allreduce(halves.data(), halves.data(), 1000, INAGG_FLOAT16, INAGG_SUM), 2},
                {c.allreduce(brains.data(), brains.data(), 1000, INAGG_BFLOAT16, INAGG_SUM), 3},
                {c.allreduce(averages.data(), averages.data(), 1000, INAGG_FLOAT16, INAGG_AVG), 4}};
            for (const auto &[handle, kind] : calls) {
                c.wait(*handle);
                const inagg_outcome outcome = outcome_of(*handle, size);
                EXPECT_EQ(outcome.degraded_blocks, outcome.blocks);
                EXPECT_EQ(outcome.in_all, 3U);
                EXPECT_EQ(outcome.in_any, 3U);
                EXPECT_EQ(outcome.fewest, 2);
            }
            EXPECT_EQ(ints, std::vector<int32_t>(1000, 0x101));
            EXPECT_EQ(most, std::vector<int32_t>(1000, 0x100));
            EXPECT_EQ(halves, std::vector<uint16_t>(1000, 0x4000));
            EXPECT_EQ(brains, std::vector<uint16_t>(1000, 0x4000));
            EXPECT_EQ(averages, std::vector<uint16_t>(1000, 0x3c00)) << "the sum is a tie, rounded to even";
            ahead++;
            c.wait(*c.barrier());
        },
        quorum_of_two);
}

TEST(Trio, BlocksAheadAreCounted) {
    SoftwareSwitch software_switch({.elements = 64});
    std::atomic<int> ahead{0};
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            if (c.rank() == straggler) {
                wait_for(ahead, 2);
                const auto deadline = std::chrono::steady_clock::now() + 10s; // the last result may still be under way
                while (c.blocks_ahead() < 20 && std::chrono::steady_clock::now() < deadline)
                    std::this_thread::sleep_for(1ms);
                EXPECT_EQ(c.blocks_ahead(), 20U);
            }
            for (int i = 0; i < 2; i++) {
                std::vector<int32_t> data(640, 1);
                c.wait(*c.allreduce(data.data(), data.data(), 640, INAGG_INT32, INAGG_SUM));
                EXPECT_EQ(data[639], 2);
                if (c.rank() == straggler) {
                    EXPECT_EQ(c.blocks_ahead(), 10U - 10 * i);
                }
            }
            ahead++;
            c.wait(*c.barrier());
            if (c.rank() == straggler) {
                EXPECT_EQ(c.stats().contributions, 1U) << "only the barrier's";
            }
        },
        quorum_of_two);
}

TEST(Trio, BroadcastsBarriersAndNanWaitForAll) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.02});
    std::atomic<int> came{0}; // calls that the straggler has made
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            const auto be_late = [&] {
                if (c.rank() != straggler)
                    return;
                std::this_thread::sleep_for(40ms);
                came++;
            };
            const float infinity = std::numeric_limits<float>::infinity();
            std::vector<float> data(200, c.rank() ? -1.0F : 5.0F);
            be_late();
            c.wait(*c.broadcast(data.data(), data.size(), INAGG_FLOAT32, 0));
            EXPECT_GE(came, 1);
            EXPECT_EQ(data, std::vector<float>(200, 5.0F));

            std::vector<float> sum(200, static_cast<float>(c.rank()));
            sum[7] = c.rank() == 1 ? infinity : 1.0F;
            be_late();
            const auto handle = c.allreduce(sum.data(), sum.data(), sum.size(), INAGG_FLOAT32, INAGG_SUM);
            c.wait(*handle);
            EXPECT_GE(came, 2);
            EXPECT_EQ(outcome_of(*handle, size).degraded_blocks, 0U);
            EXPECT_EQ(sum[0], 3.0F);
            EXPECT_EQ(sum[7], infinity);

            be_late();
            c.wait(*c.barrier());
            EXPECT_GE(came, 3);
        },
        expiring);
}

// The straggler's largest element is beyond the scale that was agreed without it, and it has no results.
void expect_absence(bool forget) {
    std::atomic<bool> deaf{true};
    SoftwareSwitch software_switch({.elements = 64, .lose = [&](const inagg_hdr &header, int rank) {
                                        return deaf && rank == straggler && inagg_hdr_type(&header) == INAGG_RESULT &&
                                               inagg_hdr_dtype(&header) != INAGG_WIRE_NONE;
                                    }});
    std::atomic<int> ahead{0};
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            if (c.rank() == straggler) {
                wait_for(ahead, 2);
                if (forget)
                    software_switch.clear_slots();
                deaf = false;
            }
            std::vector<float> data(1000, c.rank() == straggler ? 1e6F : 1.0F);
            const auto handle = c.allreduce(data.data(), data.data(), data.size(), INAGG_FLOAT32, INAGG_SUM);
            c.wait(*handle);
            EXPECT_EQ(data, std::vector<float>(1000, 2.0F));
            EXPECT_EQ(outcome_of(*handle, size).in_any, 3U);
            ahead++;
            c.wait(*c.barrier());
            EXPECT_EQ(c.stats().abstained, c.rank() == straggler ? 16U : 0U);
        },
        quorum_of_two);
    EXPECT_EQ(software_switch.counters().restores > 0, forget);
}

TEST(Trio, WhoDoesNotFitTheScaleAddsNothing) { expect_absence(false); }

TEST(Trio, WhoDoesNotFitTheScaleRecoversWhatTheSwitchForgot) { expect_absence(true); }

TEST(Trio, RefusedBlocksGoLaterAndNobodyIsStuck) {
    SoftwareSwitch software_switch({.elements = 64, .slots = 64, .most_open = 8});
    std::atomic<uint64_t> refused{0};
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            for (unsigned n = 0; n < 3; n++) {
                std::vector<float> data = floats_of(c.rank(), 20000, n), sum(data.size());
                const auto handle = c.allreduce(data.data(), sum.data(), sum.size(), INAGG_FLOAT32, INAGG_SUM);
                c.wait(*handle);
                expect_sums_of_named_ranks(*handle, sum, n);
            }
            refused += c.stats().refused;
        },
        [](inagg_options &options) { use_trio(options, 0, 0); });
    EXPECT_GT(refused, 0U);
}

TEST(Trio, ACapThatHasGoneHoldsNothingBack) {
    SoftwareSwitch software_switch({.elements = 64, .slots = 16, .most_open = 4});
    std::atomic<int> refused{0};
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            std::vector<float> data = floats_of(c.rank(), 2000, 0), sum(data.size());
            c.wait(*c.allreduce(data.data(), sum.data(), sum.size(), INAGG_FLOAT32, INAGG_SUM));
            refused += c.stats().refused != 0;
            c.wait(*c.barrier());
            software_switch.set_most_open(UINT32_MAX);
            for (unsigned n = 1; n < 10; n++) { // in one of these the last cap goes
                data = floats_of(c.rank(), 2000, n);
                const auto handle = c.allreduce(data.data(), sum.data(), sum.size(), INAGG_FLOAT32, INAGG_SUM);
                c.wait(*handle);
                expect_sums_of_named_ranks(*handle, sum, n);
            }
        },
        [](inagg_options &options) {
            use_trio(options, 0, 0);
            options.timeout_ms = 5000;
        });
    EXPECT_GT(refused, 0);
}

TEST(Trio, WithoutItsRootABroadcastFails) {
    SoftwareSwitch software_switch;
    const uint16_t job = options_for(software_switch, 0, size).job;
    std::atomic<int> excluded{0}, heard{0};
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            c.wait(*c.barrier());
            if (c.rank() == 0) {
                software_switch.exclude(job, 0);
                excluded = 1;
                wait_for(heard, size - 1);
                return;
            }
            wait_for(excluded, 1);
            std::vector<int32_t> data(1000, c.rank());
            try {
                c.wait(*c.broadcast(data.data(), data.size(), INAGG_INT32, 0));
                ADD_FAILURE() << "zeros from nobody";
            } catch (const Error &error) {
                EXPECT_EQ(error.code(), INAGG_ECLOSED);
                EXPECT_NE(std::string(error.what()).find("rank 0 was excluded"), std::string::npos) << error.what();
            }
            EXPECT_EQ(data, std::vector<int32_t>(1000, c.rank()));
            c.wait(*c.broadcast(data.data(), data.size(), INAGG_INT32, 1));
            EXPECT_EQ(data, std::vector<int32_t>(1000, 1));
            heard++;
        },
        [](inagg_options &options) {
            use_trio(options, 0, 0);
            options.exclude_ms = 60000;
        });
}

TEST(Trio, WhoIsTooFarBehindHearsSo) {
    SoftwareSwitch software_switch;
    std::atomic<int> ahead{0};
    std::string message;
    try {
        run_ranks(
            software_switch, size,
            [&](Communicator &c) {
                constexpr std::size_t count = 832 * 1000;
                if (c.rank() == straggler)
                    wait_for(ahead, 2);
                std::vector<int32_t> data(count, 1);
                try {
                    c.wait(*c.allreduce(data.data(), data.data(), count, INAGG_INT32, INAGG_SUM));
                } catch (const Error &error) {
                    EXPECT_EQ(error.code(), INAGG_EDEADLINE);
                    message = error.what();
                }
                ahead++;
                wait_for(ahead, 3);
            },
            [](inagg_options &options) {
                quorum_of_two(options);
                options.history_mib = 1;
                options.timeout_ms = 1000;
            });
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), INAGG_EDEADLINE); // leave() repeats it
    }
    EXPECT_NE(message.find("INAGG_HISTORY"), std::string::npos) << message;
}

TEST(Trio, OnlySomeTransportsDoIt) {
    SoftwareSwitch software_switch;
    inagg_options options = options_for(software_switch, 0, 1);
    use_trio(options, 1000, 0);
    options.exclude_ms = 1000;
    options.transport[std::string("xdp").copy(options.transport, sizeof(options.transport) - 1)] = '\0';
    try {
        Communicator communicator(options);
        ADD_FAILURE();
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), INAGG_EINVAL);
        EXPECT_NE(std::string(error.what()).find("use afxdp, kernel, udp"), std::string::npos) << error.what();
    }
}

// The C API.

TEST(Outcome, IsThatOfTheThreadsLastCall) {
    std::thread([] { // that has called nothing
        inagg_outcome outcome{};
        EXPECT_EQ(inagg_last_outcome(&outcome), INAGG_EINVAL);
        EXPECT_NE(std::string(inagg_message()).find("struct_size"), std::string::npos) << inagg_message();
        outcome.struct_size = sizeof(outcome);
        EXPECT_EQ(inagg_last_outcome(&outcome), INAGG_EINVAL);
        EXPECT_NE(std::string(inagg_message()).find("no call"), std::string::npos) << inagg_message();
        EXPECT_EQ(inagg_last_outcome(nullptr), INAGG_EINVAL);
        EXPECT_EQ(inagg_last_contributors(0), 0U);
    })
        .join();

    SoftwareSwitch software_switch({.elements = 64});
    std::vector<std::thread> threads;
    for (uint16_t rank = 0; rank < 2; rank++)
        threads.emplace_back([&, rank] {
            Comm comm(options_for(software_switch, rank, 2));
            std::vector<float> data(1000, static_cast<float>(rank));
            const inagg_outcome summed = comm.allreduce<float>(data, INAGG_AVG);
            EXPECT_EQ(data, std::vector<float>(1000, 0.5F));
            EXPECT_EQ(summed.blocks, 16U);
            EXPECT_EQ(summed.block_elements, 64U);
            EXPECT_EQ(summed.in_all, 3U);
            EXPECT_EQ(inagg_last_contributors(15), 3U);
            EXPECT_EQ(inagg_last_contributors(16), 0U);
            comm.barrier();
            EXPECT_EQ(inagg_last_contributors(0), 0U);
            auto request = comm.iallreduce<float>(data, data);
            EXPECT_EQ(request.wait().blocks, 16U);
            EXPECT_EQ(request.wait().blocks, 16U);
            uint64_t blocks = 7;
            EXPECT_EQ(inagg_blocks_of_call(comm.get(), 1000, INAGG_FLOAT16, INAGG_SUM, &blocks), INAGG_OK);
            EXPECT_EQ(blocks, 8U);
            EXPECT_EQ(comm.blocks_ahead(), 0U);
            int32_t whole = 1;
            EXPECT_EQ(inagg_allreduce(comm.get(), &whole, &whole, 1, INAGG_INT32, INAGG_AVG), INAGG_EINVAL);
        });
    for (std::thread &thread : threads)
        thread.join();
}

// 128 elements a block of the sum, 64 of the counts.
TEST(ClassCounts, CountWhereTheyAreOfTheRanksInTheSum) {
    std::vector<uint16_t> in(256, 0x3c00), sum(256, 0x4000);
    in[5] = in[70] = 0x7c00;
    in[130] = 0xfc00;
    ClassCounts classes({in.data(), sum.data(), in.size(), INAGG_FLOAT16, INAGG_SUM, false, size, 64, INAGG_FLOATS_FIXED, 0});
    const auto counts = classes.make_encoding();
    const std::array<uint64_t, 4> counted = {3, 7, 7, 3};
    ASSERT_EQ(counts->blocks(), counted.size());
    std::array<std::byte, 256> payload;
    for (uint32_t block = 0; block < counted.size(); block++) {
        BlockMeta meta = counts->load(block, payload.data());
        meta.contributors = counted[block];
        ASSERT_TRUE(counts->store(block, meta, payload.data()));
    }
    std::vector<uint16_t> want = sum, all = sum;
    want[5] = 0x7c00;
    want[70] = 0x7e00; // of a rank that may not be in the sum
    want[130] = 0xfc00;
    std::fill(want.begin() + 192, want.end(), 0x7e00); // rank 2 was not counted
    classes.combine(sum.data(), std::array<uint64_t, 2>{3, 7}, 128);
    EXPECT_EQ(sum, want);
    classes.combine(all.data(), {}, 0);
    EXPECT_EQ(all[70], 0x7c00) << "all ranks, everywhere";
    EXPECT_EQ(all[200], 0x4000);
}

// Data blocks: 0 asks for the exponent, 1 to 4 are the sum, 5 to 8 the counts. One that is sent needs the result of four before,
// so the straggler comes to 5, and no further.
TEST(Trio, WhatAnExcludedRankCouldNotCountIsNaN) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr uint32_t slots = 4;
    constexpr unsigned up_to_5 = 0x3f;
    std::atomic<unsigned> decided{0}; // data blocks
    SoftwareSwitch software_switch({.elements = 64, .slots = slots, .lose = [&](const inagg_hdr &header, int rank) {
                                        if (inagg_hdr_type(&header) != INAGG_RESULT || inagg_swap32(header.slot) >= slots)
                                            return false;
                                        const uint32_t block = inagg_swap32(header.block);
                                        decided |= 1U << block;
                                        return rank == straggler && block >= 2 && block <= 4;
                                    }});
    const uint16_t job = options_for(software_switch, 0, size).job;
    try {
        run_ranks(
            software_switch, size,
            [&](Communicator &c) {
                std::vector<float> data(256, static_cast<float>(c.rank())), sum(data.size());
                if (c.rank() == straggler)
                    data[7] = data[200] = infinity;
                const auto handle = c.allreduce(data.data(), sum.data(), sum.size(), INAGG_FLOAT32, INAGG_SUM);
                for (int i = 0; c.rank() == 0 && decided != up_to_5 && i < 5000; i++)
                    std::this_thread::sleep_for(1ms);
                if (c.rank() == 0) {
                    EXPECT_EQ(decided, up_to_5);
                    software_switch.exclude(job, straggler);
                }
                try {
                    c.wait(*handle);
                    EXPECT_NE(c.rank(), straggler);
                } catch (const Error &error) {
                    EXPECT_EQ(c.rank(), straggler) << error.what();
                    EXPECT_EQ(error.code(), INAGG_ECLOSED) << error.what();
                    return;
                }
                for (std::size_t i = 0; i < sum.size(); i++)
                    if (i < 64) {
                        ASSERT_EQ(sum[i], i == 7 ? infinity : 3.0F) << i;
                    } else {
                        ASSERT_TRUE(std::isnan(sum[i])) << i;
                    }
                const inagg_outcome outcome = outcome_of(*handle, size);
                EXPECT_EQ(outcome.in_all, 7U) << "it is in the sum";
                EXPECT_EQ(outcome.degraded_blocks, 0U);
            },
            [](inagg_options &options) {
                use_trio(options, 0, 0);
                options.exclude_ms = 60000;
            });
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), INAGG_ECLOSED) << error.what(); // leave() repeats it
    }
}

} // namespace
} // namespace inagg
