// SPDX-License-Identifier: BSD-2-Clause
#include "launch.hpp"

#include "process.hpp"
#include "sandbox.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

namespace netns {

namespace {

using Variables = std::vector<std::string>;

const std::string folder = fmt::format("{}/hosts", scratch);

unsigned ranks_on(const Options &options, unsigned host) {
    return std::min(options.ranks_per_host, options.workers - host * options.ranks_per_host);
}

// What all ranks on a host have in common.
Variables of_host(const Options &options, const Network &network, unsigned host) {
    Variables variables = {
        fmt::format("WORKER_ADDRESS={}", network.host_address(host)),
        fmt::format("INAGG_JOB={}", options.job),
        fmt::format("INAGG_TREES={}", options.trees),
        fmt::format("INAGG_ALGORITHM={}", options.algorithm),
        fmt::format("INAGG_TRANSPORT={}", options.transport),
        "GLOO_SOCKET_IFNAME=eth0",
    };
    if (options.with_switch()) {
        variables.push_back(fmt::format("INAGG_SWITCH={}", network.switch_addresses(host)));
    }
    if (options.checked) {
        variables.emplace_back("INAGG_CHECKED=1");
    }
    if (!options.expiry.empty()) {
        variables.push_back("INAGG_EXPIRY=" + options.expiry);
    }
    if (!options.quorum.empty()) {
        variables.push_back("INAGG_QUORUM=" + options.quorum);
    }
    return variables;
}

Variables of_rank(const Options &options, const Network &network, unsigned rank) {
    const unsigned host = options.host_of(rank);
    return {
        fmt::format("RANK={}", rank),
        fmt::format("WORLD_SIZE={}", options.workers),
        fmt::format("LOCAL_RANK={}", rank - host * options.ranks_per_host),
        fmt::format("LOCAL_WORLD_SIZE={}", ranks_on(options, host)),
        fmt::format("MASTER_ADDR={}", network.host_address(0)),
        "MASTER_PORT=29500",
        fmt::format("INAGG_RANK={}", rank),
        fmt::format("INAGG_SIZE={}", options.workers),
    };
}

// Torchrun reads its options from PET_*; the ranks get their places from it. Debian 12's, torch 1.13 on Python 3.11, fails
// with its own defaults for redirects and tee, "0"; those of one rank, say one that is not there, it understands.
Variables of_torchrun(const Options &options, const Network &network, unsigned host) {
    return {
        fmt::format("PET_NNODES={}", options.hosts()),
        fmt::format("PET_NODE_RANK={}", host),
        fmt::format("PET_NPROC_PER_NODE={}", ranks_on(options, host)),
        fmt::format("PET_MASTER_ADDR={}", network.host_address(0)),
        "PET_MASTER_PORT=29500",
        "PET_REDIRECTS=9:1",
        "PET_TEE=9:1",
    };
}

std::string host_file() { return fmt::format("{}/mpirun", folder); }

// Open MPI's settings. Hosts are one machine: ranks may outnumber its cores, so one that polls gives way.
Variables of_mpirun() {
    return {
        fmt::format("OMPI_MCA_plm_rsh_agent={} enter", own_program().string()),
        "OMPI_MCA_orte_default_hostfile=" + host_file(),
        // what it names by host and process, which two runs at once have in common, where only this run is
        fmt::format("OMPI_MCA_orte_tmpdir_base={}", scratch),
        fmt::format("OMPI_MCA_btl_vader_backing_directory={}", scratch),
        "OMPI_MCA_oob_tcp_if_include=eth0",
        "OMPI_MCA_btl=tcp,vader,self",
        "OMPI_MCA_btl_tcp_if_include=eth0",
        "OMPI_MCA_mpi_yield_when_idle=1",
        "OMPI_MCA_hwloc_base_binding_policy=none",
        "OMPI_ALLOW_RUN_AS_ROOT=1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    };
}

Variables operator+(Variables left, const Variables &right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

void write_file(const std::string &path, const std::string &text) {
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) {
        fail(path);
    }
}

std::string entry_of(const std::string &name) { return fmt::format("{}/{}.json", folder, name); }

} // namespace

std::vector<Launch> launches(const Options &options, const Network &network) {
    std::vector<Launch> all;
    switch (options.launcher) {
    case Launcher::none:
        for (unsigned rank = 0; rank < options.workers; ++rank) {
            const unsigned host = options.host_of(rank);
            all.push_back({std::to_string(rank), host, of_host(options, network, host) + of_rank(options, network, rank)});
        }
        break;
    case Launcher::torchrun:
        for (unsigned host = 0; host < options.hosts(); ++host) {
            all.push_back({host_name(host), host, of_host(options, network, host) + of_torchrun(options, network, host)});
        }
        break;
    case Launcher::mpirun:
        all.push_back({"mpirun", 0, of_host(options, network, 0) + of_mpirun()});
        break;
    }
    return all;
}

std::string host_name(unsigned host) { return fmt::format("host{}", host); }

void publish_hosts(const Options &options, const Network &network) {
    std::filesystem::create_directories(folder);
    std::string names = "127.0.0.1 localhost\n::1 localhost\n", slots;
    for (unsigned host = 0; host < options.hosts(); ++host) {
        const std::string name = host_name(host);
        names += fmt::format("{} {}\n", network.host_address(host), name);
        slots += fmt::format("{} slots={}\n", name, ranks_on(options, host));
        const nlohmann::json entry = {{"namespace", network.host_space(host).path()},
                                      {"environment", of_host(options, network, host)}};
        write_file(entry_of(name), entry.dump());
    }
    write_file(host_file(), slots);
    const std::string own_names = fmt::format("{}/names", folder);
    write_file(own_names, names);
    if (mount(own_names.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0 && errno != ENOENT) {
        fail("/etc/hosts");
    }
}

int enter_host(const std::string &name, const std::vector<std::string> &command) {
    std::ifstream file(entry_of(name));
    if (!file) {
        fmt::print(stderr, "inagg-netns: there is no host '{}' here: `enter` is for mpirun in an inagg-netns run\n", name);
        return 255; // as ssh
    }
    const nlohmann::json entry = nlohmann::json::parse(file);
    const Namespace space = Namespace::open(entry["namespace"]);
    space.enter();
    execute({.space = &space,
             .command = {"sh", "-c", fmt::format("{}", fmt::join(command, " "))},
             .environment = entry["environment"],
             .input = STDIN_FILENO,
             .host_name = name});
}

} // namespace netns
