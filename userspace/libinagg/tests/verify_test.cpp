// SPDX-License-Identifier: BSD-2-Clause
// Jobs with a key, through a switch in user space that is honest, or is not.
#include "error.hpp"
#include "ranks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

namespace inagg {
namespace {

constexpr char key[] = "5f2b1c0d9e8a7766554433221100ffee";
constexpr uint16_t ranks = 3;

std::function<void(inagg_options &)> with_key(const char *algorithm = "switchml") {
    return [algorithm](inagg_options &options) {
        std::strcpy(options.key, key);
        std::strcpy(options.algorithm, algorithm);
        options.timeout_ms = 5000;
    };
}

std::vector<float> floats_of(int rank, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; i++)
        values[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1)) * static_cast<float>(1 + i % 9);
    return values;
}

class Verified : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, Verified, testing::Values("switchml", "trio", "panama", "canary"),
                         [](const auto &info) { return info.param; });

class VerifiedCalls : public testing::TestWithParam<std::tuple<const char *, bool>> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, VerifiedCalls,
                         testing::Values(std::tuple{"switchml", false}, std::tuple{"trio", false}, std::tuple{"panama", false},
                                         std::tuple{"canary", false}, std::tuple{"switchml", true}, std::tuple{"trio", true},
                                         std::tuple{"canary", true}),
                         [](const auto &info) {
                             return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "BigEndian" : "");
                         });

TEST_P(VerifiedCalls, OfAllKinds) {
    const auto &[algorithm, big_endian] = GetParam();
    const bool is_trio = !std::strcmp(algorithm, "trio");
    SoftwareSwitch software_switch(
        {.elements = 64, .loss = 0.02, .duplication = 0.02, .reordering = 0.02, .big_endian = big_endian});
    run_ranks(
        software_switch, ranks,
        [&](Communicator &comm) {
            const int rank = comm.rank();
            for (const std::size_t count : {1, 27, 59, 60, 1000}) {
                const auto n = static_cast<int32_t>(count);
                EXPECT_EQ(reduced(comm, std::vector<int32_t>(count, rank - n), INAGG_INT32),
                          std::vector<int32_t>(count, 3 - 3 * n));
                std::vector<uint16_t> data(count, static_cast<uint16_t>(rank + 40000));
                comm.wait(*comm.broadcast(data.data(), count, INAGG_FLOAT16, 1));
                EXPECT_EQ(data, std::vector<uint16_t>(count, 40001));
                comm.wait(*comm.barrier());
                if (is_trio)
                    continue;
                EXPECT_EQ(reduced(comm, std::vector<double>(count, rank + 0.25), INAGG_FLOAT64),
                          std::vector<double>(count, 3.75));
                EXPECT_EQ(reduced(comm, std::vector<int64_t>(count, INT64_MAX - rank), INAGG_INT64),
                          std::vector<int64_t>(count, static_cast<int64_t>(3 * uint64_t{INT64_MAX} - 3)));
            }
            EXPECT_EQ(comm.stats().mismatches, 0U);
        },
        with_key(algorithm));
}

class VerifiedFloats : public Verified {}; // panama's switches add floats: OnlySumsOfIntegers
INSTANTIATE_TEST_SUITE_P(Algorithms, VerifiedFloats, testing::Values("switchml", "trio", "canary"),
                         [](const auto &info) { return info.param; });

// With a key and without: the same bits.
TEST_P(VerifiedFloats, SumsAreTheSameBits) {
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<std::vector<float>> results[2];
    for (const bool keyed : {false, true}) {
        SoftwareSwitch software_switch({.elements = 64, .control_slots = 8, .loss = 0.01});
        run_ranks(
            software_switch, ranks,
            [&](Communicator &comm) {
                for (const std::size_t count : {3, 100, 101, 5000, 7}) {
                    auto own = floats_of(comm.rank(), count);
                    for (int scale = 0; scale < 3; scale++) { // guesses are right, and wrong
                        auto sum = reduced(comm, own, INAGG_FLOAT32, scale ? INAGG_SUM : INAGG_AVG);
                        if (comm.rank() == 0)
                            results[keyed].push_back(sum);
                        own[0] *= 8;
                    }
                    own[1] = comm.rank() == 1 ? infinity : 1;
                    auto sum = reduced(comm, own, INAGG_FLOAT32);
                    EXPECT_EQ(sum[1], infinity);
                    if (comm.rank() == 0)
                        results[keyed].push_back(sum);
                }
                EXPECT_EQ(reduced(comm, std::vector<uint16_t>(100, 0x3c00), INAGG_FLOAT16), std::vector<uint16_t>(100, 0x4200));
                EXPECT_EQ(reduced(comm, std::vector<uint16_t>(33, 0x3f80), INAGG_BFLOAT16), std::vector<uint16_t>(33, 0x4040));
            },
            [&](inagg_options &options) {
                with_key(GetParam())(options);
                if (!keyed)
                    options.key[0] = '\0';
            });
    }
    EXPECT_EQ(results[0], results[1]);
}

// A guess that is too small for them must not make their sums wrap.
TEST_P(VerifiedFloats, HalvesThatGrow) {
    SoftwareSwitch software_switch;
    run_ranks(
        software_switch, ranks,
        [](Communicator &comm) {
            for (const auto &[dtype, one, sum_of_one] :
                 {std::tuple(INAGG_FLOAT16, 0x3c00, 0x4200), {INAGG_BFLOAT16, 0x3f80, 0x4040}})
                for (const int doublings : {0, 0, 0, 0, 0, 1, 2, 4, 9, 0}) {
                    const int up = doublings << (dtype == INAGG_FLOAT16 ? 10 : 7);
                    for (const int sign : {0, 0x8000})
                        EXPECT_EQ(reduced(comm, std::vector<uint16_t>(3, static_cast<uint16_t>((one + up) | sign)), dtype),
                                  std::vector<uint16_t>(3, static_cast<uint16_t>((sum_of_one + up) | sign)));
                }
            EXPECT_EQ(comm.stats().mismatches, 0U);
        },
        with_key(GetParam()));
}

// The error that ends each rank's calls. No rank takes a result.
std::vector<Error> errors_of(const SoftwareSwitch &software_switch, const std::function<void(Communicator &)> &body,
                             const std::function<void(inagg_options &)> &change) {
    std::vector<std::optional<Error>> ended(ranks);
    std::vector<std::thread> threads;
    for (uint16_t rank = 0; rank < ranks; rank++)
        threads.emplace_back([&, rank] {
            inagg_options options = options_for(software_switch, rank, ranks);
            change(options);
            Communicator comm(options);
            try {
                body(comm);
            } catch (const Error &error) {
                ended[rank] = error;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    std::vector<Error> errors;
    for (uint16_t rank = 0; rank < ranks; rank++)
        if (ended[rank])
            errors.push_back(*ended[rank]);
        else
            ADD_FAILURE() << "rank " << rank << " has seen nothing";
    return errors;
}

// All of this code, with this in their messages.
void expect_all_fail(const SoftwareSwitch &software_switch, inagg_error expected, const std::string &in_message,
                     const std::function<void(Communicator &)> &body, const std::function<void(inagg_options &)> &change) {
    for (const Error &error : errors_of(software_switch, body, change)) {
        EXPECT_EQ(error.code(), expected) << error.what();
        EXPECT_NE(std::string(error.what()).find(in_message), std::string::npos) << error.what();
    }
}

// If not all notice at once, the others wait for them in vain.
void expect_errors(const SoftwareSwitch &software_switch, const char *algorithm,
                   const std::function<void(Communicator &)> &body) {
    errors_of(software_switch, body, [algorithm](inagg_options &options) {
        with_key(algorithm)(options);
        options.timeout_ms = 1000;
    });
}

bool is_result(const inagg_hdr &header) { return inagg_hdr_type(&header) == INAGG_RESULT; }

TEST_P(Verified, AResultThatWasChangedOnceIsAskedForAgain) {
    std::atomic<int> changed{0};
    SoftwareSwitch software_switch({.elements = 64, .change = [&](inagg_hdr &header, std::span<std::byte> body, int rank) {
                                        if (is_result(header) && rank == 1 && !body.empty() &&
                                            inagg_swap32(header.block) % 5 == 3 && changed++ < 4)
                                            body[inagg_swap32(header.block) % 50] ^= std::byte{0x80};
                                    }});
    run_ranks(
        software_switch, ranks,
        [&](Communicator &comm) {
            EXPECT_EQ(reduced(comm, std::vector<int32_t>(3000, comm.rank()), INAGG_INT32), std::vector<int32_t>(3000, 3));
            comm.wait(*comm.barrier());
            if (comm.rank() == 1 && std::strcmp(GetParam(), "canary")) { // there switches pass results on
                EXPECT_GT(comm.stats().mismatches, 0U);
            }
        },
        with_key(GetParam()));
}

// With different contents of one block somebody on the way would learn something of the weights.
TEST(VerifiedRanks, SealNothingTwice) {
    std::mutex lock;
    std::map<std::tuple<uint64_t, bool, uint32_t>, std::vector<std::byte>> sent; // by rank, stream, block
    unsigned again = 0;
    SoftwareSwitch software_switch(
        {.elements = 64, .control_slots = 8, .loss = 0.1, .watch = [&](const inagg_hdr &header, std::span<const std::byte> body) {
             if (inagg_hdr_type(&header) != INAGG_CONTRIBUTION)
                 return;
             const std::lock_guard guard(lock);
             const std::vector<std::byte> payload(body.begin(), body.end());
             const bool control = inagg_swap32(header.slot) >= 16;
             const auto [before, is_new] =
                 sent.emplace(std::tuple(header.contributors, control, inagg_swap32(header.block)), payload);
             again += !is_new;
             EXPECT_EQ(before->second, payload) << "block " << inagg_swap32(header.block);
         }});
    run_ranks(
        software_switch, ranks,
        [](Communicator &comm) {
            for (int step = 0; step < 24; step++) { // each guess is wrong, and some have no number
                std::vector<float> values(200, std::ldexp(1.0F + static_cast<float>(comm.rank()), step % 3 * 9));
                if (step % 4 == 3)
                    values[static_cast<std::size_t>(step + comm.rank())] = std::numeric_limits<float>::infinity();
                reduced(comm, values, INAGG_FLOAT32);
            }
        },
        with_key());
    EXPECT_GT(again, 20U);
}

TEST(VerifiedSwitch, ThatAddsWrongIsToldByName) {
    SoftwareSwitch software_switch({.elements = 64, .change = [](inagg_hdr &header, std::span<std::byte> body, int) {
                                        if (is_result(header) && inagg_swap32(header.block) == 9 && body.size() > 8)
                                            body[3] ^= std::byte{0x80}; // bit 31
                                    }});
    expect_all_fail(
        software_switch, INAGG_EVERIFY, "data block 9",
        [](Communicator &comm) { reduced(comm, std::vector<int32_t>(3000, comm.rank()), INAGG_INT32); }, with_key());
    // Without the key it goes through.
    run_ranks(software_switch, ranks, [](Communicator &comm) {
        EXPECT_NE(reduced(comm, std::vector<int32_t>(3000, comm.rank()), INAGG_INT32), std::vector<int32_t>(3000, 3));
    });
}

TEST(VerifiedSwitch, OneChangedOnTheWayIsToldFromOneAddedWrong) {
    std::atomic<uint8_t> next{1};
    SoftwareSwitch software_switch({.elements = 64, .change = [&](inagg_hdr &header, std::span<std::byte> body, int) {
                                        if (is_result(header) && inagg_swap32(header.block) == 9 && body.size() > 8)
                                            body[0] ^= std::byte{++next};
                                    }});
    expect_all_fail(
        software_switch, INAGG_EVERIFY, "another one each time",
        [](Communicator &comm) { reduced(comm, std::vector<int32_t>(3000, comm.rank()), INAGG_INT32); }, with_key());
}

TEST(VerifiedSwitch, AnswersWithOtherTypesAreNotRead) {
    for (const int dtype : {int{INAGG_WIRE_NONE}, int{INAGG_WIRE_FLOAT16}, int{INAGG_WIRE_FLOAT32}, 15}) {
        SoftwareSwitch software_switch({.elements = 64, .change = [dtype](inagg_hdr &header, std::span<std::byte> body, int) {
                                            if (is_result(header) && inagg_swap32(header.block) == 9 && !body.empty()) {
                                                header.dtype_op = static_cast<uint8_t>(dtype << 4 | INAGG_WIRE_SUM);
                                                if (dtype == INAGG_WIRE_FLOAT16)
                                                    header.elements = inagg_swap16(128); // as many bytes
                                            }
                                        }});
        expect_errors(software_switch, "switchml",
                      [](Communicator &comm) { reduced(comm, std::vector<int32_t>(3000, 1), INAGG_INT32); });
    }
}

TEST(VerifiedSwitch, CannotRepeatAnOldKey) {
    SoftwareSwitch software_switch({.change = [](inagg_hdr &header, std::span<std::byte> body, int) {
        if (is_result(header) && header.dtype_op == (INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX))
            std::ranges::fill(body, std::byte{7}); // the same nonces in each run
    }});
    expect_all_fail(
        software_switch, INAGG_EVERIFY, "is not the sum",
        [](Communicator &comm) { reduced(comm, std::vector<int32_t>(10, 1), INAGG_INT32); }, with_key());
}

// What decides how doubles are cut is told the ranks before, and not verified then.
TEST(VerifiedSwitch, TellsAllRanksTheSameReach) {
    SoftwareSwitch software_switch({.change = [](inagg_hdr &header, std::span<std::byte> body, int rank) {
        if (!is_result(header) || header.dtype_op != (INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX) || header.block == 0 || rank != 1)
            return;
        int32_t finest;
        std::memcpy(&finest, body.data(), sizeof(finest));
        finest += 1;
        std::memcpy(body.data(), &finest, sizeof(finest));
    }});
    expect_errors(software_switch, "switchml",
                  [](Communicator &comm) { reduced(comm, std::vector<double>(3000, comm.rank() + 3), INAGG_FLOAT64); });
}

// Without a key, too: the others go on to the limbs, which are not to be summed with this rank's next call.
TEST(VerifiedSwitch, TellsNoRankLessThanItReaches) {
    SoftwareSwitch software_switch({.change = [](inagg_hdr &header, std::span<std::byte> body, int rank) {
        const int32_t finest = -3; // multiples of 8
        if (is_result(header) && header.dtype_op == (INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX) && rank == 1)
            std::memcpy(body.data(), &finest, sizeof(finest));
    }});
    const auto expect_closed = [](Communicator &comm) {
        try {
            reduced(comm, std::vector<int32_t>(10, 1), INAGG_INT32);
            ADD_FAILURE() << "it goes on";
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), INAGG_ECLOSED) << error.what();
        }
    };
    errors_of(
        software_switch,
        [&](Communicator &comm) {
            try {
                reduced(comm, std::vector<double>(3000, comm.rank() + 3), INAGG_FLOAT64);
            } catch (const Error &error) {
                EXPECT_EQ(error.code(), comm.rank() == 1 ? INAGG_EVERIFY : INAGG_EDEADLINE) << error.what();
                expect_closed(comm);
                throw;
            }
        },
        [](inagg_options &options) { options.timeout_ms = 1000; });
}

TEST(VerifiedSwitch, CannotDeceiveALeader) {
    for (const bool barrier : {false, true}) {
        SoftwareSwitch software_switch({.change = [](inagg_hdr &header, std::span<std::byte> body, int) {
            const bool exchanges = header.dtype_op == (INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX);
            if (inagg_hdr_type(&header) != INAGG_RESULT && body.size() >= 128 && !exchanges)
                body[1] ^= std::byte{1};
        }});
        expect_errors(software_switch, "canary", [&](Communicator &comm) {
            if (barrier)
                comm.wait(*comm.barrier());
            else
                reduced(comm, std::vector<int32_t>(10, 1), INAGG_INT32);
        });
    }
}

// A scale that nobody's elements have makes all of them 0, or not precise.
TEST(VerifiedSwitch, DoesNotChooseTheScale) {
    for (const int wrong : {200, 1}) {
        const auto change = [wrong](inagg_hdr &header, std::span<std::byte>, int) {
            if (is_result(header) && header.next_scale)
                header.next_scale = static_cast<uint8_t>(wrong);
        };
        for (const std::size_t count : {20, 3000}) { // guessed, agreed before
            SoftwareSwitch software_switch({.elements = 64, .control_slots = 8, .change = change});
            expect_all_fail(
                software_switch, INAGG_EVERIFY, "is not the sum",
                [&](Communicator &comm) {
                    for (int i = 0; i < 6; i++) // the first has no guess to be right
                        reduced(comm, floats_of(comm.rank(), count), INAGG_FLOAT32);
                },
                with_key());
        }
    }
}

TEST(VerifiedSwitch, CannotPretendThatAllCameToABarrier) {
    SoftwareSwitch software_switch({.change = [](inagg_hdr &header, std::span<std::byte> body, int) {
        if (is_result(header) && inagg_swap32(header.slot) >= 16) // of the control stream
            std::ranges::fill(body, std::byte{});
    }});
    expect_all_fail(
        software_switch, INAGG_EVERIFY, "control block 0", [](Communicator &comm) { comm.wait(*comm.barrier()); }, with_key());
}

TEST(VerifiedRanks, HaveTheSameKey) {
    SoftwareSwitch software_switch;
    expect_all_fail(
        software_switch, INAGG_EVERIFY, "INAGG_KEY is not the same",
        [](Communicator &comm) { reduced(comm, std::vector<int32_t>(3000, 1), INAGG_INT32); },
        [](inagg_options &options) {
            with_key()(options);
            options.key[5] = options.rank == 2 ? 'a' : 'b';
        });
}

TEST(VerifiedRanks, OnlySumsOfIntegers) {
    SoftwareSwitch software_switch;
    run_ranks(
        software_switch, ranks,
        [](Communicator &comm) {
            for (const inagg_dtype dtype : {INAGG_INT32, INAGG_FLOAT32})
                for (const inagg_op op : {INAGG_MIN, INAGG_MAX})
                    EXPECT_THROW(reduced(comm, std::vector<int32_t>(3), dtype, op), Error);
            EXPECT_THROW(reduced(comm, std::vector<double>(3), INAGG_FLOAT64, INAGG_MAX), Error);
            EXPECT_EQ(reduced(comm, std::vector<double>(3, 1), INAGG_FLOAT64), std::vector<double>(3, 3));
        },
        with_key());
    run_ranks(
        software_switch, ranks,
        [](Communicator &comm) { EXPECT_THROW(reduced(comm, std::vector<float>(3), INAGG_FLOAT32), Error); }, with_key("panama"));
}

TEST(VerifiedRanks, SumsOfInt32MustFit) {
    SoftwareSwitch software_switch;
    expect_all_fail(
        software_switch, INAGG_EVERIFY, "a sum of int32 overflows",
        [](Communicator &comm) { reduced(comm, std::vector<int32_t>(10, INT32_MAX), INAGG_INT32); }, with_key());
}

TEST(VerifiedRanks, ScaleFixedByHand) {
    SoftwareSwitch software_switch;
    const auto change = [](inagg_options &options) {
        with_key()(options);
        options.scale = 10;
    };
    run_ranks(
        software_switch, ranks,
        [](Communicator &comm) {
            EXPECT_EQ(reduced(comm, std::vector<float>(100, 0.5F), INAGG_FLOAT32), std::vector<float>(100, 1.5F));
        },
        change);
    SoftwareSwitch hides({.change = [](inagg_hdr &header, std::span<std::byte>, int) {
        header.level_flags &= inagg_swap16(static_cast<uint16_t>(~INAGG_F_SATURATED));
    }});
    expect_all_fail(
        hides, INAGG_ERANGE, "scale 10",
        [](Communicator &comm) { reduced(comm, std::vector<float>(100, comm.rank() ? 1 : 1e9F), INAGG_FLOAT32); }, change);
}

} // namespace
} // namespace inagg
