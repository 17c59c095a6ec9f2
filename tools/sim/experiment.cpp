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
        place_jobs();
        make_background();
    }

    Results run() {
        for (const auto &host : hosts_)
            host->SetStartTime(ns3::NanoSeconds(options_.warm_up_ns + below(static_cast<uint32_t>(options_.jitter_ns + 1))));
        if (background_)
            ns3::Simulator::ScheduleNow(&Background::start, background_.get());
        for (const auto &ring : rings_)
            ns3::Simulator::Schedule(ns3::NanoSeconds(options_.warm_up_ns), &Ring::start, ring.get());
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
    std::vector<ns3::Ptr<Switch>> switches_; // leaves, then spines
    std::vector<std::unique_ptr<Job>> jobs_; // with several trees so many of each allreduce, one behind the other
    std::vector<std::unique_ptr<Ring>> rings_;
    std::unique_ptr<Background> background_;
    std::vector<uint32_t> idle_; // hosts without a job
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
            make_job(job, {from, to});
        }
    }

    void make_job(uint32_t number, const std::vector<uint32_t> &hosts) {
        if (options_.algorithm == Algorithm::ring)
            return make_ring(number, hosts);
        const std::vector<uint32_t> roots = shuffled(std::max(network_.shape.spines, 1u));
        const auto blocks = static_cast<uint32_t>((options_.bytes + 4 * options_.elements - 1) / (4 * options_.elements));
        for (uint32_t tree = 0; tree < options_.trees; tree++) {
            auto job = std::make_unique<Job>();
            job->number = static_cast<uint16_t>(number * options_.trees + tree);
            job->algorithm = options_.algorithm == Algorithm::canary ? INAGG_CANARY : INAGG_SWITCHML;
            job->hosts = hosts;
            job->blocks = (blocks + options_.trees - 1 - tree) / options_.trees;
            job->elements = static_cast<uint16_t>(options_.elements);
            job->slots = options_.slots;
            job->root = roots[tree % roots.size()];
            job->patience_ns = options_.patience_ns;
            job->rto_floor_ns = options_.rto_floor_ns;
            job->two_descriptors = options_.two_descriptors;
            job->prepare();
            if (options_.algorithm == Algorithm::canary)
                install_canary(*job);
            else
                install_tree(*job);
            jobs_.push_back(std::move(job));
        }
    }

    void make_ring(uint32_t number, const std::vector<uint32_t> &nodes) {
        std::vector<Host *> members;
        for (uint32_t node : nodes)
            members.push_back(ns3::PeekPointer(hosts_[node]));
        rings_.push_back(std::make_unique<Ring>(members, number, options_.bytes, 4 * options_.elements, options_.window_bytes));
        for (Host *host : members)
            host->flows().on_message([ring = rings_.back().get()](uint32_t from, uint32_t message) { ring->arrived(from, message); });
    }

    // A rack's switch adds what its hosts send; a spine adds the racks' sums.
    void install_tree(Job &job) {
        std::map<uint32_t, TreeSite> leaves; // by index
        for (uint32_t rank = 0; rank < job.size(); rank++) {
            const uint32_t node = job.hosts[rank];
            TreeSite &site = leaves[network_.leaf_index(node)];
            const auto name = static_cast<uint32_t>(site.children.size());
            site.children.push_back(node);
            hosts_[node]->add_worker(job.number, make_switchml_worker(*hosts_[node], job, rank, name, counters_));
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

    void install_canary(Job &job) {
        for (uint32_t rank = 0; rank < job.size(); rank++) {
            const ns3::Ptr<Host> &host = hosts_[job.hosts[rank]];
            host->add_worker(job.number, make_canary_worker(*host, job, rank, counters_));
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
            members.push_back(ns3::PeekPointer(hosts_[node]));
        background_ = std::make_unique<Background>(members, options_.background == Traffic::permutation, options_.message_bytes,
                                                   4 * options_.elements, options_.window_bytes,
                                                   [this](uint32_t n) { return below(n); });
    }

    // ---- while it runs ----

    void look() {
        const bool over = std::all_of(jobs_.begin(), jobs_.end(), [](const auto &job) { return job->done(); }) &&
                          std::all_of(rings_.begin(), rings_.end(), [](const auto &ring) { return ring->done(); });
        if (over)
            return ns3::Simulator::Stop();
        require(now_ns() < options_.limit_ns, "{:.1f} % of the work is done when the time is up", 100 * progress());
        if (std::chrono::steady_clock::now() - shown_ > std::chrono::milliseconds(200))
            show(progress());
        ns3::Simulator::Schedule(ns3::NanoSeconds(look_every_ns), &Experiment::look, this);
    }

    double progress() const {
        uint64_t all = 0, done = counters_.blocks;
        for (const auto &job : jobs_)
            all += static_cast<uint64_t>(job->blocks) * job->size();
        for (const auto &ring : rings_) {
            all += ring->steps();
            done += ring->steps_done();
        }
        return static_cast<double>(done) / static_cast<double>(all);
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

    Allreduce report(uint32_t ranks, uint64_t from, uint64_t until) const {
        const double seconds = static_cast<double>(until - from) / 1e9;
        return {ranks, seconds, static_cast<double>(options_.bytes) * 8 / seconds / 1e9};
    }

    Results results() {
        Results all;
        for (size_t first = 0; first < jobs_.size(); first += options_.trees) {
            uint64_t from = never, until = 0;
            for (size_t i = first; i < first + options_.trees; i++) {
                from = std::min(from, jobs_[i]->started_ns);
                until = std::max(until, jobs_[i]->finished_ns);
            }
            all.jobs.push_back(report(jobs_[first]->size(), from, until));
        }
        for (const auto &ring : rings_)
            all.jobs.push_back(report(ring->size(), ring->started_ns, ring->finished_ns));
        all.links = network_.utilisations();
        all.counters = counters_;
        all.drops = network_.drops();
        all.events = ns3::Simulator::GetEventCount();
        all.simulated_s = static_cast<double>(now_ns()) / 1e9;
        return all;
    }
};

} // namespace

Results run(const Options &options) { return Experiment(options).run(); }

} // namespace sim
