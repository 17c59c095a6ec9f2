// SPDX-License-Identifier: BSD-2-Clause
// Gloo's ring allreduce as three C functions, for ctypes. PyTorch would bring half a gigabyte of packages.
#include "gloo_mesh.hpp"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>

#include <cstdio>
#include <exception>

namespace {

struct Group {
    std::shared_ptr<gloo::Context> context;
    uint32_t tag = 0;
};

void sum(Group &group, float *elements, size_t count) {
    gloo::AllreduceOptions options(group.context);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(elements, count);
    options.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    options.setTag(++group.tag);
    gloo::allreduce(options);
}

// Nobody closes its connections while others still use them.
void close(Group &group) {
    gloo::BarrierOptions options(group.context);
    options.setTag(++group.tag);
    gloo::barrier(options);
}

// What `call` throws is printed, because it must not leave C; false then.
template <typename Call> bool succeeds(Call call) {
    try {
        call();
        return true;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "gloo: %s\n", error.what());
        return false;
    }
}

} // namespace

extern "C" {

// A rank, connected with all others that meet in `directory`; null if that failed.
Group *gloo_c_join(int rank, int size, const char *directory) {
    auto group = std::make_unique<Group>();
    return succeeds([&] { group->context = gloo_mesh(rank, size, directory); }) ? group.release() : nullptr;
}

// The sum over all ranks, in place; 0 or -1.
int gloo_c_sum(Group *group, float *elements, size_t count) {
    return succeeds([&] { sum(*group, elements, count); }) ? 0 : -1;
}

// Waits for all ranks and frees `group`; 0 or -1.
int gloo_c_leave(Group *group) {
    std::unique_ptr<Group> mine(group);
    return succeeds([&] { close(*mine); }) ? 0 : -1;
}

} // extern "C"
