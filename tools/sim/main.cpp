// SPDX-License-Identifier: BSD-2-Clause
// inagg-sim: one allreduce, or several, on a network of leaves and spines that is simulated packet by packet.
#include "experiment.hpp"

#include <common/units.hpp>
#include <common/words.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <numeric>

using namespace sim;

namespace {

const std::map<std::string, Algorithm> algorithms = {{"switchml", Algorithm::switchml}, {"atp", Algorithm::atp},
                                                     {"trio", Algorithm::trio},         {"panama", Algorithm::panama},
                                                     {"canary", Algorithm::canary},     {"ring", Algorithm::ring}};
const std::map<std::string, Placement> placements = {{"packed", Placement::packed}, {"scattered", Placement::scattered}};
const std::map<std::string, Traffic> patterns = {
    {"none", Traffic::none}, {"permutation", Traffic::permutation}, {"uniform", Traffic::uniform}, {"rank", Traffic::rank}};
const std::map<std::string, Sizes> distributions = {
    {"none", Sizes::none}, {"websearch", Sizes::websearch}, {"datamining", Sizes::datamining}, {"both", Sizes::both}};

template <typename T> std::string name_of(const std::map<std::string, T> &names, T value) {
    return std::find_if(names.begin(), names.end(), [&](const auto &row) { return row.second == value; })->first;
}

struct Arguments {
    Options options;
    std::string csv, links, flows_file, samples_file;
    std::string host_rate = "100gbit", link_rate = "100gbit", delay = "300ns", rto_floor = "1ms", canary_timeout = "1us";
    std::string warm_up = "50us", compute = "0us", stagger = "0us", expiry = "0us", late = "0us", duration = "0us",
                sample = "0us";
};

void add_options(CLI::App &app, Arguments &a) {
    Options &o = a.options;
    app.add_option("--leaves", o.shape.leaves, "Leaf switches; one without spines is a rack")->check(CLI::Range(1, 1024));
    app.add_option("--spines", o.shape.spines, "Spine switches, each linked to all leaves")->check(CLI::Range(0, 32));
    app.add_option("--hosts", o.shape.hosts, "Hosts of each leaf")->check(CLI::Range(1, 64));
    app.add_option("--host-rate", a.host_rate, "Rate of hosts' links, such as 100gbit");
    app.add_option("--link-rate", a.link_rate, "Rate of links between switches");
    app.add_option("--delay", a.delay, "Delay of a link, with what a switch takes");
    app.add_option("--queue", o.shape.queue_bytes, "Bytes that a port queues before it drops")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--buffer", o.shape.buffer_bytes,
                   "Nothing is dropped: a link has credits for a buffer of so many bytes where it ends")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--long-queue", o.shape.long_queue_bytes, "Packets on their way up avoid a queue of more bytes")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--mark", o.shape.mark_bytes, "ECN: what finds a queue of more bytes is marked; 0: nothing is")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--algorithm", o.algorithms,
                   "switchml, atp, trio, panama, canary or ring; several, by commas: jobs take them in turn")
        ->delimiter(',')
        ->transform(inagg::one_of(algorithms));
    app.add_flag("!--uncontrolled", o.controlled, "panama, atp: ranks take no notice of marks");
    app.add_option("--aggregators", o.aggregators, "atp: of each switch, for all jobs")->check(CLI::Range(1, 65536));
    app.add_option("--records", o.records, "trio: of each switch, for all jobs; a power of two");
    app.add_option("--expiry", a.expiry, "trio: how long a block waits for its next rank; 0: for all ranks");
    app.add_option("--sweeps", o.trio.sweeps, "trio: in an expiry")->check(CLI::Range(1, 1000));
    app.add_option("--threads", o.trio.threads, "trio: take turns in each sweep")->check(CLI::Range(1, 1000));
    app.add_option("--stragglers", o.stragglers, "Ranks of each job that are late for each allreduce");
    app.add_option("--late", a.late, "By how much");
    app.add_option("--buffers", o.buffers, "panama: of each switch, for sums that wait");
    app.add_option("--trees", o.trees, "switchml, panama: each allreduce is shared out over so many trees")
        ->check(CLI::Range(1, 32));
    app.add_option("--ranks", o.ranks, "Hosts that take part in some job; default: all");
    app.add_option("--jobs", o.jobs, "They are shared out over so many jobs, which run at once")->check(CLI::Range(1, 64));
    app.add_option("--placement", o.placement, "packed: a job's ranks are on as few leaves as may be; scattered: anywhere")
        ->transform(inagg::one_of(placements));
    app.add_option("--size", o.bytes, "Bytes of each job's tensor")->transform(CLI::AsSizeValue(false));
    app.add_option("--elements", o.elements, "Elements of a packet")->check(CLI::Range(INAGG_CHUNK, INAGG_MAX_ELEMENTS));
    app.add_option("--slots", o.slots, "Blocks in flight, of each tree; a power of two")->check(CLI::Range(1, 65536));
    app.add_option("--descriptors", o.descriptors, "canary: of each switch; a power of two");
    app.add_option("--canary-timeout", a.canary_timeout, "canary: how long a sum waits for more; 0: as switches learn")
        ->take_last();
    app.add_option("--noise", o.noise, "The share of their packets that ranks send a microsecond late; not a ring's")
        ->check(CLI::Range(0.0, 1.0));
    app.add_flag("--overtake", o.results_overtake, "canary: results do not wait in hosts' queues for elements before them");
    app.add_option("--rto-floor", a.rto_floor, "Least time before a rank takes a block for lost");
    app.add_flag("--timers-only", o.timers_only,
                 "Ranks do not conclude from later results that a block is lost; not canary's and trio's");
    app.add_option("--loss", o.loss, "Of the packets on the links of the first ranks of the first job, so many are lost")
        ->check(CLI::Range(0.0, 0.5));
    app.add_option("--lossy", o.lossy, "So many ranks")->check(CLI::Range(1, 64));
    app.add_option("--background", o.background,
                   "What hosts without a job send: none, permutation, uniform, or rank: to one of the first job, without end")
        ->transform(inagg::one_of(patterns));
    app.add_option("--senders", o.senders, "Hosts that send it, at most");
    app.add_option("--message", o.message_bytes, "Bytes that such a host sends before it takes another peer")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--window", o.window_bytes, "Bytes in flight of such a host, and of a ring's")
        ->transform(CLI::AsSizeValue(false));
    app.add_flag("--dctcp", o.reacts, "The ring's and the background's messages heed marks");
    app.add_option("--flows", o.load.sizes,
                   "Flows between all hosts, by DCTCP: none, websearch, datamining or both, half of each")
        ->transform(inagg::one_of(distributions));
    app.add_option("--load", o.load.share, "Of hosts' links, that these flows are meant to take")->check(CLI::Range(0.001, 1.0));
    app.add_option("--largest-flow", o.load.largest, "Longer ones are cut")->transform(CLI::AsSizeValue(false));
    app.add_option("--iterations", o.iterations, "Allreduces of each job, one after the other")->check(CLI::PositiveNumber);
    app.add_option("--skip", o.skipped, "Of them, the first do not count");
    app.add_option("--stagger", a.stagger, "A job's first allreduce comes so much later than that of the job before");
    app.add_option("--compute", a.compute, "Time between them");
    app.add_option("--duration", a.duration, "Jobs go on until then, and flows that start before are counted");
    app.add_option("--warm-up", a.warm_up, "Before jobs begin and flows are counted");
    app.add_option("--sample", a.sample, "Time between the lines of --samples");
    app.add_option("--seed", o.seed, "The same seed gives the same run")->check(CLI::PositiveNumber);
    app.add_option("--csv", a.csv, "Append a line to this file, with a heading if it is new");
    app.add_option("--flow-times", a.flows_file, "Write each flow's bytes, start and time to this file, in ns; 0: has not ended");
    app.add_option("--samples", a.samples_file,
                   "Write what has arrived until when to this file: blocks of all ranks, and flows' bytes");
    app.add_option("--links", a.links, "Write each link's utilisation to this file, one a line");
}

bool uses(const Options &o, Algorithm algorithm) {
    return std::find(o.algorithms.begin(), o.algorithms.end(), algorithm) != o.algorithms.end();
}

uint32_t servers(const Options &o) {
    uint32_t count = 0;
    for (uint32_t job = 0; job < o.jobs; job++)
        count += o.algorithms[job % o.algorithms.size()] == Algorithm::atp;
    return count;
}

bool is_power_of_two(uint32_t n) { return n && !(n & (n - 1)); }

constexpr uint32_t least_buffer = 8192;

// What CLI11 cannot know: throws with the value and what to do.
void finish(Arguments &a) {
    Options &o = a.options;
    o.shape.host_rate = inagg::parse_rate(a.host_rate);
    o.shape.link_rate = inagg::parse_rate(a.link_rate);
    o.shape.delay_ns = static_cast<uint64_t>(inagg::parse_duration(a.delay).count());
    o.rto_floor_ns = static_cast<uint64_t>(inagg::parse_duration(a.rto_floor).count());
    o.patience_ns = static_cast<uint64_t>(inagg::parse_duration(a.canary_timeout).count());
    const auto ns = [](const std::string &text) { return static_cast<uint64_t>(inagg::parse_duration(text).count()); };
    o.warm_up_ns = ns(a.warm_up);
    o.compute_ns = ns(a.compute);
    o.stagger_ns = ns(a.stagger);
    o.trio.expiry_ns = ns(a.expiry);
    o.late_ns = ns(a.late);
    o.duration_ns = ns(a.duration);
    o.sample_ns = ns(a.sample);
    const uint32_t hosts = o.shape.leaves * o.shape.hosts, ranks = o.ranks ? o.ranks : hosts;
    const auto refuse = [](const std::string &why) { throw std::invalid_argument(why); };
    if (o.shape.leaves > 1 && !o.shape.spines)
        refuse(fmt::format("--leaves {}: need --spines to connect them", o.shape.leaves));
    if (hosts + o.shape.leaves + o.shape.spines >= anyone)
        refuse(fmt::format("{} hosts: at most {} nodes can be numbered", hosts, anyone));
    if (ranks > hosts)
        refuse(fmt::format("--ranks {}: there are only {} hosts", ranks, hosts));
    if (ranks / o.jobs < 2)
        refuse(fmt::format("--jobs {}: {} ranks are fewer than 2 each", o.jobs, ranks));
    if (o.shape.buffer_bytes && o.shape.buffer_bytes < least_buffer)
        refuse(fmt::format("--buffer {}: at least {}, or else large packets never fit", o.shape.buffer_bytes, least_buffer));
    if (o.shape.buffer_bytes && o.loss > 0)
        refuse(fmt::format("--loss {}: with --buffer nothing is lost", o.loss));
    if (o.elements % INAGG_CHUNK)
        refuse(fmt::format("--elements {}: must be a multiple of {}", o.elements, INAGG_CHUNK));
    if (!is_power_of_two(o.slots))
        refuse(fmt::format("--slots {}: must be a power of two", o.slots));
    if (!is_power_of_two(o.descriptors))
        refuse(fmt::format("--descriptors {}: must be a power of two", o.descriptors));
    if (ranks + servers(o) > hosts)
        refuse(fmt::format("--ranks {}: of {} hosts {} have to be servers of atp", ranks, hosts, servers(o)));
    if (!is_power_of_two(o.records) || o.records < 2 * INAGG_WAYS)
        refuse(fmt::format("--records {}: must be a power of two, and at least {}", o.records, 2 * INAGG_WAYS));
    if (uses(o, Algorithm::trio) && (ranks + o.jobs - 1) / o.jobs > INAGG_MAX_RANKS)
        refuse(fmt::format("--algorithm trio: {} ranks in {} jobs: at most {} each", ranks, o.jobs, INAGG_MAX_RANKS));
    if (uses(o, Algorithm::atp) && (ranks + o.jobs - 1) / o.jobs > INAGG_MAX_RANKS)
        refuse(fmt::format("--algorithm atp: {} ranks in {} jobs: at most {} each", ranks, o.jobs, INAGG_MAX_RANKS));
    if (uses(o, Algorithm::canary) && (ranks + o.jobs - 1) / o.jobs > INAGG_MAX_RANKS)
        refuse(fmt::format("--algorithm canary: {} ranks in {} jobs: a packet names at most {} ranks of a job; take --jobs {}",
                           ranks, o.jobs, INAGG_MAX_RANKS, (ranks + INAGG_MAX_RANKS - 1) / INAGG_MAX_RANKS));
    if (!uses(o, Algorithm::switchml) && !uses(o, Algorithm::panama) && o.trees > 1)
        refuse(fmt::format("--trees {}: only switchml and panama have several", o.trees));
    if (o.trees > std::max(o.shape.spines, 1u))
        refuse(fmt::format("--trees {}: there are only {} spines", o.trees, o.shape.spines));
}

double mean(const std::vector<double> &all) {
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

// At least this share of `all` is no more.
double percentile(std::vector<double> all, double share) {
    if (all.empty())
        return 0;
    std::sort(all.begin(), all.end());
    return all[std::min(all.size() - 1, static_cast<size_t>(share * static_cast<double>(all.size())))];
}

constexpr uint64_t tiny_bytes = 100'000, long_bytes = 10'000'000;

// How long flows took, in us.
struct FlowTimes {
    std::vector<double> tiny, all, long_rates;
    uint64_t unfinished = 0;

    // What has not ended has taken at least until the end of the run.
    FlowTimes(const std::vector<Finished> &flows, double end_s) {
        for (Finished flow : flows) {
            unfinished += !flow.took_ns;
            flow.took_ns = flow.took_ns ? flow.took_ns : static_cast<uint64_t>(end_s * 1e9) - flow.started_ns;
            add(flow);
        }
    }

    double long_gbps() const { return long_rates.empty() ? 0 : mean(long_rates); }

private:
    void add(const Finished &flow) {
        const double us = static_cast<double>(flow.took_ns) / 1e3;
        all.push_back(us);
        if (flow.bytes < tiny_bytes)
            tiny.push_back(us);
        if (flow.bytes >= long_bytes)
            long_rates.push_back(static_cast<double>(flow.bytes) * 8 / us / 1e3);
    }
};

struct Cost {
    double wall_s;
    double memory_mib;
};

using Row = std::vector<std::pair<std::string, std::string>>;

// All that the seed decides comes before what this machine took for it.
Row row_of(const Options &o, const Results &r, const Cost &cost) {
    std::vector<double> rates, times;
    for (const Allreduce &job : r.jobs) {
        rates.push_back(job.gbps);
        times.push_back(job.seconds * 1e6);
    }
    const auto text = [](auto value) { return fmt::format("{}", value); };
    const auto decimal = [](double value) { return fmt::format("{:.4f}", value); };
    const double idle = static_cast<double>(std::count_if(r.links.begin(), r.links.end(), [](double u) { return u < 0.01; }));
    std::string names, each;
    for (Algorithm algorithm : o.algorithms)
        names += (names.empty() ? "" : "+") + name_of(algorithms, algorithm);
    for (double rate : rates)
        each += fmt::format("{}{:.2f}", each.empty() ? "" : " ", rate);
    const FlowTimes flows(r.flows, r.simulated_s);
    return {{"algorithm", names},
            {"trees", text(o.trees)},
            {"leaves", text(o.shape.leaves)},
            {"spines", text(o.shape.spines)},
            {"hosts", text(o.shape.hosts)},
            {"ranks", text(o.ranks ? o.ranks : o.shape.leaves * o.shape.hosts)},
            {"jobs", text(o.jobs)},
            {"bytes", text(o.bytes)},
            {"elements", text(o.elements)},
            {"slots", text(o.slots)},
            {"placement", name_of(placements, o.placement)},
            {"noise", text(o.noise)},
            {"overtake", text(o.results_overtake ? 1 : 0)},
            {"canary_timeout_ns", text(o.patience_ns)},
            {"buffer", text(o.shape.buffer_bytes)},
            {"mark", text(o.shape.mark_bytes)},
            {"controlled", text(o.controlled ? 1 : 0)},
            {"iterations", text(r.jobs.empty() ? 0 : r.jobs[0].count)},
            {"compute_ns", text(o.compute_ns)},
            {"flows", name_of(distributions, o.load.sizes)},
            {"load", decimal(o.load.sizes == Sizes::none ? 0 : o.load.share)},
            {"background", name_of(patterns, o.background)},
            {"seed", text(o.seed)},
            {"gbps_mean", decimal(mean(rates))},
            {"gbps_each", each},
            {"gbps_min", decimal(*std::min_element(rates.begin(), rates.end()))},
            {"us_mean", decimal(mean(times))},
            {"us_max", decimal(*std::max_element(times.begin(), times.end()))},
            {"utilisation", decimal(mean(r.links))},
            {"utilisation_max", decimal(*std::max_element(r.links.begin(), r.links.end()))},
            {"idle_links", decimal(idle / static_cast<double>(r.links.size()))},
            {"drops", text(r.drops)},
            {"marks", text(r.marks)},
            {"lost", text(r.lost)},
            {"aggregators", text(o.aggregators)},
            {"degraded", text(r.counters.degraded)},
            {"refused", text(r.counters.refused)},
            {"skipped", text(r.counters.skipped)},
            {"latency_us_mean", decimal(r.counters.latency_ns / 1e3 /
                                        std::max<double>(1, static_cast<double>(r.counters.blocks - r.counters.skipped)))},
            {"latency_us_max", decimal(static_cast<double>(r.counters.latency_most_ns) / 1e3)},
            {"at_server", text(r.counters.at_server)},
            {"partials", text(r.counters.partials)},
            {"cuts", text(r.counters.cuts)},
            {"unbuffered", text(r.counters.unbuffered)},
            {"flows_counted", text(r.flows.size())},
            {"flows_unfinished", text(flows.unfinished)},
            {"tiny_p50_us", decimal(percentile(flows.tiny, 0.5))},
            {"tiny_p99_us", decimal(percentile(flows.tiny, 0.99))},
            {"short_p50_us", decimal(percentile(flows.all, 0.5))},
            {"short_p99_us", decimal(percentile(flows.all, 0.99))},
            {"long_gbps", decimal(flows.long_gbps())},
            {"blocks", text(r.counters.blocks)},
            {"resends", text(r.counters.resends)},
            {"requests", text(r.counters.requests)},
            {"waits", text(r.counters.waits)},
            {"collisions", text(r.counters.collisions)},
            {"most_held", text(r.counters.most_held)},
            {"stragglers", text(r.counters.stragglers)},
            {"expired", text(r.counters.expired)},
            {"failed_attempts", text(r.counters.failed_attempts)},
            {"messages", text(r.counters.messages)},
            {"segments_resent", text(r.counters.segments_resent)},
            {"events", text(r.events)},
            {"wall_s", decimal(cost.wall_s)},
            {"memory_mib", decimal(cost.memory_mib)}};
}

void append(const std::string &path, const Row &row) {
    const bool is_new = !std::ifstream(path).good() || std::ifstream(path).peek() == EOF;
    std::ofstream file(path, std::ios::app);
    if (!file)
        throw std::runtime_error(fmt::format("--csv {}: cannot be written", path));
    std::string heading, line;
    for (const auto &[name, value] : row) {
        heading += (heading.empty() ? "" : ",") + name;
        line += (line.empty() ? "" : ",") + value;
    }
    if (is_new)
        file << heading << '\n';
    file << line << '\n';
}

std::ofstream opened(const char *option, const std::string &path) {
    std::ofstream file(path);
    if (!file)
        throw std::runtime_error(fmt::format("{} {}: cannot be written", option, path));
    return file;
}

void write_links(const std::string &path, const std::vector<double> &links) {
    std::ofstream file = opened("--links", path);
    for (double link : links)
        file << fmt::format("{:.4f}\n", link);
}

void write_flows(const std::string &path, const std::vector<Finished> &flows) {
    std::ofstream file = opened("--flow-times", path);
    file << "bytes,started_ns,took_ns\n";
    for (const Finished &flow : flows)
        file << fmt::format("{},{},{}\n", flow.bytes, flow.started_ns, flow.took_ns);
}

void write_samples(const std::string &path, const std::vector<Sample> &samples) {
    std::ofstream file = opened("--samples", path);
    file << "ns,blocks,flow_bytes\n";
    for (const Sample &sample : samples)
        file << fmt::format("{},{},{}\n", sample.at_ns, sample.blocks, sample.flow_bytes);
}

double peak_memory_mib() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
}

void simulate(const Arguments &a) {
    const auto before = std::chrono::steady_clock::now();
    const Results results = run(a.options);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - before;
    const Row row = row_of(a.options, results, {wall.count(), peak_memory_mib()});
    for (const auto &[name, value] : row)
        fmt::print("{:<16} {}\n", name, value);
    if (!a.csv.empty())
        append(a.csv, row);
    if (!a.links.empty())
        write_links(a.links, results.links);
    if (!a.flows_file.empty())
        write_flows(a.flows_file, results.flows);
    if (!a.samples_file.empty())
        write_samples(a.samples_file, results.samples);
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("Allreduce on a simulated network of leaves and spines, by the protocol code that the switches and ranks run.");
    Arguments arguments;
    add_options(app, arguments);
    CLI11_PARSE(app, argc, argv);
    try {
        arguments.options.progress = isatty(STDERR_FILENO);
        finish(arguments);
        simulate(arguments);
    } catch (const std::exception &error) {
        fmt::print(stderr, "inagg-sim: {}\n", error.what());
        return 1;
    }
    return 0;
}
