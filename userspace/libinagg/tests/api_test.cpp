// SPDX-License-Identifier: BSD-2-Clause
// The C API and its C++ face.
#include "ranks.hpp"

#include <inagg/inagg.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstring>
#include <numeric>
#include <vector>

namespace {

using inagg::options_for;
using inagg::SoftwareSwitch;

// The only rank of its job; NULL: it could not join.
inagg_comm *join_alone(const SoftwareSwitch &software_switch) {
    const inagg_options options = options_for(software_switch, 0, 1);
    inagg_comm *comm = nullptr;
    return inagg_join(&options, &comm) == INAGG_OK ? comm : nullptr;
}

TEST(CApi, ErrorsBecomeNumbersAndMessages) {
    inagg_options options;
    inagg_options_init(&options);
    inagg_comm *comm = nullptr;
    EXPECT_EQ(inagg_join(&options, &comm), INAGG_EINVAL);
    EXPECT_EQ(comm, nullptr);
    EXPECT_NE(std::strstr(inagg_message(), "INAGG_SWITCH"), nullptr) << inagg_message();
    EXPECT_EQ(inagg_join(nullptr, &comm), INAGG_EINVAL);
    EXPECT_EQ(inagg_leave(nullptr), INAGG_OK);
    EXPECT_EQ(inagg_barrier(nullptr), INAGG_EINVAL);
    EXPECT_STRNE(inagg_strerror(INAGG_EDEADLINE), inagg_strerror(INAGG_ERANGE));
}

TEST(CApi, ArgumentsAreChecked) {
    SoftwareSwitch software_switch;
    inagg_comm *comm = join_alone(software_switch);
    ASSERT_NE(comm, nullptr) << inagg_message();
    EXPECT_EQ(inagg_rank(comm), 0);
    EXPECT_EQ(inagg_size(comm), 1);
    EXPECT_STREQ(inagg_transport(comm), "udp");
    EXPECT_STREQ(inagg_transport_note(comm), "");
    int data = 1;
    EXPECT_EQ(inagg_allreduce(comm, nullptr, &data, 1, INAGG_INT32, INAGG_SUM), INAGG_EINVAL);
    EXPECT_EQ(inagg_allreduce(comm, &data, &data, 1, static_cast<inagg_dtype>(9), INAGG_SUM), INAGG_EINVAL);
    EXPECT_EQ(inagg_allreduce(comm, &data, &data, 1, INAGG_INT32, static_cast<inagg_op>(3)), INAGG_EINVAL);
    EXPECT_EQ(inagg_broadcast(comm, &data, 1, INAGG_INT32, 1), INAGG_EINVAL);
    EXPECT_EQ(inagg_ibroadcast(comm, &data, 1, INAGG_INT32, 0, nullptr), INAGG_EINVAL);
    inagg_request *request = nullptr;
    EXPECT_EQ(inagg_ireduce(comm, &data, &data, 1, static_cast<inagg_dtype>(9), INAGG_SUM, 0, &request), INAGG_EINVAL);
    EXPECT_EQ(request, nullptr);
    EXPECT_EQ(inagg_ibarrier(nullptr, &request), INAGG_EINVAL);
    EXPECT_EQ(inagg_allreduce(comm, nullptr, nullptr, 0, INAGG_INT32, INAGG_SUM), INAGG_OK);
    EXPECT_EQ(inagg_allreduce(comm, &data, &data, 1, INAGG_INT32, INAGG_SUM), INAGG_OK);
    EXPECT_EQ(data, 1);
    inagg_stats_t stats;
    inagg_get_stats(comm, &stats);
    EXPECT_EQ(stats.blocks, 1U);
    EXPECT_EQ(inagg_leave(comm), INAGG_OK);
}

TEST(CApi, RequestsTellAfterLeavingWhatBecameOfThem) {
    SoftwareSwitch software_switch;
    inagg_comm *comm = join_alone(software_switch);
    ASSERT_NE(comm, nullptr) << inagg_message();
    int data = 3;
    inagg_request *sum = nullptr, *barrier = nullptr;
    ASSERT_EQ(inagg_iallreduce(comm, &data, &data, 1, INAGG_INT32, INAGG_SUM, &sum), INAGG_OK) << inagg_message();
    ASSERT_EQ(inagg_ibarrier(comm, &barrier), INAGG_OK) << inagg_message();
    EXPECT_EQ(inagg_leave(comm), INAGG_OK);
    EXPECT_EQ(inagg_test(sum), 1);
    EXPECT_EQ(inagg_wait(sum), INAGG_OK) << inagg_message();
    EXPECT_EQ(inagg_wait(barrier), INAGG_OK) << inagg_message();
    EXPECT_EQ(data, 3);
}

#if defined(__x86_64__)
TEST(CApi, SubnormalsAreSumsWhateverTheCallerHasSet) {
    SoftwareSwitch software_switch;
    inagg_comm *comm = join_alone(software_switch);
    ASSERT_NE(comm, nullptr) << inagg_message();
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_ROUND_UP);
    float data[2] = {0x1p-140F, 0x1.8p-127F};
    EXPECT_EQ(inagg_allreduce(comm, data, data, 2, INAGG_FLOAT32, INAGG_AVG), INAGG_OK) << inagg_message();
    EXPECT_EQ(_mm_getcsr() & ~0x3fU, (before | _MM_FLUSH_ZERO_ON | _MM_ROUND_UP) & ~0x3fU);
    _mm_setcsr(before);
    EXPECT_EQ(data[0], 0x1p-140F);
    EXPECT_EQ(data[1], 0x1.8p-127F);
    EXPECT_EQ(inagg_leave(comm), INAGG_OK);
}
#endif

TEST(CApi, AChildOfForkHasNoPartInIt) {
    SoftwareSwitch software_switch;
    inagg_comm *comm = join_alone(software_switch);
    ASSERT_NE(comm, nullptr) << inagg_message();
    const pid_t child = fork();
    if (child == 0) {
        const bool told = inagg_barrier(comm) == INAGG_ECLOSED && std::strstr(inagg_message(), "child");
        _exit(told && inagg_leave(comm) == INAGG_OK ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    int data = 1;
    EXPECT_EQ(inagg_allreduce(comm, &data, &data, 1, INAGG_INT32, INAGG_SUM), INAGG_OK) << inagg_message();
    EXPECT_EQ(inagg_leave(comm), INAGG_OK);
}

TEST(CppFace, AllreduceWithHandles) {
    SoftwareSwitch software_switch({.elements = 64});
    std::vector<std::thread> threads;
    for (uint16_t rank = 0; rank < 3; rank++)
        threads.emplace_back([&, rank] {
            inagg::Comm comm(options_for(software_switch, rank, 3));
            std::vector<float> in(1000, static_cast<float>(rank)), out(1000);
            comm.allreduce<float>(in, out);
            EXPECT_EQ(out, std::vector<float>(1000, 3.0F));
            std::vector<int32_t> ints(500, rank);
            auto request = comm.iallreduce<int32_t>(ints, ints, INAGG_MAX);
            comm.barrier();
            request.wait();
            EXPECT_EQ(ints, std::vector<int32_t>(500, 2));
            std::vector<int32_t> data(100, rank);
            comm.broadcast<int32_t>(data, 2);
            EXPECT_EQ(data[99], 2);
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(CppFace, CallsOfAllKindsInFlight) {
    SoftwareSwitch software_switch({.elements = 64});
    std::vector<std::thread> threads;
    for (uint16_t rank = 0; rank < 3; rank++)
        threads.emplace_back([&, rank] {
            inagg::Comm comm(options_for(software_switch, rank, 3));
            std::vector<int32_t> ints(5000, rank), data(4000, rank);
            const std::vector<double> doubles(3000, rank + 0.5);
            std::vector<double> out(rank == 1 ? 3000 : 0);
            auto broadcast = comm.ibroadcast<int32_t>(data, 2);
            auto barrier = comm.ibarrier();
            auto reduce = comm.ireduce<double>(doubles, out, 1);
            auto allreduce = comm.iallreduce<int32_t>(ints, ints);
            allreduce.wait();
            EXPECT_EQ(ints, std::vector<int32_t>(5000, 3));
            barrier.wait();
            reduce.wait();
            EXPECT_EQ(out, std::vector<double>(out.size(), 4.5));
            broadcast.wait();
            EXPECT_EQ(data, std::vector<int32_t>(4000, 2));
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(CppFace, Throws) {
    inagg_options options;
    inagg_options_init(&options);
    try {
        inagg::Comm comm(options);
        FAIL();
    } catch (const inagg::Exception &error) {
        EXPECT_EQ(error.code(), INAGG_EINVAL);
    }
}

} // namespace
