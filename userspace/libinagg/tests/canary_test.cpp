// SPDX-License-Identifier: BSD-2-Clause
// canary against a switch in user space that adds what meets in it: leaders complete the sums, keep the
// results and repair what is lost.
#include "ranks.hpp"
#include "same_bits.hpp"

#include <inagg/core/leader.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <tuple>

namespace inagg {
namespace {

using namespace std::chrono_literals;

void use_canary(inagg_options &options) { std::strcpy(options.algorithm, "canary"); }

void run_canary(const SoftwareSwitch &software_switch, uint16_t size, const std::function<void(Communicator &)> &body,
                const std::function<void(inagg_options &)> &change = {}) {
    run_ranks(software_switch, size, body, [&](inagg_options &options) {
        use_canary(options);
        if (change)
            change(options);
    });
}

// What a rank has of element i: small integers, exact in every type.
int value(int rank, std::size_t i) { return static_cast<int>((static_cast<std::size_t>(rank) * 7 + i * 3) % 15) - 7; }

// Bits of an element of a type.
uint32_t bits_of(int number, inagg_dtype dtype) {
    const auto wide = std::bit_cast<uint32_t>(static_cast<float>(number));
    switch (dtype) {
    case INAGG_INT32:
        return static_cast<uint32_t>(number);
    case INAGG_FLOAT32:
        return wide;
    default:
        return inagg_float_to_half(wide, inagg_mantissa_bits(dtype));
    }
}

// One element for each of `count`, as `of(i)` says.
std::vector<std::byte> tensor(inagg_dtype dtype, std::size_t count, const std::function<int(std::size_t)> &of) {
    const uint32_t bytes = inagg_memory_bytes(dtype);
    std::vector<std::byte> data(count * bytes);
    for (std::size_t i = 0; i < count; i++)
        inagg_set_element(data.data(), i, bytes, bits_of(of(i), dtype));
    return data;
}

// A call with `op`, and whether its result is exact.
void expect_exact(Communicator &c, std::size_t count, inagg_dtype dtype, inagg_op op) {
    std::vector<std::byte> data = tensor(dtype, count, [&](std::size_t i) { return value(c.rank(), i); });
    const auto expected = tensor(dtype, count, [&](std::size_t i) {
        int result = value(0, i);
        for (int rank = 1; rank < c.size(); rank++)
            result = op == INAGG_SUM   ? result + value(rank, i)
                     : op == INAGG_MIN ? std::min(result, value(rank, i))
                                       : std::max(result, value(rank, i));
        return result;
    });
    c.wait(*c.allreduce(data.data(), data.data(), count, dtype, op));
    EXPECT_EQ(data, expected) << count << " elements of type " << dtype << ", operator " << op;
}

// All types and operators, a broadcast and a barrier.
void expect_all_exact(Communicator &c, std::size_t count) {
    for (const inagg_dtype dtype : {INAGG_INT32, INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16})
        for (const inagg_op op : {INAGG_SUM, INAGG_MIN, INAGG_MAX})
            expect_exact(c, count, dtype, op);
    const auto root = static_cast<uint16_t>(c.size() - 1);
    const auto of_root = tensor(INAGG_FLOAT32, count, [&](std::size_t i) { return value(root, i); });
    auto data = c.rank() == root ? of_root : std::vector<std::byte>(of_root.size());
    c.wait(*c.broadcast(data.data(), count, INAGG_FLOAT32, root));
    EXPECT_EQ(data, of_root);
    c.wait(*c.barrier());
}

class CanaryRanks : public testing::TestWithParam<uint16_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, CanaryRanks, testing::Values(1, 2, 3, 8), testing::PrintToStringParamName());

TEST_P(CanaryRanks, AllCallsAreExact) {
    SoftwareSwitch software_switch({.elements = 64});
    run_canary(software_switch, GetParam(), [](Communicator &c) {
        for (const std::size_t count : {1, 63, 64, 1000, 20000})
            expect_all_exact(c, count);
    });
    const SoftwareSwitchCounters counters = software_switch.counters();
    EXPECT_EQ(counters.partials > 0, GetParam() > 2) << "sums of those that do not lead";
    EXPECT_EQ(counters.completions > 0, GetParam() > 1);
    for (const uint64_t refused : counters.refused)
        EXPECT_EQ(refused, 0U);
}

// So that the rounding of the sum shows.
std::vector<float> random_floats(unsigned seed, std::size_t count) {
    std::mt19937 random(seed);
    std::vector<float> values(count);
    for (float &value : values)
        value = static_cast<float>(static_cast<int32_t>(random())) * 1e-7F;
    return values;
}

// `rounds` sums of floats, several in flight.
void expect_same(Communicator &c, SameBits &same, unsigned rounds, std::size_t count) {
    constexpr unsigned flying = 3;
    std::vector<std::vector<float>> data;
    std::vector<Communicator::Handle> handles;
    for (unsigned round = 0; round < rounds + flying; round++) {
        if (round >= flying) {
            c.wait(*handles[round - flying]);
            same.expect(round - flying, data[round - flying]);
        }
        if (round >= rounds)
            continue;
        data.push_back(random_floats(round * 64 + c.rank(), count));
        handles.push_back(c.allreduce(data.back().data(), data.back().data(), count, INAGG_FLOAT32, INAGG_SUM));
    }
}

struct Trouble {
    const char *name;
    SoftwareSwitchOptions options;
    friend void PrintTo(const Trouble &trouble, std::ostream *out) { *out << trouble.name; }
};

class CanaryTrouble : public testing::TestWithParam<std::tuple<uint16_t, Trouble>> {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, CanaryTrouble,
    testing::Combine(testing::Values<uint16_t>(2, 3, 8),
                     testing::Values(Trouble{"Loss1", {.loss = 0.01}}, Trouble{"Loss10", {.loss = 0.1}},
                                     Trouble{"Duplication", {.duplication = 0.1}}, Trouble{"Reordering", {.reordering = 0.1}},
                                     Trouble{"Collisions", {.collision = 0.3}}, Trouble{"OnlyCollisions", {.collision = 1}},
                                     Trouble{"BigEndian", {.loss = 0.02, .big_endian = true, .collision = 0.1}},
                                     Trouble{"ImpatientSums", {.loss = 0.01, .sum_wait_us = 0}},
                                     Trouble{"PatientSums", {.loss = 0.01, .sum_wait_us = 20000}},
                                     Trouble{"All", {.loss = 0.02, .duplication = 0.05, .reordering = 0.05, .collision = 0.05}})),
    [](const auto &info) { return std::string(std::get<1>(info.param).name) + std::to_string(std::get<0>(info.param)); });

TEST_P(CanaryTrouble, SumsAreExactAndTheSameEverywhere) {
    SoftwareSwitchOptions options = std::get<1>(GetParam()).options;
    options.elements = 64;
    SoftwareSwitch software_switch(options);
    const bool much = options.loss >= 0.1; // is lost, and no algorithm is fast
    SameBits same;
    run_canary(software_switch, std::get<0>(GetParam()), [&](Communicator &c) {
        if (!much)
            expect_all_exact(c, 1500);
        expect_same(c, same, 10, much ? 300 : 2000);
    });
    const SoftwareSwitchCounters counters = software_switch.counters();
    EXPECT_EQ(counters.dropped > 0, options.loss > 0);
    EXPECT_EQ(counters.collisions > 0, options.collision > 0);
}

// One block in flight, or two.
class CanaryPools : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Slots, CanaryPools, testing::Values(1, 2), testing::PrintToStringParamName());

TEST_P(CanaryPools, AreEnough) {
    SoftwareSwitch software_switch({.elements = 64, .slots = GetParam(), .control_slots = GetParam(), .loss = 0.02});
    SameBits same;
    run_canary(software_switch, 3, [&](Communicator &c) {
        expect_all_exact(c, 500);
        expect_same(c, same, 5, 500);
    });
}

TEST(Canary, DamagedPacketsDoNotCount) {
    SoftwareSwitch software_switch({.elements = 64, .corruption = 0.02});
    run_canary(
        software_switch, 3, [](Communicator &c) { expect_all_exact(c, 1500); },
        [](inagg_options &options) { options.checked = 1; });
}

TEST(Canary, InfinitiesComeOutWhereTheyGoIn) {
    static constexpr float infinity = std::numeric_limits<float>::infinity();
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.02});
    run_canary(software_switch, 3, [](Communicator &c) {
        std::vector<float> data(300, 1.5F);
        data[7] = c.rank() == 1 ? infinity : 1;
        data[9] = c.rank() == 1 ? infinity : -infinity;
        c.wait(*c.allreduce(data.data(), data.data(), data.size(), INAGG_FLOAT32, INAGG_SUM));
        EXPECT_EQ(data[0], 4.5F);
        EXPECT_EQ(data[7], infinity);
        EXPECT_TRUE(std::isnan(data[9]));
    });
}

TEST(Canary, WhatDoesNotFitAScaleIsAnErrorOfAllRanks) {
    SoftwareSwitch software_switch({.elements = 64});
    std::atomic<int> errors{0};
    run_canary(
        software_switch, 3,
        [&](Communicator &c) {
            std::vector<float> data(300, c.rank() == 2 ? 1e6F : 1.0F);
            try {
                c.wait(*c.allreduce(data.data(), data.data(), data.size(), INAGG_FLOAT32, INAGG_SUM));
            } catch (const Error &error) {
                errors += error.code() == INAGG_ERANGE;
            }
        },
        [](inagg_options &options) { options.scale = 20; });
    EXPECT_EQ(errors, 3);
}

// What is lost. `lose` of the switch's options looks at packets on their way out.

bool is_data(const inagg_hdr &h, uint32_t slots = 16) { return inagg_swap32(h.slot) < slots; }

bool has_flag(const inagg_hdr &h, inagg_flag flag) { return inagg_swap16(h.level_flags) & flag; }

TEST(CanaryRepair, AttemptsThatFailEndPastTheSums) {
    std::map<uint32_t, std::set<int>> attempts; // of each block, that have reached its leader or would have
    std::set<uint32_t> past;
    SoftwareSwitch software_switch({.elements = 64, .lose = [&](const inagg_hdr &h, int) {
                                        const uint8_t type = inagg_hdr_type(&h);
                                        const int attempt = inagg_swap16(h.switch_id);
                                        if (!is_data(h) || (type != INAGG_PARTIAL && type != INAGG_CONTRIBUTION))
                                            return false;
                                        attempts[inagg_swap32(h.block)].insert(attempt);
                                        if (has_flag(h, INAGG_F_BYPASS))
                                            past.insert(inagg_swap32(h.block));
                                        EXPECT_EQ(has_flag(h, INAGG_F_BYPASS), attempt == INAGG_CANARY_ATTEMPTS);
                                        EXPECT_EQ(has_flag(h, INAGG_F_BYPASS), h.window_cap != 0) << "each time by another way";
                                        return type == INAGG_PARTIAL;
                                    }});
    std::atomic<uint64_t> reissues{0};
    run_canary(software_switch, 4, [&](Communicator &c) {
        c.wait(*c.barrier()); // what comes for a rank that has not joined is lost, too
        expect_exact(c, 640, INAGG_INT32, INAGG_SUM);
        reissues += c.stats().reissues;
    });
    EXPECT_EQ(past.size(), 10U);
    for (const auto &[block, seen] : attempts)
        EXPECT_EQ(seen, (std::set{0, 1, 2, 3})) << "block " << block;
    EXPECT_GE(reissues, 30U);
}

TEST(CanaryRepair, OnlyWhoIsNotInSendsAgain) {
    std::atomic<int> lost{0};
    SoftwareSwitch software_switch({.elements = 64, .collision = 1, .lose = [&](const inagg_hdr &h, int) {
                                        return inagg_hdr_type(&h) == INAGG_CONTRIBUTION && is_data(h) &&
                                               inagg_swap16(h.source) == 2 && !has_flag(h, INAGG_F_RESEND) && ++lost;
                                    }});
    run_canary(software_switch, 4, [&](Communicator &c) {
        c.wait(*c.barrier());
        const uint64_t before = c.stats().retransmissions;
        expect_exact(c, 640, INAGG_INT32, INAGG_SUM);
        EXPECT_EQ(c.stats().retransmissions > before, c.rank() == 2);
    });
    EXPECT_GT(lost, 0);
}

// Also that of the barrier at which ranks leave: who led it stays a little longer.
TEST(CanaryRepair, LeadersKeepResultsForWhoMissesThem) {
    SoftwareSwitch software_switch({.elements = 64, .lose = [](const inagg_hdr &h, int rank) {
                                        return inagg_hdr_type(&h) == INAGG_RESULT && rank == 1 && has_flag(h, INAGG_F_MULTICAST);
                                    }});
    const auto begin = std::chrono::steady_clock::now();
    run_canary(software_switch, 3, [](Communicator &c) {
        for (int round = 0; round < 3; round++)
            expect_exact(c, 640, INAGG_INT32, INAGG_SUM);
        if (c.rank() == 1) {
            EXPECT_GE(c.stats().requests, 20U);
        }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(CanaryRepair, WhoLedTheLastBarrierStaysWhereQuestionsGetLost) {
    std::atomic<int> last_questions{0};
    SoftwareSwitch software_switch({.elements = 64, .lose = [&](const inagg_hdr &h, int) {
                                        const uint8_t type = inagg_hdr_type(&h);
                                        return (type == INAGG_RESULT && has_flag(h, INAGG_F_MULTICAST)) ||
                                               (type == INAGG_REQUEST && !is_data(h) && ++last_questions <= 4);
                                    }});
    const auto begin = std::chrono::steady_clock::now();
    run_canary(software_switch, 3, [](Communicator &c) { expect_exact(c, 640, INAGG_INT32, INAGG_SUM); });
    EXPECT_GT(last_questions, 4);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
}

TEST(CanaryRepair, AnswersToOneRankSayToWhichQuestion) {
    using Question = std::tuple<uint16_t, uint32_t, uint32_t>; // rank, slot, block
    std::map<Question, uint16_t> asked;
    std::map<int, int> answers; // by type
    SoftwareSwitch software_switch(
        {.elements = 64, .loss = 0.2, .watch = [&](const inagg_hdr &h, std::span<const std::byte>) {
             const uint8_t type = inagg_hdr_type(&h);
             const uint16_t number = inagg_swap16(h.window_cap);
             const Question question{inagg_swap16(h.source), inagg_swap32(h.slot), inagg_swap32(h.block)};
             if (type == INAGG_REQUEST) {
                 EXPECT_EQ(number, asked[question] + 1);
                 asked[question] = number;
             } else if (type == INAGG_RESULT || type == INAGG_WAIT || type == INAGG_BLOCK_FAILED) {
                 const bool of_one = !has_flag(h, INAGG_F_MULTICAST);
                 EXPECT_EQ(number != 0, of_one);
                 EXPECT_LE(number, of_one ? asked[question] : 0);
                 answers[type] += of_one;
             }
         }});
    run_canary(software_switch, 3, [](Communicator &c) {
        for (int round = 0; round < 10; round++)
            expect_exact(c, 640, INAGG_INT32, INAGG_SUM);
    });
    EXPECT_GT(answers[INAGG_RESULT], 0);
    EXPECT_GT(answers[INAGG_WAIT], 0);
}

// The last result is missed by one, and the others have nothing more to do.
TEST(CanaryRepair, NobodyLeavesBeforeAllHaveWhatItLed) {
    std::atomic<int> lost{0};
    SoftwareSwitch software_switch({.elements = 64, .lose = [&](const inagg_hdr &h, int rank) {
                                        return inagg_hdr_type(&h) == INAGG_RESULT && is_data(h) && rank == 2 && lost < 10 &&
                                               ++lost;
                                    }});
    run_canary(software_switch, 3, [](Communicator &c) { expect_exact(c, 640, INAGG_INT32, INAGG_SUM); });
    EXPECT_EQ(lost, 10);
}

TEST(CanaryRepair, ASwitchThatForgetsIsNoLoss) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.01});
    std::atomic<int> reboots{0};
    std::jthread disturber([&](const std::stop_token &stop) {
        for (; !stop.stop_requested(); reboots++) {
            software_switch.reboot();
            std::this_thread::sleep_for(3ms);
            software_switch.clear_slots();
            std::this_thread::sleep_for(3ms);
        }
    });
    SameBits same;
    run_canary(software_switch, 3, [&](Communicator &c) {
        expect_same(c, same, 20, 5000);
        EXPECT_GT(c.stats().reboots, 0U);
    });
    disturber.request_stop();
    EXPECT_GT(reboots, 0);
}

// Ranks that are late, or dead.

TEST(CanaryLate, OthersAskAndDoNotSendAgain) {
    SoftwareSwitch software_switch({.elements = 64});
    run_canary(software_switch, 3, [](Communicator &c) {
        c.wait(*c.barrier()); // all have joined: what comes for others is lost
        const uint64_t before = c.stats().retransmissions;
        if (c.rank() == 2)
            std::this_thread::sleep_for(400ms);
        expect_exact(c, 640, INAGG_INT32, INAGG_SUM);
        if (c.rank() != 2) {
            EXPECT_GT(c.stats().requests, 0U);
        }
        EXPECT_EQ(c.stats().retransmissions, before);
    });
}

// What two of three ranks do when the third has died.
void survive(uint32_t timeout_ms, const std::function<void(Communicator &)> &body) {
    SoftwareSwitch software_switch({.elements = 64});
    run_canary(
        software_switch, 3,
        [&](Communicator &c) {
            expect_exact(c, 640, INAGG_INT32, INAGG_SUM);
            if (c.rank() == 2)
                throw std::runtime_error("dead");
            body(c);
        },
        [&](inagg_options &options) { options.timeout_ms = timeout_ms; });
}

// The call of each other rank ends with an error that names it, whoever leads.
TEST(CanaryLate, ADeadRankIsNamed) {
    std::vector<std::string> messages(3);
    EXPECT_THROW(survive(500,
                         [&](Communicator &c) {
                             for (std::vector<int32_t> data(64);;)
                                 try {
                                     c.wait(*c.allreduce(data.data(), data.data(), 64, INAGG_INT32, INAGG_SUM));
                                 } catch (const Error &error) {
                                     EXPECT_EQ(error.code(), INAGG_EDEADLINE);
                                     messages[c.rank()] = error.what();
                                     throw;
                                 }
                         }),
                 std::exception);
    for (const int rank : {0, 1})
        EXPECT_NE(messages[rank].find("rank 2"), std::string::npos) << messages[rank];
}

// How long that takes them to leave.
std::chrono::nanoseconds leaving_without(uint32_t timeout_ms) {
    std::chrono::nanoseconds longest{};
    std::mutex mutex;
    EXPECT_THROW(survive(timeout_ms,
                         [&](Communicator &c) {
                             std::this_thread::sleep_for(10ms);
                             const auto begin = std::chrono::steady_clock::now();
                             c.leave();
                             const std::lock_guard lock(mutex);
                             longest = std::max<std::chrono::nanoseconds>(longest, std::chrono::steady_clock::now() - begin);
                         }),
                 std::runtime_error);
    return longest;
}

TEST(CanaryLate, ADeadRankDoesNotHoldThoseThatLeave) {
    const auto patient = leaving_without(30000);
    EXPECT_GT(patient, 4900ms); // ten time-outs of others, all lost
    EXPECT_LT(patient, 7s);
    EXPECT_LT(leaving_without(1000), 3s);
}

// With the rest of the library.

TEST(Canary, InSeveralTrees) {
    SoftwareSwitch first({.elements = 64, .loss = 0.02}), second({.elements = 64, .loss = 0.02});
    SameBits same;
    run_ranks(
        first.address() + "," + second.address(), 3,
        [&](Communicator &c) {
            expect_all_exact(c, 2000);
            expect_same(c, same, 5, 2000);
        },
        [](inagg_options &options) {
            use_canary(options);
            options.trees = 2;
        });
    EXPECT_GT(first.counters().completions, 0U);
    EXPECT_GT(second.counters().completions, 0U);
}

TEST(Canary, TransportsThatCannotSayWhich) {
    for (const char *transport : {"kernel", "xdp"}) {
        inagg_options options = options_for("127.0.0.1", 0, 2);
        use_canary(options);
        std::strcpy(options.transport, transport);
        try {
            Communicator communicator(options);
            FAIL() << transport;
        } catch (const Error &error) {
            const std::string message = error.what();
            EXPECT_EQ(error.code(), INAGG_EINVAL);
            if (message.find("not in this build") == std::string::npos) {
                EXPECT_NE(message.find("does not do algorithm 'canary': use "), std::string::npos) << message;
            }
        }
    }
}

TEST(Canary, AutoPassesOverThemWithANote) {
    SoftwareSwitch software_switch({.elements = 64});
    run_canary(
        software_switch, 2,
        [](Communicator &c) {
            EXPECT_STREQ(c.transport_name(), "udp");
            EXPECT_NE(std::string(c.transport_note()).find("kernel: does not do algorithm 'canary'"), std::string::npos)
                << c.transport_note();
        },
        [](inagg_options &options) { std::strcpy(options.transport, "auto"); });
}

} // namespace
} // namespace inagg
