// SPDX-License-Identifier: BSD-2-Clause
#include "plan.hpp"

#include "common/units.hpp"
#include "error.hpp"
#include "job_book.hpp"
#include "switch_maps.h"

#include <fmt/format.h>
#include <inagg/core/congestion.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

namespace inaggctl {
namespace {

using inaggd::Error;

// Where a job is summed, by the numbers of the switches' jobs. With canary all spines have the first.
struct Placement {
    unsigned first;
    std::vector<size_t> spines;
};

bool is_spread(const Work &work) { return inaggd::is_spread(work.algorithm); }

// Of the switches, for so many spines.
unsigned job_count(const Work &work, size_t spines) { return is_spread(work) ? 1 : static_cast<unsigned>(spines); }

class Planner {
    using Load = std::pair<double, double>;

public:
    explicit Planner(const Fabric &fabric)
        : fabric_(fabric), load_(fabric.leaves.size(), std::vector<double>(fabric.spines.size())) {
        leave_out_spines();
        for (const Work &work : fabric_.works)
            placements_.push_back(place(work));
    }

    json result() const {
        json jobs = json::array(), files = json::object();
        for (size_t i = 0; i < placements_.size(); i++)
            jobs.push_back(describe(fabric_.works[i], placements_[i], files));
        for (size_t spine : parents_)
            files[fabric_.spines[spine].name + ".toml"] = spine_options(spine);
        for (size_t leaf = 0; leaf < fabric_.leaves.size(); leaf++)
            files[fabric_.leaves[leaf].name + ".toml"] = leaf_options(leaf);
        return {{"jobs", jobs}, {"links", links()}, {"files", files}, {"warnings", warnings_}};
    }

private:
    // A switch knows a job's tree by the job's number modulo its parents, so all leaves have the same ones.
    void leave_out_spines() {
        for (size_t spine = 0; spine < fabric_.spines.size(); spine++) {
            std::vector<std::string> without;
            for (const Leaf &leaf : fabric_.leaves)
                if (!uplink_to(leaf, spine))
                    without.push_back(leaf.name);
            if (without.empty())
                parents_.push_back(spine);
            else
                warnings_.push_back(fmt::format("{} carries no trees: it has no link to {}", fabric_.spines[spine].name,
                                                fmt::join(without, ", ")));
        }
        if (parents_.empty())
            throw Error("plan: no spine has links to all leaves: {}", fmt::join(warnings_, "; "));
    }

    static const Uplink *uplink_to(const Leaf &leaf, size_t spine) {
        for (const Uplink &uplink : leaf.uplinks)
            if (uplink.spine == spine)
                return &uplink;
        return nullptr;
    }

    size_t spine_at(size_t position) const { return parents_[position % parents_.size()]; }

    bool may_have(const Work &work, size_t spine) const {
        return work.spines.empty() || std::binary_search(work.spines.begin(), work.spines.end(), spine);
    }

    // Trees of a job are at spines that follow each other in the list, from one on that makes the largest load of a link
    // smallest, and then all of theirs.
    Placement place(const Work &work) {
        if (is_spread(work) && (work.trees > 1 || !work.spines.empty()))
            throw Error("plan: job {}: canary uses all spines, by one job: leave out trees and spines", work.name);
        const unsigned trees = trees_of(work);
        std::optional<size_t> best;
        Load least;
        for (size_t start = 0; start < parents_.size(); start++) {
            const auto load = load_with(work, start, trees);
            if (load && (!best || *load < least)) {
                least = *load;
                best = start;
            }
        }
        if (!best)
            throw Error("plan: job {}: its {} trees need as many spines that follow each other in the file, and it may have {}",
                        work.name, trees, fmt::join(names(work.spines), ", "));
        Placement placement{.first = take_numbers(work, *best, trees), .spines = {}};
        for (size_t tree = 0; tree < trees; tree++) {
            placement.spines.push_back(spine_at(*best + tree));
            for (size_t leaf : leaves_of(work))
                load_[leaf][placement.spines.back()] += 1.0 / trees;
        }
        return placement;
    }

    // So many that each can be at a spine of its own.
    unsigned trees_of(const Work &work) const {
        const auto usable = static_cast<unsigned>(
            std::count_if(parents_.begin(), parents_.end(), [&](size_t spine) { return may_have(work, spine); }));
        if (work.trees > usable)
            throw Error("plan: job {}: {} trees, but {} spines for them: {}", work.name, work.trees, usable,
                        fmt::join(names(work.spines.empty() ? parents_ : work.spines), ", "));
        if (!usable)
            throw Error("plan: job {}: none of {} has links to all leaves", work.name, fmt::join(names(work.spines), ", "));
        return work.trees ? work.trees : std::min<unsigned>(usable, INAGG_MAX_RANKS);
    }

    // That have ranks of the job.
    std::set<size_t> leaves_of(const Work &work) const {
        std::set<size_t> leaves;
        for (size_t host : work.hosts)
            leaves.insert(fabric_.hosts[host].leaf);
        return leaves;
    }

    // Of the links between the job's leaves and spines the largest load, and the sum, if its trees begin there, if they may.
    std::optional<Load> load_with(const Work &work, size_t start, unsigned trees) const {
        Load load{0, 0};
        for (unsigned tree = 0; tree < trees; tree++) {
            const size_t spine = spine_at(start + tree);
            if (!may_have(work, spine))
                return std::nullopt;
            for (size_t leaf : leaves_of(work))
                load = {std::max(load.first, load_[leaf][spine] + 1.0 / trees), load.second + load_[leaf][spine]};
        }
        return load;
    }

    static unsigned numbers_of(const Work &work, size_t trees) { return std::max(job_count(work, trees), work.numbers); }

    // A job's number modulo the parents is its tree's place in the list.
    unsigned take_numbers(const Work &work, size_t start, unsigned trees) {
        const unsigned count = numbers_of(work, trees);
        const auto step = static_cast<unsigned>(parents_.size());
        unsigned first = next_number_;
        while (first % step != start)
            first++;
        if (first + count > UINT16_MAX + 1u)
            throw Error("plan: job {}: no {} job numbers left after {}; begin with a smaller first-job", work.name, count,
                        next_number_ - 1);
        next_number_ = first + count;
        return first;
    }

    std::vector<std::string> names(const std::vector<size_t> &spines) const {
        std::vector<std::string> names;
        for (size_t spine : spines)
            names.push_back(fabric_.spines[spine].name);
        return names;
    }

    // (number, spine) of the switches' jobs.
    static std::vector<std::pair<unsigned, size_t>> jobs_of(const Work &work, const Placement &placement) {
        std::vector<std::pair<unsigned, size_t>> jobs;
        for (unsigned tree = 0; tree < placement.spines.size(); tree++)
            jobs.emplace_back(placement.first + (is_spread(work) ? 0 : tree), placement.spines[tree]);
        return jobs;
    }

    json describe(const Work &work, const Placement &placement, json &files) const {
        json trees = json::array(), hosts = json::array();
        for (const auto &[number, spine] : jobs_of(work, placement))
            trees.push_back({{"job", number}, {"spine", fabric_.spines[spine].name}});
        for (size_t i = 0; i < work.hosts.size(); i++) {
            const Host &host = fabric_.hosts[work.hosts[i]];
            const std::string name = fmt::format("{}.{}.env", work.name, host.address.text());
            const auto first = static_cast<unsigned>(i) * work.ranks_per_host;
            files[name] = environment(work, placement, host, first);
            hosts.push_back({{"address", host.address.text()},
                             {"leaf", fabric_.leaves[host.leaf].name},
                             {"first_rank", first},
                             {"ranks", work.ranks_per_host},
                             {"environment", name}});
        }
        return {{"name", work.name},
                {"job", placement.first},
                {"size", work.size()},
                {"algorithm", inaggd::algorithm_name(work.algorithm)},
                {"aggregate_from", work.aggregate_from},
                {"trees", trees},
                {"hosts", hosts}};
    }

    // As systemd's EnvironmentFile= and shells read it.
    std::string environment(const Work &work, const Placement &placement, const Host &host, unsigned first_rank) const {
        std::string text =
            fmt::format("INAGG_SWITCH={}\nINAGG_JOB={}\nINAGG_ALGORITHM={}\nINAGG_TREES={}\nINAGG_AGGREGATE_FROM={}\n",
                        fabric_.leaves[host.leaf].address.text(), placement.first, inaggd::algorithm_name(work.algorithm),
                        job_count(work, placement.spines.size()), work.aggregate_from);
        text += fmt::format("INAGG_MPI_JOBS={}\n", numbers_of(work, placement.spines.size()));
        if (work.ranks_per_host == 1)
            text += fmt::format("INAGG_RANK={}\nINAGG_SIZE={}\n", first_rank, work.size());
        else
            text += fmt::format("# of {} ranks, {} to {} are here: torchrun, mpirun or srun says who is who\n", work.size(),
                                first_rank, first_rank + work.ranks_per_host - 1);
        return text;
    }

    static std::string list(const std::vector<std::string> &values) {
        return "[\"" + fmt::format("{}", fmt::join(values, "\", \"")) + "\"]";
    }

    static std::string own_address(const inaggd::Address &address) {
        return fmt::format("address{} = \"{}\"\n", address.family, address.text());
    }

    // Where the usual ones would wait in queues: a spine does not know the links to hosts, and all are to have the same job.
    std::string slots_of(const Work &work) const {
        if (inagg_reaction_of(work.algorithm) != INAGG_UNCONTROLLED)
            return "";
        const uint32_t usual = inaggd::Policy{}.job_slots;
        uint32_t slots = usual;
        for (const std::string &rate : {fabric_.host_rate, fabric_.uplink_rate})
            if (!rate.empty())
                slots = std::min(slots, inaggd::slots_of_link(inagg::parse_rate(rate), inaggd::elements_for_mtu(1500, 4)));
        return slots < usual ? fmt::format(",slots={}", slots) : "";
    }

    std::string spine_options(size_t spine) const {
        std::vector<std::string> ports, children, rates, jobs;
        for (const Leaf &leaf : fabric_.leaves) {
            const Uplink &uplink = *uplink_to(leaf, spine);
            ports.push_back(uplink.spine_port);
            children.push_back(fmt::format("{}/{}", uplink.spine_port, leaf.address.text()));
            if (!fabric_.uplink_rate.empty())
                rates.push_back(fmt::format("{}={}", uplink.spine_port, fabric_.uplink_rate));
        }
        for (size_t i = 0; i < placements_.size(); i++)
            for (const auto &[number, at] : jobs_of(fabric_.works[i], placements_[i]))
                if (at == spine)
                    jobs.push_back(fmt::format("{}:size={},algorithm={}{}", number, fabric_.works[i].size(),
                                               inaggd::algorithm_name(fabric_.works[i].algorithm), slots_of(fabric_.works[i])));
        return options(ports, rates, fabric_.spines[spine], jobs.size()) + "child = " + list(children) + "\n" +
               (jobs.empty() ? "" : "job = " + list(jobs) + "\n") + (fabric_.only_planned ? "no-auto-jobs = true\n" : "");
    }

    std::string leaf_options(size_t index) const {
        const Leaf &leaf = fabric_.leaves[index];
        std::vector<std::string> ports, parents, rates;
        const auto add = [&](const std::string &port, const std::string &rate) {
            if (std::find(ports.begin(), ports.end(), port) != ports.end())
                return;
            ports.push_back(port);
            if (!rate.empty())
                rates.push_back(fmt::format("{}={}", port, rate));
        };
        for (const Host &host : fabric_.hosts)
            if (host.leaf == index)
                add(host.port, fabric_.host_rate);
        for (size_t spine : parents_) {
            const Uplink &uplink = *uplink_to(leaf, spine);
            add(uplink.leaf_port, fabric_.uplink_rate);
            parents.push_back(fmt::format("{}/{}", uplink.leaf_port, fabric_.spines[spine].address.text()));
        }
        return options(ports, rates, leaf, jobs_at(index)) + "parent = " + list(parents) + "\n";
    }

    size_t jobs_at(size_t leaf) const {
        size_t jobs = 0;
        for (size_t i = 0; i < placements_.size(); i++)
            if (leaves_of(fabric_.works[i]).contains(leaf))
                jobs += job_count(fabric_.works[i], placements_[i].spines.size());
        return jobs;
    }

    // Of a switch that has so many jobs.
    template <typename Switch>
    static std::string options(const std::vector<std::string> &ports, const std::vector<std::string> &rates, const Switch &at,
                               size_t jobs) {
        if (jobs > INAGG_MAX_JOBS)
            throw Error("plan: {} has {} trees, and a switch {} jobs at most: give jobs fewer trees", at.name, jobs,
                        INAGG_MAX_JOBS);
        const inaggd::Policy usual;
        const size_t slots = jobs * (usual.job_slots + usual.job_control);
        return own_address(at.address) + (slots > INAGG_DEFAULT_SLOTS ? fmt::format("slots = {}\n", slots) : "") +
               "port = " + list(ports) + "\n" + (rates.empty() ? "" : "port-rate = " + list(rates) + "\n");
    }

    // A tree takes its part of a tensor over the links of all leaves that have ranks of the job.
    json links() const {
        json links = json::array();
        for (size_t leaf = 0; leaf < fabric_.leaves.size(); leaf++)
            for (size_t spine : parents_)
                links.push_back({{"leaf", fabric_.leaves[leaf].name},
                                 {"spine", fabric_.spines[spine].name},
                                 {"tensors", load_[leaf][spine]}});
        return links;
    }

    const Fabric &fabric_;
    std::vector<size_t> parents_;           // of all leaves, in the order of the file
    std::vector<std::vector<double>> load_; // by leaf and spine: how many tensors go over their link
    std::vector<Placement> placements_;
    std::vector<std::string> warnings_;
    unsigned next_number_ = fabric_.first_job;
};

} // namespace

json plan(const Fabric &fabric) { return Planner(fabric).result(); }

void print_plan(const json &plan) {
    fmt::print("{:<16} {:>5} {:<10} {:>14}  {}\n", "JOB", "RANKS", "ALGORITHM", "AGGREGATE-FROM", "TREES");
    for (const json &job : plan["jobs"]) {
        std::vector<std::string> trees;
        for (const json &tree : job["trees"])
            trees.push_back(fmt::format("{} at {}", tree["job"].get<unsigned>(), tree["spine"].get<std::string>()));
        fmt::print("{:<16} {:>5} {:<10} {:>14}  {}\n", job["name"].get<std::string>(), job["size"].get<unsigned>(),
                   job["algorithm"].get<std::string>(), job["aggregate_from"].get<std::string>(), fmt::join(trees, ", "));
    }
    fmt::print("\n{:<16} {:<16} {:>7}\n", "LEAF", "SPINE", "TENSORS");
    for (const json &link : plan["links"])
        fmt::print("{:<16} {:<16} {:>7.2f}\n", link["leaf"].get<std::string>(), link["spine"].get<std::string>(),
                   link["tensors"].get<double>());
    for (const json &warning : plan["warnings"])
        fmt::print("\nwarning: {}\n", warning.get<std::string>());
}

void write_files(const json &plan, const std::string &directory) {
    std::error_code failed;
    std::filesystem::create_directories(directory, failed);
    if (failed)
        throw Error("--into {}: {}", directory, failed.message());
    for (const auto &[name, content] : plan["files"].items()) {
        std::ofstream file(std::filesystem::path(directory) / name);
        file << content.get<std::string>() << std::flush;
        if (!file)
            throw Error("--into {}: cannot write {}: {}", directory, name, inaggd::system_text(errno));
    }
}

} // namespace inaggctl
