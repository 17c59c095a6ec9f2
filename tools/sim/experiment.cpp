// SPDX-License-Identifier: BSD-2-Clause
#include "experiment.hpp"

#include "ring.hpp"

#include <ns3/rng-seed-manager.h>
#include <ns3/simulator.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

namespace sim {
namespace {

constexpr uint64_t look_every_ns = 5000; // whether all jobs are done

bool is_tree(Algorithm algorithm) { return algorithm == Algorithm::switchml || algorithm == Algorithm::panama; }

inagg_algorithm wire_algorithm(Algorithm algorithm) {
    switch (algorithm) {
    case Algorithm::panama:
        return INAGG_PANAMA;
    case Algorithm::atp:
        return INAGG_ATP;
    case Algorithm::trio:
        return INAGG_TRIO;
    case Algorithm::canary:
        return INAGG_CANARY;
    default:
        return INAGG_SWITCHML;
    }
}

class Experiment {
public:
    explicit Experiment(const Options &options) : options_(options), network_(options.shape) {
        ns3::RngSeedManager::SetRun(options.seed);
        random_ = ns3::CreateObject<ns3::UniformRandomVariable>();
        for (uint32_t node = 0; node < network_.size(); node++) {
            if (network_.is_host(node))
                hosts_.push_back(network_.install<Host>(node, counters_));
            else
                switches_.push_back(network_.install<Switch>(node));
        }
        for (const auto &place : switches_) {
            place->set_buffers(options.buffers);
            place->set_aggregators(options.aggregators);
            place->set_records(options.records);
        }
        place_jobs();
        make_background();
        make_load();
    }

    Results run() {
        for (const auto &host : hosts_)
            host->SetStartTime(ns3::NanoSeconds(options_.warm_up_ns + below(static_cast<uint32_t>(options_.jitter_ns + 1))));
        if (background_)
            ns3::Simulator::ScheduleNow(&Background::start, background_.get());
        for (const auto &stream : streams_)
            ns3::Simulator::ScheduleNow(&Stream::start, stream.get());
        if (load_)
            load_->start();
        if (options_.sample_ns)
            ns3::Simulator::ScheduleNow(&Experiment::sample, this);
        ns3::Simulator::Schedule(ns3::NanoSeconds(options_.warm_up_ns), &Network::start_measuring, &network_);
        ns3::Simulator::Schedule(ns3::NanoSeconds(options_.warm_up_ns), &Experiment::look, this);
        ns3::Simulator::Run();
        show(1);
        return results();
    }

private:
    const Options options_;
    Counters counters_;
    Network network_;
    ns3::Ptr<ns3::UniformRandomVariable> random_;
    std::vector<ns3::Ptr<Host>> hosts_;
    std::vector<ns3::Ptr<Switch>> switches_;    // leaves, then spines
    std::vector<std::unique_ptr<Calls>> calls_; // of each job
    std::vector<std::unique_ptr<Job>> jobs_;    // with several trees so many of each
    std::vector<std::unique_ptr<Ring>> rings_;
    std::unique_ptr<Background> background_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::unique_ptr<Workload> load_;
    std::vector<Sample> samples_;
    std::vector<uint32_t> idle_, first_job_; // hosts without a job, and those of job 0
    std::chrono::steady_clock::time_point shown_{};

    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_->GetInteger(0, n - 1)); }

    std::vector<uint32_t> shuffled(uint32_t n) {
        std::vector<uint32_t> all(n);
        std::iota(all.begin(), all.end(), 0);
        for (uint32_t i = n; i > 1; i--)
            std::swap(all[i - 1], all[below(i)]);
        return all;
    }

    Switch &switch_of(uint32_t node) { return *switches_[node - network_.leaf(0)]; }

    // Random hosts (Canary §5.2). Packed: jobs take them leaf by leaf, in a random order of leaves.
    void place_jobs() {
        std::vector<uint32_t> all = shuffled(network_.hosts());
        const uint32_t ranks = options_.ranks ? options_.ranks : network_.hosts();
        idle_.assign(all.begin() + ranks, all.end());
        all.resize(ranks);
        if (options_.placement == Placement::packed) {
            const std::vector<uint32_t> order = shuffled(network_.shape.leaves);
            std::stable_sort(all.begin(), all.end(), [&](uint32_t a, uint32_t b) {
                return order[network_.leaf_index(a)] < order[network_.leaf_index(b)];
            });
        }
        for (uint32_t job = 0; job < options_.jobs; job++) {
            const auto from = all.begin() + ranks * job / options_.jobs, to = all.begin() + ranks * (job + 1) / options_.jobs;
            if (job == 0)
                first_job_.assign(from, to);
            make_job(job, {from, to});
        }
        for (uint32_t rank = 0; options_.loss > 0 && rank < std::min<size_t>(options_.lossy, first_job_.size()); rank++)
            network_.lose(first_job_[rank], options_.loss, options_.seed + rank);
    }

    void make_job(uint32_t number, const std::vector<uint32_t> &hosts) {
        const Algorithm algorithm = options_.algorithms[number % options_.algorithms.size()];
        const uint64_t stagger = number * options_.stagger_ns;
        const uint64_t prompt = hosts.size() - std::min<uint64_t>(options_.stragglers, hosts.size());
        const Plan plan{options_.duration_ns ? ~0u : options_.iterations, options_.compute_ns,
                        [=, late = options_.late_ns](uint32_t rank, uint32_t iteration) {
                            return (iteration ? 0 : stagger) + (rank < prompt ? 0 : late);
                        }};
        Calls &calls = *calls_.emplace_back(std::make_unique<Calls>(static_cast<uint32_t>(hosts.size()), plan));
        if (algorithm == Algorithm::ring)
            return make_ring(number, hosts, calls);
        std::vector<Caller *> callers;
        for (uint32_t rank = 0; rank < hosts.size(); rank++)
            callers.push_back(&hosts_[hosts[rank]]->add_caller(calls, rank));
        const std::vector<uint32_t> roots = shuffled(std::max(network_.shape.spines, 1u));
        const auto blocks = static_cast<uint32_t>((options_.bytes + 4 * options_.elements - 1) / (4 * options_.elements));
        const uint32_t trees = is_tree(algorithm) ? std::min(options_.trees, blocks) : 1;
        for (uint32_t tree = 0; tree < trees; tree++) {
            auto job = std::make_unique<Job>();
            job->number = static_cast<uint16_t>(number * options_.trees + tree);
            job->algorithm = wire_algorithm(algorithm);
            job->hosts = hosts;
            job->blocks = (blocks + trees - 1 - tree) / trees;
            job->elements = static_cast<uint16_t>(options_.elements);
            job->slots = options_.slots;
            job->root = roots[tree % roots.size()];
            job->patience_ns = options_.patience_ns;
            job->rto_floor_ns = options_.rto_floor_ns;
            job->timers_only = options_.timers_only;
            job->controlled = options_.controlled;
            job->noise = options_.noise;
            job->seed = options_.seed;
            job->results_overtake = options_.results_overtake;
            job->prepare();
            if (algorithm == Algorithm::canary)
                install_canary(*job, callers);
            else if (algorithm == Algorithm::atp)
                install_atp(*job, callers);
            else if (algorithm == Algorithm::trio)
                install_trio(*job, callers);
            else
                install_tree(*job, callers);
            jobs_.push_back(std::move(job));
        }
    }

    void make_ring(uint32_t number, const std::vector<uint32_t> &nodes, Calls &calls) {
        std::vector<Host *> members;
        for (uint32_t node : nodes)
            members.push_back(ns3::PeekPointer(hosts_[node]));
        rings_.push_back(std::make_unique<Ring>(members, number, options_.bytes, transport(true), calls));
    }

    Transport transport(bool keeps) const { return {4 * options_.elements, options_.window_bytes, options_.reacts, keeps}; }

    // A rack's switch decides by itself; those of several combine what their ranks send, for a spine.
    void install_trio(Job &job, const std::vector<Caller *> &callers) {
        std::map<uint32_t, Site> sites; // by switch
        for (uint32_t rank = 0; rank < job.size(); rank++) {
            const uint32_t node = job.hosts[rank], leaf = network_.leaf(network_.leaf_index(node));
            sites[leaf].children.push_back({node, inagg_rank_bit(rank)});
            hosts_[node]->add_worker(job.number, make_trio_worker(*hosts_[node], job, rank, counters_), *callers[rank]);
        }
        if (sites.size() > 1) {
            Site root;
            for (auto &[leaf, site] : sites) {
                root.children.push_back({leaf, site.ranks()});
                site.parent = network_.spine(job.root);
            }
            sites[network_.spine(job.root)] = root;
        }
        for (const auto &[node, site] : sites)
            switch_of(node).add_role(job.number, make_trio_role(switch_of(node), job, site, options_.trio, counters_));
    }

    // The server's switch adds the sums of the other racks to those of its own ranks.
    void install_atp(Job &job, const std::vector<Caller *> &callers) {
        require(!idle_.empty(), "job {} has no host left for its server", job.number);
        const uint32_t server = idle_.back(), top = network_.leaf(network_.leaf_index(server));
        idle_.pop_back();
        hosts_[server]->add_server(job.number, make_atp_server(*hosts_[server], job, counters_));
        std::map<uint32_t, Site> sites; // by switch
        sites[top].parent = server;
        for (uint32_t rank = 0; rank < job.size(); rank++) {
            const uint32_t node = job.hosts[rank], leaf = network_.leaf(network_.leaf_index(node));
            sites[leaf].children.push_back({node, inagg_rank_bit(rank)});
            hosts_[node]->add_worker(job.number, make_switchml_worker(*hosts_[node], job, rank, rank, counters_), *callers[rank]);
        }
        for (auto &[leaf, site] : sites) {
            if (leaf == top)
                continue;
            site.parent = top;
            sites[top].children.push_back({leaf, site.ranks()});
        }
        for (const auto &[leaf, site] : sites)
            switch_of(leaf).add_role(job.number, make_atp_role(switch_of(leaf), job, site, counters_));
    }

    // A rack's switch adds what its hosts send; a spine adds the racks' sums.
    void install_tree(Job &job, const std::vector<Caller *> &callers) {
        std::map<uint32_t, TreeSite> leaves; // by index
        for (uint32_t rank = 0; rank < job.size(); rank++) {
            const uint32_t node = job.hosts[rank];
            TreeSite &site = leaves[network_.leaf_index(node)];
            const auto name = static_cast<uint32_t>(site.children.size());
            site.children.push_back(node);
            hosts_[node]->add_worker(job.number, make_switchml_worker(*hosts_[node], job, rank, name, counters_), *callers[rank]);
        }
        TreeSite root;
        const uint32_t root_node = network_.spine(job.root);
        for (auto &[leaf, site] : leaves) {
            const uint32_t node = network_.leaf(leaf);
            if (leaves.size() > 1) {
                site.parent = root_node;
                site.number = static_cast<uint32_t>(root.children.size());
                root.children.push_back(node);
            }
            switch_of(node).add_role(job.number, make_tree_role(switch_of(node), job, site, counters_));
        }
        if (leaves.size() > 1)
            switch_of(root_node).add_role(job.number, make_tree_role(switch_of(root_node), job, root, counters_));
    }

    void install_canary(Job &job, const std::vector<Caller *> &callers) {
        for (uint32_t rank = 0; rank < job.size(); rank++) {
            const ns3::Ptr<Host> &host = hosts_[job.hosts[rank]];
            host->add_worker(job.number, make_canary_worker(*host, job, rank, counters_), *callers[rank]);
        }
        for (const auto &place : switches_) {
            place->set_descriptors(options_.descriptors);
            place->add_role(job.number, make_canary_role(*place, job, counters_));
        }
    }

    void make_background() {
        if (options_.background == Traffic::none)
            return;
        std::vector<Host *> members;
        for (uint32_t node : idle_)
            if (members.size() < options_.senders)
                members.push_back(ns3::PeekPointer(hosts_[node]));
        if (options_.background == Traffic::rank)
            return make_streams(members);
        background_ = std::make_unique<Background>(members, options_.background == Traffic::permutation, options_.message_bytes,
                                                   transport(false), [this](uint32_t n) { return below(n); });
    }

    // Each sends to a rank of the first job, through the link by which that gets its results.
    void make_streams(const std::vector<Host *> &senders) {
        for (size_t i = 0; i < senders.size(); i++) {
            const uint32_t to = first_job_[i % first_job_.size()];
            streams_.push_back(std::make_unique<Stream>(*senders[i], to, options_.message_bytes, transport(true)));
        }
    }

    // Between all hosts, whatever else they do (PANAMA §7).
    void make_load() {
        if (options_.load.sizes == Sizes::none)
            return;
        std::vector<Host *> members;
        for (const auto &host : hosts_)
            members.push_back(ns3::PeekPointer(host));
        const Transport by_dctcp{4 * options_.elements, options_.window_bytes, true, false};
        load_ = std::make_unique<Workload>(members, options_.load, options_.shape.host_rate, by_dctcp, options_.seed);
        load_->count_from(options_.warm_up_ns, options_.duration_ns ? options_.warm_up_ns + options_.duration_ns : never);
    }

    // ---- while it runs ----

    // With a duration, flows that began in it may end a while later.
    bool over() const {
        const uint64_t end = options_.warm_up_ns + options_.duration_ns;
        if (options_.duration_ns)
            return now_ns() >= end && (!load_ || load_->done() || now_ns() >= end + options_.duration_ns / 2);
        return std::all_of(calls_.begin(), calls_.end(), [](const auto &calls) { return calls->done(); });
    }

    void sample() {
        samples_.push_back({now_ns(), counters_.blocks, counters_.flow_bytes});
        ns3::Simulator::Schedule(ns3::NanoSeconds(options_.sample_ns), &Experiment::sample, this);
    }

    void look() {
        if (over())
            return ns3::Simulator::Stop();
        require(now_ns() < options_.limit_ns, "{:.1f} % of the work is done when the time is up", 100 * progress());
        if (std::chrono::steady_clock::now() - shown_ > std::chrono::milliseconds(200))
            show(progress());
        ns3::Simulator::Schedule(ns3::NanoSeconds(look_every_ns), &Experiment::look, this);
    }

    double progress() const {
        if (options_.duration_ns)
            return std::min(1.0, static_cast<double>(now_ns() - options_.warm_up_ns) / static_cast<double>(options_.duration_ns));
        double all = 0, done = static_cast<double>(counters_.blocks);
        for (const auto &job : jobs_)
            all += static_cast<double>(job->blocks) * job->size() * options_.iterations;
        for (const auto &ring : rings_) {
            all += static_cast<double>(ring->steps()) * options_.iterations;
            done += static_cast<double>(ring->steps_done());
        }
        return done / all;
    }

    void show(double fraction) {
        if (!options_.progress)
            return;
        shown_ = std::chrono::steady_clock::now();
        const int width = 40, filled = static_cast<int>(fraction * width);
        fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {:3.0f} %  {:.3f} ms simulated{}", "", filled, "", width - filled, fraction * 100,
                   static_cast<double>(now_ns()) / 1e6, fraction >= 1 ? "\n" : "");
        std::fflush(stderr);
    }

    // ---- at the end ----

    // Of whole allreduces; what has not been summed when the time is up does not count.
    Allreduce report(const Calls &calls) const {
        Allreduce mean{calls.ranks()};
        for (size_t i = options_.skipped; i < calls.spans().size(); i++) {
            const Calls::Span &span = calls.spans()[i];
            mean.seconds += calls.is_whole(span) ? static_cast<double>(span.until_ns - span.from_ns) / 1e9 : 0;
            mean.count += calls.is_whole(span);
        }
        mean.seconds /= std::max(mean.count, 1u);
        mean.gbps = mean.count ? static_cast<double>(options_.bytes) * 8 / mean.seconds / 1e9 : 0;
        return mean;
    }

    Results results() {
        Results all;
        for (const auto &calls : calls_)
            all.jobs.push_back(report(*calls));
        all.links = network_.utilisations();
        all.counters = counters_;
        all.drops = network_.drops();
        all.marks = network_.marks();
        all.lost = network_.lost();
        if (load_)
            all.flows = load_->flows();
        all.samples = samples_;
        all.events = ns3::Simulator::GetEventCount();
        all.simulated_s = static_cast<double>(now_ns()) / 1e9;
        return all;
    }
};

} // namespace

Results run(const Options &options) { return Experiment(options).run(); }

} // namespace sim
