// SPDX-License-Identifier: BSD-2-Clause
#include "arguments.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace perf {
namespace {

const std::map<std::string, Collective> collectives = {{"allreduce", Collective::allreduce},
                                                       {"broadcast", Collective::broadcast},
                                                       {"reduce", Collective::reduce},
                                                       {"barrier", Collective::barrier}};
const std::map<std::string, inagg_dtype> dtypes = {{"int32", INAGG_INT32},
                                                   {"float32", INAGG_FLOAT32},
                                                   {"float16", INAGG_FLOAT16},
                                                   {"bfloat16", INAGG_BFLOAT16}};
const std::map<std::string, inagg_op> operators = {
    {"sum", INAGG_SUM}, {"min", INAGG_MIN}, {"max", INAGG_MAX}};

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
    for (size_t size = range.first; size <= range.last; size *= range.factor)
        counts.push_back(std::max<size_t>(1, size / bytes));
    return counts;
}

// Options of the join, each with the environment variable that it overrides.
struct JoinOption {
    std::string flag, variable, help, value = {};
};

void add_join_options(CLI::App &app, std::vector<JoinOption> &options) {
    for (JoinOption &option : options)
        app.add_option(option.flag, option.value, option.help + " (" + option.variable + ")")->group("Join");
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
    Range range;
    CLI::App app{
        "Measure and check the collective operations of inagg, in the manner of nccl-tests. Run one\n"
        "process per rank (inagg-netns, mpirun, torchrun, srun); rank 0 prints."};
    app.set_version_flag("--version", inagg_version());
    app.add_option("collective", args.collective, "allreduce, broadcast, reduce or barrier")
        ->required()
        ->transform(CLI::CheckedTransformer(collectives).description(""));
    app.add_option("-b,--begin", range.first, "Smallest size in bytes: 4, 4K, 64M; default 4K")
        ->transform(CLI::AsSizeValue(false).description(""));
    app.add_option("-e,--end", range.last, "Largest size; default 64M, or the smallest if that is larger")
        ->transform(CLI::AsSizeValue(false).description(""));
    app.add_option("-f,--factor", range.factor, "From one size to the next; default 4")
        ->check(CLI::Range(2, 1 << 20));
    app.add_option("--count", args.counts, "Elements instead of sizes, for example 1,353")
        ->delimiter(',')
        ->check(CLI::PositiveNumber)
        ->excludes("--begin", "--end", "--factor");
    app.add_option("-n,--iterations", args.iterations, "Timed iterations; default 20")
        ->check(CLI::NonNegativeNumber);
    app.add_option("-w,--warmup", args.warmup, "Iterations before; default 5")->check(CLI::NonNegativeNumber);
    app.add_option("-d,--dtype", args.dtype, "int32, float32, float16 or bfloat16; default float32")
        ->transform(CLI::CheckedTransformer(dtypes).description(""));
    app.add_option("-o,--op", args.op, "sum, min or max; default sum")
        ->transform(CLI::CheckedTransformer(operators).description(""));
    app.add_option("--inflight", args.inflight, "Tensors in flight (allreduce); default 1")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--check", args.check, "Compare every element with the exact result of random data");
    app.add_option("--check-iterations", args.check_iterations, "Rounds of the check; default 2")
        ->check(CLI::PositiveNumber);
    app.add_option("--seed", args.seed, "Of the random data; default 1");
    app.add_flag("--in-place", args.in_place, "The result overwrites the input");
    app.add_flag("--json", args.json, "One object a line, the last one with the counters of all ranks");
    std::vector<JoinOption> join = {{"--switch", "INAGG_SWITCH", "Address of the switch"},
                                    {"--job", "INAGG_JOB", "Job number"},
                                    {"--rank", "INAGG_RANK", "This process's rank"},
                                    {"--size", "INAGG_SIZE", "Ranks in the job"},
                                    {"--algorithm", "INAGG_ALGORITHM", "switchml"},
                                    {"--transport", "INAGG_TRANSPORT", "udp, afxdp, xdp or auto"},
                                    {"--timeout", "INAGG_TIMEOUT_MS", "Deadline in milliseconds"}};
    add_join_options(app, join);

    try {
        app.parse(argc, argv);
        if (range.first == 0)
            throw CLI::ValidationError("--begin", "0 bytes: give at least 1");
        if (args.inflight > 1 && args.collective != Collective::allreduce)
            throw CLI::ValidationError("--inflight", "only allreduce has a non-blocking form");
    } catch (const CLI::ParseError &error) {
        std::exit(app.exit(error));
    }
    export_join_options(app, join);

    range.last = app.count("--end") ? range.last : std::max(range.first, range.last);
    if (args.collective == Collective::barrier)
        args.counts = {0};
    else if (args.counts.empty())
        args.counts = counts_of(range, element_bytes(args.dtype));
    return args;
}

} // namespace perf
