// SPDX-License-Identifier: BSD-2-Clause
// Small tensors go round a ring of the ranks, large ones through the switch, and both are right.
#include "ranks.hpp"
#include "ring.hpp"

#include <inagg/core/tensor.h>

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

namespace inagg {
namespace {

using namespace std::chrono_literals;

using Bytes = std::vector<std::byte>;

constexpr inagg_dtype all_dtypes[] = {INAGG_INT32, INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16};
constexpr uint64_t everything = 1 << 30; // goes by the ring

auto from(uint64_t bytes) {
    return [bytes](inagg_options &options) { options.aggregate_from = bytes; };
}

uint32_t to_bits(double value, inagg_dtype dtype) {
    const auto number = static_cast<float>(value);
    const auto bits = std::bit_cast<uint32_t>(number);
    if (dtype == INAGG_INT32)
        return static_cast<uint32_t>(static_cast<int64_t>(value));
    if (dtype == INAGG_FLOAT16)
        return std::bit_cast<uint16_t>(static_cast<_Float16>(number));
    return dtype == INAGG_FLOAT32 ? bits : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

double to_double(uint32_t bits, inagg_dtype dtype) {
    if (dtype == INAGG_INT32)
        return static_cast<int32_t>(bits);
    if (dtype == INAGG_FLOAT16)
        return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
    return std::bit_cast<float>(dtype == INAGG_FLOAT32 ? bits : bits << 16);
}

Bytes input_of(int rank, std::size_t count, inagg_dtype dtype) {
    std::mt19937_64 random(static_cast<uint64_t>(rank) * 1000 + count);
    std::normal_distribution<double> normal(0, dtype == INAGG_INT32 ? 1e9 : 1);
    const uint32_t width = inagg_memory_bytes(dtype);
    Bytes bytes(count * width);
    for (std::size_t i = 0; i < count; i++)
        inagg_set_element(bytes.data(), i, width, to_bits(normal(random), dtype));
    return bytes;
}

// In binary32, from the rank that owns the chunk on. A stretch is 32768 elements a rank.
Bytes reference(int ranks, std::size_t count, inagg_dtype dtype, inagg_op op) {
    const std::size_t stretch = std::size_t{32768} * ranks;
    const uint32_t width = inagg_memory_bytes(dtype);
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < ranks; rank++)
        inputs.push_back(input_of(rank, count, dtype));
    Bytes result(count * width);
    for (std::size_t i = 0; i < count; i++) {
        const std::size_t length = std::min(stretch, count - i / stretch * stretch);
        int rank = 0; // the last one whose chunk does not begin behind the element
        while (rank + 1 < ranks && length * (rank + 1) / ranks <= i % stretch)
            rank++;
        double value = to_double(inagg_element(inputs[rank].data(), i, width), dtype);
        for (int turn = 1; turn < ranks; turn++) {
            const double next = to_double(inagg_element(inputs[(rank + turn) % ranks].data(), i, width), dtype);
            if (op == INAGG_MIN || op == INAGG_MAX)
                value = op == INAGG_MIN ? std::min(value, next) : std::max(value, next);
            else
                value = dtype == INAGG_INT32 ? value + next : static_cast<float>(value) + static_cast<float>(next);
        }
        uint32_t bits = to_bits(value, dtype);
        if (op == INAGG_AVG)
            bits = to_bits(static_cast<float>(to_double(bits, dtype)) / static_cast<float>(ranks), dtype);
        inagg_set_element(result.data(), i, width, bits);
    }
    return result;
}

class Rings : public testing::TestWithParam<uint16_t> {
protected:
    const uint16_t size = GetParam();
    SoftwareSwitch software_switch{{.elements = 64}};
};

INSTANTIATE_TEST_SUITE_P(Sizes, Rings, testing::Values(2, 3, 5, 8), testing::PrintToStringParamName());

TEST_P(Rings, EveryTypeAndOperatorInTheOrderOfTheRanks) {
    struct Case {
        std::size_t count;
        inagg_dtype dtype;
        inagg_op op;
        Bytes expected;
    };
    std::vector<Case> cases;
    for (const std::size_t count : {1, 7, 1000, 100003, 300001})
        for (const inagg_dtype dtype : all_dtypes)
            for (const inagg_op op : {INAGG_SUM, INAGG_MIN, INAGG_MAX, INAGG_AVG})
                if (count < 2000 ? op != INAGG_AVG || dtype != INAGG_INT32 : op == INAGG_SUM && dtype >= INAGG_FLOAT16)
                    cases.push_back({count, dtype, op, reference(size, count, dtype, op)});
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            for (const Case &one : cases) {
                Bytes data = input_of(c.rank(), one.count, one.dtype), result(data.size() + 1);
                std::byte *const unaligned = result.data() + 1;
                c.wait(*c.allreduce(data.data(), unaligned, one.count, one.dtype, one.op));
                c.wait(*c.allreduce(data.data(), data.data(), one.count, one.dtype, one.op));
                EXPECT_EQ(data, one.expected) << one.count << " of type " << one.dtype << ", operator " << one.op;
                EXPECT_TRUE(std::equal(data.begin(), data.end(), unaligned));
            }
        },
        from(everything));
    // The ranks have said where they are, and that is all that went through the switch.
    EXPECT_EQ(software_switch.counters().completions, (10U * size + 63) / 64 + leaving);
}

TEST_P(Rings, ManyTensorsOfBothKindsInFlight) {
    constexpr std::size_t tensors = 24;
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            std::vector<Bytes> data;
            std::vector<Communicator::Handle> handles;
            for (std::size_t i = 0; i < tensors; i++) {
                data.push_back(input_of(c.rank(), 400 + 37 * (i * 7 % 24), INAGG_INT32));
                handles.push_back(c.allreduce(data[i].data(), data[i].data(), data[i].size() / 4, INAGG_INT32, INAGG_SUM));
            }
            for (std::size_t i = tensors; i-- > 0;) {
                c.wait(*handles[i]);
                EXPECT_EQ(data[i], reference(size, data[i].size() / 4, INAGG_INT32, INAGG_SUM)) << i;
            }
        },
        from(3000));
    EXPECT_GT(software_switch.counters().completions, tensors / 3 * 750 / 64);
    EXPECT_LT(software_switch.counters().completions, tensors * 750 / 64);
}

TEST_P(Rings, BroadcastsAndReductionsToARoot) {
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            for (const std::size_t count : {1, 1001, 400000})
                for (const uint16_t root : {uint16_t{0}, static_cast<uint16_t>(size - 1)}) {
                    std::vector<uint16_t> halves(count, static_cast<uint16_t>(c.rank() + count));
                    const auto broadcast = c.broadcast(halves.data(), count, INAGG_FLOAT16, root);
                    std::vector<int32_t> numbers(count, c.rank()), sum(count);
                    const auto reduction =
                        c.reduce(numbers.data(), c.rank() == root ? sum.data() : nullptr, count, INAGG_INT32, INAGG_SUM, root);
                    c.wait(*broadcast);
                    c.wait(*reduction);
                    EXPECT_EQ(halves, std::vector<uint16_t>(count, static_cast<uint16_t>(root + count)));
                    EXPECT_EQ(sum[count - 1], c.rank() == root ? size * (size - 1) / 2 : 0);
                }
        },
        from(everything));
}

TEST_P(Rings, FloatsThatAreNoNumbers) {
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    run_ranks(
        software_switch, size,
        [&](Communicator &c) {
            const bool last = c.rank() == c.size() - 1;
            const float in[] = {last ? nan : 1, last ? -0.0F : 0.0F, last ? infinity : 0, last ? -infinity : infinity};
            uint32_t sum[4], least[4], most[4];
            c.wait(*c.allreduce(in, sum, 4, INAGG_FLOAT32, INAGG_SUM));
            c.wait(*c.allreduce(in, least, 4, INAGG_FLOAT32, INAGG_MIN));
            c.wait(*c.allreduce(in, most, 4, INAGG_FLOAT32, INAGG_MAX));
            EXPECT_EQ(sum[0], 0x7fc00000U);
            EXPECT_EQ(sum[2], std::bit_cast<uint32_t>(infinity));
            EXPECT_EQ(sum[3], 0x7fc00000U);
            EXPECT_EQ(least[0], 0xffffffffU); // as the switch has it
            EXPECT_EQ(most[0], 0x7fffffffU);
            EXPECT_EQ(least[1], 0x80000000U);
            EXPECT_EQ(most[1], 0U);
        },
        from(everything));
}

TEST(Ring, OneRankHasNone) {
    SoftwareSwitch software_switch;
    run_ranks(
        software_switch, 1,
        [](Communicator &c) {
            int32_t data = 5;
            c.wait(*c.allreduce(&data, &data, 1, INAGG_INT32, INAGG_SUM));
            EXPECT_EQ(data, 5);
        },
        from(everything));
}

TEST(Ring, Ipv6) {
    std::unique_ptr<SoftwareSwitch> software_switch;
    try {
        software_switch = std::make_unique<SoftwareSwitch>(SoftwareSwitchOptions{.elements = 64, .ipv6 = true});
    } catch (const std::exception &error) {
        GTEST_SKIP() << error.what();
    }
    run_ranks(
        *software_switch, 3,
        [](Communicator &c) {
            std::vector<int32_t> data(1000, 1);
            c.wait(*c.allreduce(data.data(), data.data(), data.size(), INAGG_INT32, INAGG_SUM));
            EXPECT_EQ(data, std::vector<int32_t>(1000, 3));
        },
        from(everything));
    EXPECT_EQ(software_switch->counters().completions, 1U + leaving);
}

TEST(Ring, BesideSeveralTreesAndALossySwitch) {
    SoftwareSwitch one({.elements = 64, .loss = 0.05}), other({.elements = 64, .loss = 0.05, .seed = 2});
    run_ranks(
        one.address() + "," + other.address(), 3,
        [](Communicator &c) {
            for (const std::size_t count : {100, 20000, 100, 20000}) {
                std::vector<int32_t> data(count, 2);
                c.wait(*c.allreduce(data.data(), data.data(), count, INAGG_INT32, INAGG_SUM));
                c.wait(*c.barrier());
                EXPECT_EQ(data, std::vector<int32_t>(count, 6));
            }
        },
        [](inagg_options &options) {
            options.trees = 2;
            options.aggregate_from = 1000;
        });
    EXPECT_LT(one.counters().completions + other.counters().completions, 2 * 20000 / 64 + 20U);
}

TEST(Ring, ATensorOfTheSizeIsAggregated) {
    SoftwareSwitch software_switch({.elements = 64});
    run_ranks(
        software_switch, 2,
        [&](Communicator &c) {
            std::vector<int32_t> data(64);
            c.wait(*c.allreduce(data.data(), data.data(), 63, INAGG_INT32, INAGG_SUM));
            EXPECT_EQ(software_switch.counters().completions, 1U);
            c.wait(*c.allreduce(data.data(), data.data(), 64, INAGG_INT32, INAGG_SUM));
            EXPECT_EQ(software_switch.counters().completions, 2U);
        },
        from(256));
}

// Errors.

// What each rank hears, "CODE: message"; "" if nothing.
std::vector<std::string> errors_of(SoftwareSwitch &software_switch, uint16_t size,
                                   const std::function<void(Communicator &)> &body,
                                   const std::function<void(inagg_options &)> &change) {
    std::vector<std::string> errors(size);
    try {
        run_ranks(
            software_switch, size,
            [&](Communicator &c) {
                try {
                    body(c);
                } catch (const Error &error) {
                    errors[c.rank()] = fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
                }
            },
            change);
    } catch (const Error &) {
        // leave() repeats what broke the communicator
    }
    return errors;
}

void expect_words(const std::string &error, inagg_error code, std::initializer_list<const char *> words) {
    EXPECT_TRUE(error.starts_with(fmt::format("{}: ", static_cast<int>(code)))) << error;
    for (const char *word : words)
        EXPECT_NE(error.find(word), std::string::npos) << error;
}

void sum_of(Communicator &c, std::size_t count) {
    std::vector<int32_t> data(count);
    c.wait(*c.allreduce(data.data(), data.data(), count, INAGG_INT32, INAGG_SUM));
}

class ADeadRank : public testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(Counts, ADeadRank, testing::Values(10, 10'000'000), testing::PrintToStringParamName());

TEST_P(ADeadRank, IsNamedByAllOthersAtOnce) {
    SoftwareSwitch software_switch;
    const auto start = std::chrono::steady_clock::now();
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (uint16_t rank = 0; rank < 5; rank++)
        threads.emplace_back([&, rank] {
            inagg_options options = options_for(software_switch, rank, 5);
            options.aggregate_from = everything;
            Communicator c(options);
            sum_of(c, 10);
            c.wait(*c.barrier());
            if (rank == 2)
                return; // without leave(): its sockets close, as they do when a process is killed
            try {
                sum_of(c, GetParam());
                ADD_FAILURE() << "a sum without rank 2";
            } catch (const Error &error) {
                EXPECT_EQ(error.code(), INAGG_ECLOSED);
                EXPECT_TRUE(std::string_view(error.what()).starts_with("job 7: rank 2 has left the ring")) << error.what();
                EXPECT_THROW(sum_of(c, 10), Error);
            }
            failed++;
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(failed, 4);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s); // the deadline is 30
}

TEST(RingDeadline, NamesRanksThatDoNotCome) {
    SoftwareSwitch software_switch;
    std::atomic<int> failed{0};
    const auto errors = errors_of(
        software_switch, 5,
        [&](Communicator &c) {
            sum_of(c, 10);
            while ((c.rank() == 1 || c.rank() == 4) && failed < 3)
                std::this_thread::sleep_for(10ms);
            if (c.rank() == 1 || c.rank() == 4)
                return;
            try {
                sum_of(c, 10);
            } catch (const Error &) {
                failed++;
                throw;
            }
        },
        [](inagg_options &options) {
            options.aggregate_from = everything;
            options.timeout_ms = 2000;
        });
    int deadlines = 0; // one at least: where it passes first
    for (const int rank : {0, 2, 3}) {
        EXPECT_NE(errors[rank].find("tensor 1 of the ring waits for ranks 1, 4"), std::string::npos) << errors[rank];
        deadlines += errors[rank].find("job 7: no progress for 2000 ms: tensor 1") != std::string::npos;
    }
    EXPECT_GE(deadlines, 1);
}

TEST(RingErrors, CallsThatDiffer) {
    SoftwareSwitch software_switch;
    std::atomic<int> failed{0};
    const auto errors = errors_of(
        software_switch, 4,
        [&](Communicator &c) {
            try {
                sum_of(c, c.rank() == 1 ? 10 : 11);
            } catch (const Error &) {
                failed++;
                while (failed < 4) // nobody is told by a communicator that goes
                    std::this_thread::sleep_for(1ms);
                throw;
            }
        },
        from(everything));
    int told = 0;
    for (const std::string &error : errors) {
        const bool found = error.find("the ranks' calls differ") != std::string::npos;
        EXPECT_TRUE(found || error.find("has left the ring") != std::string::npos) << error;
        told += found;
    }
    EXPECT_GE(told, 1);
}

TEST(RingErrors, RanksThatChooseOtherwise) {
    SoftwareSwitch software_switch;
    const auto errors = errors_of(
        software_switch, 3, [](Communicator &c) { sum_of(c, 1000); },
        [](inagg_options &options) { options.aggregate_from = options.rank == 1 ? 4000 : 40 << 20; });
    expect_words(errors[0], INAGG_EINVAL, {"INAGG_AGGREGATE_FROM is 41943040 bytes on rank 0 and 4000 on rank 1"});
    expect_words(errors[1], INAGG_EINVAL, {"INAGG_AGGREGATE_FROM is 4000 bytes on rank 1 and 41943040 on rank 0"});
    expect_words(errors[2], INAGG_EINVAL, {"INAGG_AGGREGATE_FROM is 41943040 bytes on rank 2 and 4000 on rank 1"});
}

TEST(RingErrors, RanksWithoutARing) {
    SoftwareSwitch software_switch;
    const auto errors = errors_of(
        software_switch, 3, [](Communicator &c) { sum_of(c, 30); },
        [](inagg_options &options) {
            options.aggregate_from = options.rank == 1 ? 0 : 40 << 20;
            options.timeout_ms = 500;
        });
    for (const int rank : {0, 2})
        expect_words(errors[rank], INAGG_EDEADLINE, {"job 7: ", "is INAGG_AGGREGATE_FROM the same everywhere?"});
    EXPECT_NE(errors[1], "");
}

// Strangers.

Fd connected_to(const RingEntry &entry, int type, uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    std::memcpy(&address.sin_addr, entry.address, sizeof(address.sin_addr));
    Fd fd(::socket(AF_INET, type, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0) << std::strerror(errno);
    return fd;
}

class Strangers : public testing::Test {
protected:
    Strangers() {
        for (uint16_t rank = 0; rank < size; rank++) {
            inagg_options options = options_for("127.0.0.1", rank, size);
            rings.push_back(std::make_unique<Ring>(options));
            entries.push_back(rings.back()->own());
        }
    }
    void meet() {
        for (const auto &ring : rings)
            ring->meet(entries);
    }
    void expect_sum() {
        std::vector<std::vector<int32_t>> data(size, std::vector<int32_t>(1000, 7));
        std::vector<Handle> handles;
        for (uint16_t rank = 0; rank < size; rank++) {
            handles.push_back(rings[rank]->prepare({Call::Kind::reduction, data[rank].data(), data[rank].data(), 1000}));
            rings[rank]->start(handles.back());
        }
        const auto start = std::chrono::steady_clock::now();
        while (!std::ranges::all_of(handles, [](const auto &handle) { return handle->done(); })) {
            ASSERT_LT(std::chrono::steady_clock::now() - start, 10s);
            for (const auto &ring : rings)
                ring->move();
        }
        for (const auto &values : data)
            EXPECT_EQ(values, std::vector<int32_t>(1000, 7 * size));
    }

    static constexpr uint16_t size = 3;
    std::vector<std::unique_ptr<Ring>> rings;
    std::vector<RingEntry> entries;
};

TEST_F(Strangers, AreNotListenedTo) {
    std::vector<Fd> strangers;
    for (int i = 0; i < 40; i++) { // some say something wrong, some too little, some nothing, some go
        strangers.push_back(connected_to(entries[1], SOCK_STREAM, entries[1].port));
        const std::string says(i % 3 * 8, 'x');
        send(strangers.back().get(), says.data(), says.size(), 0);
        if (i % 4 == 3)
            strangers.pop_back();
    }
    meet();
    expect_sum();
    char byte;
    for (const Fd &stranger : strangers)
        EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0); // closed
}

TEST_F(Strangers, FindNoPortLater) {
    meet();
    expect_sum();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(entries[1].port);
    std::memcpy(&address.sin_addr, entries[1].address, sizeof(address.sin_addr));
    const Fd fd(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_NE(connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
}

TEST_F(Strangers, DeclareNobodyGone) {
    meet();
    expect_sum();
    const Fd fd = connected_to(entries[1], SOCK_DGRAM, entries[1].notice_port);
    struct {
        uint64_t to, from;
        uint32_t calls;
        uint16_t gone, asks;
    } notice{entries[1].nonce, 1, 0, 2, 0};
    send(fd.get(), &notice, sizeof(notice), 0); // a wrong sender
    notice = {1, entries[0].nonce, 0, 2, 0};
    send(fd.get(), &notice, sizeof(notice), 0); // not for this rank
    notice = {entries[1].nonce, entries[0].nonce, 0, 2, 0};
    send(fd.get(), &notice, sizeof(notice) - 1, 0); // too short
    expect_sum();
    send(fd.get(), &notice, sizeof(notice), 0); // and this is what a rank would say
    EXPECT_THROW(expect_sum(), Error);
}

} // namespace
} // namespace inagg
