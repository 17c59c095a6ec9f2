// SPDX-License-Identifier: BSD-2-Clause
// Calls of 64-bit elements, among others, through a switch in user space.
#include "error.hpp"
#include "ranks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>

namespace inagg {
namespace {

using Vector = std::vector<double>;

Vector sum(Communicator &comm, const Vector &data) { return reduced(comm, data, INAGG_FLOAT64, INAGG_SUM); }

TEST(Wide, SumsOfDoublesAreExact) {
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 3, [](Communicator &comm) {
        const double big = comm.rank() == 0 ? 0x1p53 : comm.rank() == 1 ? -0x1p53 : 0x1p-20;
        EXPECT_EQ(sum(comm, {big, 0.1}), (Vector{0x1p-20, 0.30000000000000004}));
        EXPECT_EQ(sum(comm, Vector(5000, comm.rank())), Vector(5000, 3));
        EXPECT_EQ(sum(comm, Vector(7, 0)), Vector(7, 0));
    });
}

TEST(Wide, InfinitiesAndNanComeOutWhereTheyGoIn) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 2, [&](Communicator &comm) {
        const bool first = comm.rank() == 0;
        const Vector out = sum(comm, {1.5, first ? infinity : 1, first ? infinity : -infinity, first ? std::nan("") : 1});
        EXPECT_EQ(out[0], 3);
        EXPECT_EQ(out[1], infinity);
        EXPECT_TRUE(std::isnan(out[2]));
        EXPECT_TRUE(std::isnan(out[3]));
        EXPECT_TRUE(std::isnan(reduced(comm, Vector{first ? std::nan("") : 1.0}, INAGG_FLOAT64, INAGG_MIN)[0]));
    });
}

TEST(Wide, AverageIsRoundedOnceMore) {
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 3, [](Communicator &comm) {
        EXPECT_EQ(reduced(comm, Vector{1.0 * comm.rank(), 1}, INAGG_FLOAT64, INAGG_AVG), (Vector{1, 1}));
    });
}

TEST(Wide, IntegersWrap) {
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 4, [](Communicator &comm) {
        constexpr int64_t most = std::numeric_limits<int64_t>::max();
        const std::vector<int64_t> own{most, comm.rank(), int64_t{1} << 40, -comm.rank()};
        EXPECT_EQ(reduced(comm, own, INAGG_INT64, INAGG_SUM), (std::vector<int64_t>{-4, 6, int64_t{1} << 42, -6}));
    });
}

TEST(Wide, MinimumAndMaximum) {
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 3, [](Communicator &comm) {
        std::mt19937_64 random(5); // the same on all ranks: each draws for all
        std::vector<std::vector<int64_t>> all(3, std::vector<int64_t>(1000));
        for (auto &one : all)
            for (int64_t &element : one) // often alike in the upper half
                element = static_cast<int64_t>(random() % 3 << 32 | (random() & UINT32_MAX)) - (int64_t{1} << 32);
        std::vector<int64_t> least(1000), most(1000);
        for (std::size_t i = 0; i < 1000; i++) {
            least[i] = std::min({all[0][i], all[1][i], all[2][i]});
            most[i] = std::max({all[0][i], all[1][i], all[2][i]});
        }
        const auto &own = all[comm.rank()];
        EXPECT_EQ(reduced(comm, own, INAGG_INT64, INAGG_MIN), least);
        EXPECT_EQ(reduced(comm, own, INAGG_INT64, INAGG_MAX), most);
        EXPECT_EQ(reduced(comm, Vector{-1.0 * comm.rank(), 1e-300 * comm.rank()}, INAGG_FLOAT64, INAGG_MIN), (Vector{-2, 0}));
        EXPECT_EQ(reduced(comm, Vector{-1.0 * comm.rank(), 1e-300 * comm.rank()}, INAGG_FLOAT64, INAGG_MAX), (Vector{0, 2e-300}));
    });
}

TEST(Wide, FewElementsAlwaysFit) {
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 3, [](Communicator &comm) {
        const double own = comm.rank() == 0 ? 1e300 : comm.rank() == 1 ? -1e300 : 1e-300;
        EXPECT_EQ(sum(comm, {own, 1, std::numeric_limits<double>::infinity()}),
                  (Vector{1e-300, 3, std::numeric_limits<double>::infinity()}));
        EXPECT_EQ(reduced(comm, Vector{own}, INAGG_FLOAT64, INAGG_AVG), Vector{1e-300 / 3});
    });
}

// Each rank hears it, and goes on.
TEST(Wide, WhatDoesNotFitIsAnErrorOfThatCall) {
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 2, [](Communicator &comm) {
        try {
            sum(comm, Vector(100, comm.rank() ? 1e-300 : 1e300));
            FAIL() << "no error";
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), INAGG_ERANGE);
            EXPECT_NE(std::string(error.what()).find("up to 2^997 that are multiples of 2^-1049"), std::string::npos)
                << error.what();
        }
        EXPECT_EQ(sum(comm, {1}), Vector{2});
    });
}

// Calls of all kinds under way at once: ranks start them before or after those before them are done.
TEST(Wide, CallsKeepTheirOrder) {
    SoftwareSwitch software_switch;
    const auto body = [](Communicator &comm) {
        const auto rank = static_cast<double>(comm.rank());
        for (int round = 0; round < 20; round++) {
            Vector a(3000, rank), b(2, rank + 1), c(400, rank);
            std::vector<int32_t> d(3000, comm.rank());
            std::vector<float> e(3000, static_cast<float>(rank));
            std::vector<Communicator::Handle> handles;
            const auto add = [&](auto &data, inagg_dtype dtype, inagg_op op) {
                handles.push_back(comm.allreduce(data.data(), data.data(), data.size(), dtype, op));
                if (comm.rank() == round % 3) // this one is not ahead
                    comm.wait(*handles.back());
            };
            add(a, INAGG_FLOAT64, INAGG_SUM);
            add(d, INAGG_INT32, INAGG_SUM);
            add(b, INAGG_FLOAT64, INAGG_MAX);
            add(e, INAGG_FLOAT32, INAGG_SUM);
            add(c, INAGG_FLOAT64, INAGG_AVG);
            handles.push_back(comm.barrier());
            for (const auto &handle : handles)
                comm.wait(*handle);
            EXPECT_EQ(a, Vector(3000, 3));
            EXPECT_EQ(b, Vector(2, 3));
            EXPECT_EQ(c, Vector(400, 1));
            EXPECT_EQ(d, std::vector<int32_t>(3000, 3));
            EXPECT_EQ(e, std::vector<float>(3000, 3));
        }
    };
    run_ranks(software_switch, 3, body);
    // Trees share calls out in the order in which they are prepared.
    run_ranks(software_switch, 3, body, [](inagg_options &options) { options.trees = 2; });
}

TEST(Wide, ReduceAndBroadcast) {
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 3, [](Communicator &comm) {
        Vector in(100, comm.rank()), out(100, -1);
        comm.wait(*comm.reduce(in.data(), comm.rank() == 1 ? out.data() : nullptr, in.size(), INAGG_FLOAT64, INAGG_SUM, 1));
        EXPECT_EQ(out, Vector(100, comm.rank() == 1 ? 3 : -1));
        comm.wait(*comm.reduce(in.data(), comm.rank() == 2 ? out.data() : nullptr, in.size(), INAGG_FLOAT64, INAGG_MAX, 2));
        EXPECT_EQ(out, Vector(100, comm.rank() == 1 ? 3 : comm.rank() == 2 ? 2 : -1));
        comm.wait(*comm.broadcast(in.data(), in.size(), INAGG_FLOAT64, 2));
        EXPECT_EQ(in, Vector(100, 2));
    });
}

TEST(Wide, RanksThatMayBeMissingAreRefused) {
    SoftwareSwitch software_switch;
    run_ranks(
        software_switch, 2,
        [](Communicator &comm) {
            EXPECT_THROW(sum(comm, {1}), Error);
            EXPECT_EQ(reduced(comm, std::vector<int32_t>{1}, INAGG_INT32, INAGG_SUM)[0], 2);
        },
        [](inagg_options &options) { std::snprintf(options.algorithm, sizeof(options.algorithm), "trio"); });
}

} // namespace
} // namespace inagg
