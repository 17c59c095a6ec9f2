// SPDX-License-Identifier: BSD-2-Clause
// gloo-allreduce {ring|bcube} RANK SIZE DIRECTORY BYTES:ITERATIONS...: time of Gloo's allreduce of float32
// over TCP on eth0, one JSON object a line from rank 0. DIRECTORY is where the ranks meet.
#include "gloo_mesh.hpp"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;
using Clock = std::chrono::steady_clock;

class Bench {
public:
    Bench(Algorithm algorithm, int rank, int size, const std::string &directory)
        : algorithm_(algorithm), context_(gloo_mesh(rank, size, directory)) {}

    void measure(size_t bytes, int iterations) {
        std::vector<float> send(bytes / sizeof(float)), recv(send.size());
        for (size_t i = 0; i < send.size(); i++)
            send[i] = static_cast<float>(i % 1000);
        for (int i = 0; i < iterations / 5 + 1; i++)
            allreduce(send, recv, gloo::sum<float>);
        barrier();
        std::vector<double> times;
        for (int i = 0; i < iterations; i++) {
            Clock::time_point start = Clock::now();
            allreduce(send, recv, gloo::sum<float>);
            times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
        }
        for (size_t i = 0; i < recv.size(); i++)
            if (recv[i] != static_cast<float>(i % 1000) * static_cast<float>(context_->size))
                throw std::runtime_error("wrong sum of " + std::to_string(bytes) + " bytes");
        std::nth_element(times.begin(), times.begin() + iterations / 2, times.end());
        std::vector<double> mine(1, times[iterations / 2]), largest(1);
        allreduce(mine, largest, gloo::max<double>);
        if (context_->rank == 0) {
            std::printf("{\"size\": %zu, \"workers\": %d, \"time_us\": %.3f}\n", bytes, context_->size, largest[0]);
            std::fflush(stdout);
        }
    }

    void barrier() {
        gloo::BarrierOptions options(context_);
        options.setTag(++tag_);
        gloo::barrier(options);
    }

private:
    template <typename Value>
    void allreduce(std::vector<Value> &send, std::vector<Value> &recv,
                   void (*reduce)(void *, const void *, const void *, size_t)) {
        gloo::AllreduceOptions options(context_);
        options.setAlgorithm(algorithm_);
        options.setInput(send.data(), send.size());
        options.setOutput(recv.data(), recv.size());
        options.setReduceFunction(reduce);
        options.setTag(++tag_);
        gloo::allreduce(options);
    }

    Algorithm algorithm_;
    std::shared_ptr<gloo::Context> context_;
    uint32_t tag_ = 0;
};

void run(int argc, char **argv) {
    if (argc < 6)
        throw std::runtime_error("usage: gloo-allreduce {ring|bcube} RANK SIZE DIRECTORY BYTES:ITERATIONS...");
    Algorithm algorithm = std::string(argv[1]) == "bcube" ? Algorithm::BCUBE : Algorithm::RING;
    Bench bench(algorithm, std::atoi(argv[2]), std::atoi(argv[3]), argv[4]);
    for (int i = 5; i < argc; i++) {
        size_t bytes;
        int iterations;
        if (std::sscanf(argv[i], "%zu:%d", &bytes, &iterations) != 2 || iterations < 1)
            throw std::runtime_error(std::string(argv[i]) + ": want BYTES:ITERATIONS");
        bench.measure(bytes, iterations);
    }
    bench.barrier(); // nobody closes its connections while others still use them
}

} // namespace

int main(int argc, char **argv) {
    try {
        run(argc, argv);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "gloo-allreduce: %s\n", error.what());
        return 1;
    }
}
