// SPDX-License-Identifier: BSD-2-Clause
// inagg-ps: sums what ranks and switches send to it, in user space. The server of algorithm atp; with no switch at all,
// the aggregator.
#include "common/capabilities.hpp"
#include "common/log.hpp"
#include "common/words.hpp"
#include "different.hpp"
#include "error.hpp"
#include "http_address.hpp"
#include "links.hpp"
#include "power_of_two.hpp"
#include "server.hpp"
#include "socket_io.hpp"
#include "statistics.hpp"

#include <inagg/core/packet.h>

#include <ifaddrs.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <thread>

namespace ps {
namespace {

using namespace inaggd;

constexpr std::chrono::milliseconds tick_period{1000};

struct Options {
    std::vector<std::string> addresses, children, jobs, key_files;
    uint32_t job_slots = 128, control_slots = 8;
    uint64_t memory = uint64_t{256} << 20;
    uint32_t idle_seconds = 600, join_seconds = 60, host_forming = 8, host_jobs = 16;
    bool no_auto_jobs = false, verbose = false;
    Indices indices = Indices::hashed;
    std::string stats, metrics;
    inagg::LogFormat log_format = inagg::LogFormat::text;
    int ready_fd = -1;
};

const std::map<std::string, Indices> index_names = {
    {"hashed", Indices::hashed}, {"linear", Indices::linear}, {"partitioned", Indices::partitioned}};

void describe(CLI::App &app, Options &o) {
    app.set_config("--config", "", "read options from this file (TOML or INI, the same names)");
    app.allow_config_extras(CLI::config_extras_mode::error); // a misspelt key is a mistake
    app.add_option("--address", o.addresses, "this machine's address that ranks are told; one of IPv4 and one of IPv6 at most")
        ->required()
        ->take_all();
    app.add_option("--child", o.children, "address of a switch that has this server as its parent; repeat for more")->take_all();
    app.add_option("--memory", o.memory, "for the blocks of all jobs, like 256MiB; a job that does not fit is refused")
        ->transform(
            CLI::Validator(
                [](const std::string &text) { return text.starts_with('-') ? "'" + text + "' is less than nothing" : ""; }, "") &
            CLI::AsSizeValue(false))
        ->default_str("256MiB");
    app.add_option("--job-slots", o.job_slots, "data slots of a job that names no number")
        ->check(inaggd::power_of_two(INAGG_MAX_SLOTS))
        ->capture_default_str();
    app.add_option("--control-slots", o.control_slots, "control slots, likewise")
        ->check(inaggd::power_of_two(INAGG_MAX_SLOTS))
        ->capture_default_str();
    app.add_flag("--no-auto-jobs", o.no_auto_jobs, "only configured jobs can be joined");
    app.add_option("--aggregators", o.indices, "atp: which ones blocks use; others than hashed are for comparison")
        ->transform(inagg::one_of(index_names));
    app.add_option("--job", o.jobs,
                   "configure a job: 7:size=4,slots=256,control=8,elements=352,algorithm=atp,checked,"
                   "key-file=/etc/inagg/7.key,member=0@any/10.77.0.10,...")
        ->take_all();
    app.add_option(
           "--key-file", o.key_files,
           "keys that ranks must know to join: lines \"JOB KEY\", \"FIRST-LAST KEY\", or \"KEY\" for all jobs; repeat for more")
        ->take_all();
    app.add_option("--idle-timeout", o.idle_seconds, "seconds after which a silent job's place may be taken")
        ->check(CLI::Range(1u, 86400u * 365))
        ->capture_default_str();
    app.add_option("--join-timeout", o.join_seconds,
                   "seconds until the next rank of a job that is not configured must join, or the job is removed")
        ->check(CLI::Range(1u, 86400u))
        ->capture_default_str();
    app.add_option(
           "--host-forming", o.host_forming,
           "jobs, not configured, that one host's ranks may have waiting for more ranks; beyond: FORMING. A --child has no "
           "limit")
        ->check(CLI::Range(1u, unsigned{INAGG_MAX_JOBS}))
        ->capture_default_str();
    app.add_option("--host-jobs", o.host_jobs,
                   "jobs, not configured, all of whose ranks are of one host, that there may be; beyond: FULL. Likewise")
        ->check(CLI::Range(1u, unsigned{INAGG_MAX_JOBS}))
        ->capture_default_str();
    app.add_option("--stats", o.stats, "file for the counters (JSON), written on SIGUSR1 and at the end");
    app.add_option("--metrics", o.metrics, "serve the counters to Prometheus at this ADDRESS:PORT, or at a PORT of 127.0.0.1")
        ->transform(inaggd::http_address());
    app.add_option("--ready-fd", o.ready_fd, "write a newline here once packets are taken")->configurable(false);
    inagg::add_log_format(app, o.log_format);
    app.add_flag("-v,--verbose", o.verbose, "log every event");
}

Address parse_address(const char *option, const std::string &text) {
    const auto address = Address::parse(text);
    if (!address || !(address->is_host() || address->is_loopback()))
        throw Error("{} {}: not the IPv4 or IPv6 address of a host", option, text);
    if (address->family == 6 && IN6_IS_ADDR_LINKLOCAL(address->bytes.data()))
        throw Error("{} {}: link-local, which says nothing without an interface; give an address that is valid beyond the link",
                    option, text);
    return *address;
}

std::vector<Address> own_addresses(const Options &o) {
    std::vector<Address> addresses;
    for (const std::string &text : o.addresses) {
        const Address address = parse_address("--address", text);
        for (const Address &other : addresses)
            if (other.family == address.family)
                throw Error("--address {}: {} is of the same family; start another inagg-ps for it", text, other.text());
        addresses.push_back(address);
    }
    return addresses;
}

bool has_address(const ifaddrs &entry, const Address &address) {
    if (!entry.ifa_addr)
        return false;
    if (address.family == 4)
        return entry.ifa_addr->sa_family == AF_INET &&
               !std::memcmp(&reinterpret_cast<const sockaddr_in *>(entry.ifa_addr)->sin_addr, address.bytes.data(), 4);
    return entry.ifa_addr->sa_family == AF_INET6 &&
           !std::memcmp(&reinterpret_cast<const sockaddr_in6 *>(entry.ifa_addr)->sin6_addr, address.bytes.data(), 16);
}

// MTU of the interface that has the address.
uint32_t mtu_near(const Address &address) {
    if (address.is_loopback()) // all of 127.0.0.0/8
        return mtu_of("lo");
    ifaddrs *list = nullptr;
    if (getifaddrs(&list))
        throw Error("getifaddrs: {}", system_text(errno));
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> owner(list, freeifaddrs);
    for (const ifaddrs *entry = list; entry; entry = entry->ifa_next)
        if (has_address(*entry, address))
            return mtu_of(entry->ifa_name);
    throw Error("--address {}: no interface of this machine has it (ip address)", address.text());
}

// Each once, and not this server; of a family that it has an address of, or their ranks could not be answered.
std::vector<Address> children_of(const Options &o, std::span<const Address> own) {
    std::vector<Address> children;
    std::vector<std::string> texts; // an address can be written in several ways
    for (const std::string &text : o.children) {
        const Address child = parse_address("--child", text);
        if (std::ranges::find(own, child) != own.end())
            throw Error("--child {}: that is this server's --address; give those of the switches below it", text);
        if (std::ranges::find(own, child.family, &Address::family) == own.end())
            throw Error("--child {}: an IPv{} address, and the server has none (--address)", text, child.family);
        children.push_back(child);
        texts.push_back(child.text());
    }
    need_different("--child", texts);
    return children;
}

std::vector<JobSpec> jobs_of(const Options &o) {
    std::vector<JobSpec> jobs;
    for (const std::string &text : o.jobs) {
        jobs.push_back(parse_job_spec(text));
        if (std::ranges::count(jobs, jobs.back().number, &JobSpec::number) > 1)
            throw Error("--job {}: job {} is configured twice", text, jobs.back().number);
    }
    if (o.no_auto_jobs && jobs.empty())
        throw Error("--no-auto-jobs: then no job can be joined; configure some (--job)");
    return jobs;
}

Policy policy_of(const Options &o, std::span<const Address> addresses) {
    const uint64_t slots = o.memory / slot_bytes, least = uint64_t{o.job_slots} + o.control_slots;
    if (slots < least)
        throw Error("--memory {}: a job of {}+{} slots takes {} bytes; give more, or fewer --job-slots", o.memory, o.job_slots,
                    o.control_slots, least * slot_bytes);
    uint32_t mtu = UINT32_MAX;
    for (const Address &address : addresses)
        mtu = std::min(mtu, mtu_near(address));
    Policy policy{.slots = static_cast<uint32_t>(std::min<uint64_t>(slots, UINT32_MAX)),
                  .job_slots = o.job_slots,
                  .job_control = o.control_slots,
                  .auto_jobs = !o.no_auto_jobs,
                  .mtu = mtu,
                  .idle = std::chrono::seconds(o.idle_seconds),
                  .join = std::chrono::seconds(o.join_seconds),
                  .port_forming = o.host_forming,
                  .port_jobs = o.host_jobs,
                  .server = true};
    for (const Address &child : children_of(o, addresses))
        policy.children.insert({.port = Server::only_port, .address = child});
    return policy;
}

Keys keys_of(const Options &o) {
    Keys keys;
    for (const std::string &path : o.key_files)
        keys.read(path);
    return keys;
}

Fd open_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGTERM, SIGINT, SIGUSR1})
        sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd)
        throw Error("signalfd: {}", system_text(errno));
    return fd;
}

class Daemon {
public:
    explicit Daemon(const Options &options)
        : o_(options), addresses_(own_addresses(o_)), signals_(open_signals()), io_(addresses_),
          server_(
              policy_of(o_, addresses_), boot_, [] { return static_cast<uint16_t>(std::random_device{}()); }, io_, o_.indices,
              keys_of(o_)) {
        for (const JobSpec &job : jobs_of(o_))
            server_.add_job(job, Clock::now());
        inagg::keep_capabilities({}); // which had a use for the sockets' buffers, and for jobs' keys
        inagg::set_log_field({"switch", addresses_.front().text()});
        if (!o_.stats.empty())
            write(statistics(server_)); // or say now that the file cannot be written
        watch(signals_.get());
        if (!o_.metrics.empty()) {
            metrics_ = std::make_unique<MetricsServer>(o_.metrics, [this] { return metrics(server_); });
            watch(metrics_->fd());
            spdlog::info("metrics at http://{}/metrics", o_.metrics);
        }
        io_.watch(watched_.get());
        for (const Address &address : addresses_)
            spdlog::info("server {} port {}, boot id {:#06x}", address.text(), INAGG_PORT, boot_);
        constexpr int little = 4 << 20; // a window of 8 ranks
        if (io_.receive_buffer() < little)
            spdlog::warn("sockets buffer {} bytes only, and what comes at once beyond that is lost: run as root, or raise "
                         "net.core.rmem_max",
                         io_.receive_buffer());
    }

    void announce() const {
        if (o_.ready_fd < 0)
            return;
        if (::write(o_.ready_fd, "\n", 1) != 1)
            throw Error("--ready-fd {}: {}", o_.ready_fd, system_text(errno));
        close(o_.ready_fd);
    }

    // Until a signal ends it.
    void run() {
        Time next_tick = Clock::now() + tick_period;
        while (!stop_) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick - Clock::now());
            io_.receive([this](auto packet, const Endpoint &from,
                               bool congested) { server_.receive(packet, from, congested, Clock::now()); },
                        std::max(left, std::chrono::milliseconds(0)));
            read_signals();
            if (metrics_)
                metrics_->serve();
            if (const Time now = Clock::now(); now >= next_tick) {
                server_.tick(now);
                next_tick = now + tick_period;
            }
        }
        const auto last = statistics(server_);
        const auto farewells = server_.end();
        io_.flush();
        for (int again = 0; again < 2; again++) { // who does not hear it waits for its deadline
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            for (const auto &say : farewells)
                say();
            io_.flush();
        }
        if (!o_.stats.empty())
            write(last);
    }

private:
    void watch(int fd) {
        epoll_event event{.events = EPOLLIN, .data = {}};
        if (epoll_ctl(watched_.get(), EPOLL_CTL_ADD, fd, &event))
            throw Error("epoll: {}", system_text(errno));
    }

    void read_signals() {
        signalfd_siginfo info;
        while (read(signals_.get(), &info, sizeof info) == sizeof info) {
            if (info.ssi_signo == SIGUSR1)
                show();
            else
                stop_ = true;
        }
    }

    // Jobs go on also if it cannot be written now.
    void show() const {
        try {
            write(statistics(server_));
        } catch (const Error &error) {
            spdlog::error(error.what());
        }
    }

    void write(const nlohmann::ordered_json &stats) const {
        const std::string text = stats.dump(1) + "\n";
        if (o_.stats.empty()) {
            std::cout << text << std::flush;
            if (!std::cout) {
                std::cout.clear();
                throw Error("standard output cannot be written");
            }
            return;
        }
        std::ofstream file(o_.stats);
        file << text << std::flush;
        if (!file)
            throw Error("--stats {}: cannot be written: {}", o_.stats, system_text(errno));
    }

    Options o_;
    const uint16_t boot_ = random_boot();
    std::vector<Address> addresses_;
    Fd signals_, watched_{epoll_create1(EPOLL_CLOEXEC)}; // all that io_ looks at beside packets
    SocketIo io_;
    Server server_;
    std::unique_ptr<MetricsServer> metrics_;
    bool stop_ = false;
};

} // namespace
} // namespace ps

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // who reads the log may go
    ps::Options options;
    CLI::App app("Sums the blocks of inagg jobs in user space: the server of algorithm atp, and the root of a tree of switches");
    ps::describe(app, options);
    CLI11_PARSE(app, argc, argv);
    inagg::start_log("inagg-ps", options.log_format, options.verbose ? spdlog::level::debug : spdlog::level::info);
    try {
        ps::Daemon daemon(options);
        daemon.announce();
        daemon.run();
        return 0;
    } catch (const std::exception &error) {
        spdlog::error("{}", error.what());
        return 1;
    }
}
