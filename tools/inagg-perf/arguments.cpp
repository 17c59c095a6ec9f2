// SPDX-License-Identifier: BSD-2-Clause
#include "arguments.hpp"

#include <common/words.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <unistd.h>

namespace perf {
namespace {

const std::map<std::string, Collective> collectives = {{"allreduce", Collective::allreduce},
                                                       {"broadcast", Collective::broadcast},
                                                       {"reduce", Collective::reduce},
                                                       {"barrier", Collective::barrier}};
const std::map<std::string, inagg_dtype> dtypes = {
    {"int32", INAGG_INT32}, {"float32", INAGG_FLOAT32}, {"float16", INAGG_FLOAT16}, {"bfloat16", INAGG_BFLOAT16}};
const std::map<std::string, inagg_op> operators = {
    {"sum", INAGG_SUM}, {"min", INAGG_MIN}, {"max", INAGG_MAX}, {"avg", INAGG_AVG}};

template <typename Value> const char *find_name(const std::map<std::string, Value> &names, Value value) {
    for (const auto &[name, candidate] : names)
        if (candidate == value)
            return name.c_str();
    return "?";
}

struct Range {
    size_t first = 4 << 10, last = 64 << 20, factor = 4;
};

std::vector<size_t> counts_of(const Range &range, size_t bytes) {
    std::vector<size_t> counts;
    for (size_t size = range.first;; size *= range.factor) {
        counts.push_back(std::max<size_t>(1, size / bytes));
        if (size > range.last / range.factor)
            return counts;
    }
}

// To CLI11, -1 is a size of nearly 2^64 bytes.
std::string check_sign(std::string &text) { return text.starts_with('-') ? text + ": give a positive number" : ""; }

void check_range(const Range &range) {
    if (range.first == 0)
        throw CLI::ValidationError("--begin", "0 bytes: give at least 1");
    if (range.first > range.last)
        throw CLI::ValidationError("--end", std::to_string(range.last) + " bytes are less than --begin, " +
                                                std::to_string(range.first) + ": give at least as many");
}

// Beyond the machine's memory the buffers would not fail at once, but end in the hands of the OOM killer.
void check_memory(const std::string &option, size_t value, size_t bytes, const Arguments &args) {
    size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t most = memory / (bytes * (args.inflight * (args.in_place ? 1 : 2) + args.tensors - 1));
    if (value > most)
        throw CLI::ValidationError(option, std::to_string(value) + (bytes == 1 ? " bytes" : " elements") + ": with " +
                                               std::to_string(args.inflight) + " in flight this machine's memory holds at most " +
                                               std::to_string(most));
}

// RANK:TIME or RANK:TIME:EVERY, TIME like 500us, 10ms or 1s.
Straggler parse_straggler(const std::string &text) {
    unsigned rank = 0, every = 1;
    double time = 0;
    char unit[3] = {};
    int end = 0;
    const int fields = std::sscanf(text.c_str(), "%u:%lf%2[a-z]%n:%u%n", &rank, &time, unit, &end, &every, &end);
    const std::map<std::string, double> units = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
    const auto found = units.find(unit);
    if (fields < 3 || static_cast<size_t>(end) != text.size() || found == units.end() || !(time > 0) || !every || rank >= 64)
        throw CLI::ValidationError("--straggle", text + ": give RANK:TIME or RANK:TIME:EVERY, like 2:10ms:5");
    return {rank, std::chrono::microseconds(static_cast<int64_t>(time * found->second)), every};
}

// Every type with every operator, in every size.
struct Matrix {
    std::vector<inagg_dtype> dtypes = {INAGG_FLOAT32};
    std::vector<inagg_op> ops = {INAGG_SUM};
    std::vector<size_t> counts; // or a range of sizes
    Range range;
};

void check_sizes(const Matrix &matrix, const Arguments &args) {
    if (matrix.counts.empty()) {
        check_range(matrix.range);
        check_memory("--end", matrix.range.last, 1, args);
    }
    for (size_t count : matrix.counts) {
        if (count == 0)
            throw CLI::ValidationError("--count", "0 elements: give at least 1");
        for (inagg_dtype dtype : matrix.dtypes)
            check_memory("--count", count, element_bytes(dtype), args);
    }
}

std::vector<Operation> operations_of(const Matrix &matrix, Collective collective) {
    std::vector<Operation> operations;
    for (inagg_dtype dtype : matrix.dtypes)
        for (inagg_op op : matrix.ops) {
            if (op == INAGG_AVG && dtype == INAGG_INT32)
                throw CLI::ValidationError("--op", "avg of int32 is no int32: give a --dtype of floats");
            for (size_t count : matrix.counts.empty() ? counts_of(matrix.range, element_bytes(dtype)) : matrix.counts)
                operations.push_back({dtype, op, collective == Collective::barrier ? 0 : count});
        }
    if (collective == Collective::barrier)
        operations.resize(1);
    return operations;
}

void check_arguments(const Arguments &args) {
    if (args.inflight > 1 && args.collective != Collective::allreduce)
        throw CLI::ValidationError("--inflight", "only allreduce has a non-blocking form");
    if (args.tensors > 1 && (args.in_place || args.collective == Collective::broadcast))
        throw CLI::ValidationError("--tensors",
                                   "with --in-place, and in a broadcast, the result overwrites the input: leave it out");
    if (args.iterations == 0 && (!args.check || args.collective == Collective::barrier))
        throw CLI::ValidationError("--iterations", "0 measures nothing: give at least 1, or --check for data");
}

// Options of the join, each with the environment variable that it overrides.
struct JoinOption {
    std::string flag, variable, help, type = "TEXT", value = {};
};

void add_join_options(CLI::App &app, std::vector<JoinOption> &options) {
    for (JoinOption &option : options)
        app.add_option(option.flag, option.value, option.help + " (" + option.variable + ")")
            ->type_name(option.type)
            ->group("Join");
}

void export_join_options(const CLI::App &app, const std::vector<JoinOption> &options) {
    for (const JoinOption &option : options)
        if (app.count(option.flag))
            setenv(option.variable.c_str(), option.value.c_str(), 1);
}

} // namespace

size_t element_bytes(inagg_dtype dtype) { return dtype == INAGG_FLOAT16 || dtype == INAGG_BFLOAT16 ? 2 : 4; }
const char *name_of(inagg_dtype dtype) { return find_name(dtypes, dtype); }
const char *name_of(inagg_op op) { return find_name(operators, op); }
const char *name_of(Collective collective) { return find_name(collectives, collective); }

Arguments parse_arguments(int argc, char **argv) {
    Arguments args;
    Matrix matrix;
    Range &range = matrix.range;
    CLI::App app{"Measure and check the collective operations of inagg, in the manner of nccl-tests. Run one\n"
                 "process per rank (inagg-netns, mpirun, torchrun, srun); rank 0 prints."};
    app.set_version_flag("--version", inagg_version());
    app.add_option("collective", args.collective, "What to measure")->required()->transform(inagg::one_of(collectives));
    app.add_option("-b,--begin", range.first, "Smallest size in bytes: 4, 4K, 64M; default 4K")
        ->transform(CLI::AsSizeValue(false).description(""))
        ->transform(CLI::Validator("").operation(check_sign));
    app.add_option("-e,--end", range.last, "Largest size; default 64M, or the smallest if that is larger")
        ->transform(CLI::AsSizeValue(false).description(""))
        ->transform(CLI::Validator("").operation(check_sign));
    app.add_option("-f,--factor", range.factor, "From one size to the next; default 4")->check(CLI::Range(2, 1 << 20));
    app.add_option("--count", matrix.counts, "Elements instead of sizes, for example 1,353")
        ->delimiter(',')
        ->check(CLI::Validator("").operation(check_sign))
        ->excludes("--begin", "--end", "--factor");
    app.add_option("-n,--iterations", args.iterations, "Timed iterations; default 20")->check(CLI::NonNegativeNumber);
    app.add_option("-w,--warmup", args.warmup, "Iterations before; default 5")->check(CLI::NonNegativeNumber);
    app.add_option("-d,--dtype", matrix.dtypes, "Type of the elements, or several with commas; default float32")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->transform(inagg::one_of(dtypes));
    app.add_option("-o,--op", matrix.ops, "Operator, or several; avg: the sum divided by the ranks in it; default sum")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->transform(inagg::one_of(operators));
    app.add_option("--inflight", args.inflight, "Tensors in flight (allreduce); default 1")->check(CLI::Range(1, 1024));
    app.add_option("--tensors", args.tensors,
                   "Different tensors that take turns in timed iterations; default 1. Of 3, no scale is as it was guessed")
        ->check(CLI::Range(1, 64));
    app.add_flag("--check", args.check, "Compare every element with the exact result of random data");
    app.add_option("--check-iterations", args.check_iterations, "Rounds of the check; default 2")->check(CLI::PositiveNumber);
    app.add_option("--seed", args.seed, "Of the random data; default 1");
    app.add_option("--outliers", args.outliers, "N: each Nth element of a float32 sum does not fit the INAGG_SCALE that is set");
    app.add_option_function<std::string>(
        "--straggle", [&args](const std::string &text) { args.straggler = parse_straggler(text); },
        "RANK:TIME[:EVERY]: that rank sleeps so long before each EVERYth iteration, 2:10ms:5");
    app.add_flag("--in-place", args.in_place, "The result overwrites the input");
    app.add_flag("--json", args.json, "One object a line, the last one with the counters of all ranks");
    std::vector<JoinOption> join = {
        {"--switch", "INAGG_SWITCH", "Address of the switch"},
        {"--job", "INAGG_JOB", "Job number"},
        {"--rank", "INAGG_RANK", "This process's rank"},
        {"--size", "INAGG_SIZE", "Ranks in the job"},
        {"--algorithm", "INAGG_ALGORITHM", "Who adds, and where", "TEXT:{switchml,trio,atp,panama,canary}"},
        {"--expiry", "INAGG_EXPIRY", "trio: a block waits so long for its next rank, 10ms"},
        {"--quorum", "INAGG_QUORUM", "trio: so many ranks decide a block, 3 or 0.88"},
        {"--transport", "INAGG_TRANSPORT", "How packets leave and come", "TEXT:{udp,kernel,afxdp,xdp,auto}"},
        {"--timeout", "INAGG_TIMEOUT_MS", "Deadline in milliseconds"}};
    add_join_options(app, join);

    try {
        app.parse(argc, argv);
        range.last = app.count("--end") ? range.last : std::max(range.first, range.last);
        if (app.count("--op") && (args.collective == Collective::broadcast || args.collective == Collective::barrier))
            throw CLI::ValidationError("--op", "a broadcast and a barrier have none: leave it out");
        check_arguments(args);
        check_sizes(matrix, args);
        args.operations = operations_of(matrix, args.collective);
    } catch (const CLI::ParseError &error) {
        std::exit(app.exit(error));
    }
    export_join_options(app, join);
    return args;
}

} // namespace perf
