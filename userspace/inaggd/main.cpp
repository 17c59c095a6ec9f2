// SPDX-License-Identifier: BSD-2-Clause
// inaggd: the agent of an XDP switch. Loads and attaches the switch, creates and removes jobs, decides
// joins. Packets do not need it: they go on while it is away.
#include "agent.hpp"
#include "common/units.hpp"
#include "control.hpp"
#include "error.hpp"
#include "links.hpp"
#include "loader.hpp"
#include "power_of_two.hpp"
#include "ring.hpp"

#include <inagg/core/packet.h>
#include <inagg/core/queue.h>

#include <CLI/CLI.hpp>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <spawn.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <map>
#include <set>
#include <stdexcept>

namespace inaggd {
namespace {

using nlohmann::json;

struct Options {
    std::vector<std::string> ports, jobs, parents, children, port_rates;
    std::string mark_after = "1ms";
    std::string address4, address6;
    std::string bpffs = default_bpffs, run_dir = default_run_dir;
    uint32_t slots = INAGG_DEFAULT_SLOTS, job_slots = 128, control_slots = 8;
    uint32_t aggregators = INAGG_DEFAULT_AGGREGATORS, buffers = INAGG_DEFAULT_BUFFERS;
    uint32_t descriptors = INAGG_DEFAULT_DESCRIPTORS, canary_timeout_us = 0;
    inagg_up_policy up_policy = INAGG_UP_DEFAULT;
    uint32_t buckets = INAGG_DEFAULT_BUCKETS, sweepers = 100, sweeps_per_expiry = 4;
    uint32_t idle_seconds = 600, join_seconds = 60, port_forming = 4;
    bool no_auto_jobs = false, fresh = false, keep = false, check = false, verbose = false;
    int ready_fd = -1;
};

void describe(CLI::App &app, Options &o) {
    app.set_config("--config", "", "read options from this file (TOML or INI, the same names)");
    app.add_option("-p,--port", o.ports, "interface to serve; repeat for more")->required()->take_all();
    const auto rates = app.add_option("--port-rate", o.port_rates,
                                      "PORT=RATE, like p0=10gbit: what its link carries; atp, panama and "
                                      "canary then learn when frames would wait; repeat for more")
                           ->take_all();
    app.add_option("--mark-after", o.mark_after, "how long at a port with a rate is too long, like 500us")
        ->needs(rates)
        ->capture_default_str();
    app.add_option("--address4", o.address4, "IPv4 address of the switch [that of the port or its bridge]");
    app.add_option("--address6", o.address6, "IPv6 address of the switch [that of the port or its bridge]");
    app.add_option("--bpffs", o.bpffs, "directory of the pins")->capture_default_str();
    app.add_option("--run-dir", o.run_dir, "directory of the control socket")->capture_default_str();
    app.add_option("--slots", o.slots, "slots of the switch (6.6 KB each)")
        ->check(CLI::Range(16u, 1u << 20))
        ->capture_default_str();
    app.add_option("--job-slots", o.job_slots, "data slots of a job that names no number")
        ->check(power_of_two(INAGG_MAX_SLOTS))
        ->capture_default_str();
    app.add_option("--control-slots", o.control_slots, "control slots, likewise")
        ->check(power_of_two(INAGG_MAX_SLOTS))
        ->capture_default_str();
    app.add_option("--buckets", o.buckets, "of four trio blocks each (13.5 KB a bucket)")
        ->check(power_of_two(1u << 20))
        ->capture_default_str();
    app.add_option("--aggregators", o.aggregators, "slots that all atp jobs share (3.4 KB each)")
        ->check(power_of_two(1u << 20))
        ->capture_default_str();
    app.add_option("--buffers", o.buffers, "for floats of panama jobs that wait to be added (3.3 KB each)")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    app.add_option("--descriptors", o.descriptors, "of blocks that all canary jobs share (3.4 KB each)")
        ->check(power_of_two(1u << 20))
        ->capture_default_str();
    app.add_option("--canary-timeout", o.canary_timeout_us,
                   "microseconds that a sum of a canary job waits here for more; 0: adapts itself")
        ->check(CLI::Range(0u, 1'000'000u))
        ->capture_default_str();
    app.add_option("--up-port", o.up_policy,
                   "canary: by which parent a sum goes that has no rank of its own here to go to: default "
                   "(by its block, while that "
                   "port's queue is short), ecmp (by its block), flowlet, or least (the shortest queue)")
        ->transform(
            CLI::CheckedTransformer(std::map<std::string, inagg_up_policy>{{"default", INAGG_UP_DEFAULT},
                                                                           {"ecmp", INAGG_UP_ECMP},
                                                                           {"flowlet", INAGG_UP_FLOWLET},
                                                                           {"least", INAGG_UP_LEAST}}))
        ->default_str("default");
    app.add_option("--sweepers", o.sweepers, "timers that look for trio blocks whose ranks do not come")
        ->check(CLI::Range(1u, unsigned{INAGG_MAX_SWEEPERS}))
        ->capture_default_str();
    app.add_option("--sweeps-per-expiry", o.sweeps_per_expiry,
                   "with k, a block is decided without stragglers after 1 to 1 + 1/k expiries")
        ->check(CLI::Range(1u, 64u))
        ->capture_default_str();
    app.add_option("--parent", o.parents,
                   "PORT/ADDRESS of the switch that sums what this one has summed; it decides about all jobs; repeat for more: "
                   "of n, the first has jobs 0, n, 2n, ...")
        ->take_all();
    app.add_option("--child", o.children, "PORT/ADDRESS of a switch that has this one as its parent; repeat for more")
        ->take_all();
    app.add_flag("--no-auto-jobs", o.no_auto_jobs, "only configured jobs can be joined");
    app.add_option("--job", o.jobs,
                   "configure a job: 7:size=4,slots=256,control=8,elements=352,algorithm=trio,expiry=10ms,"
                   "quorum=3,exclude-after=5s,checked,member=0@p0/10.77.0.10,...")
        ->take_all();
    app.add_option("--idle-timeout", o.idle_seconds, "seconds after which a silent job's place may be taken")
        ->capture_default_str();
    app.add_option("--join-timeout", o.join_seconds,
                   "seconds until the next rank of a job that is not configured must join, or the job is removed")
        ->check(CLI::Range(1u, 86400u))
        ->capture_default_str();
    app.add_option("--port-forming", o.port_forming,
                   "jobs, not configured, that ranks behind one port may have waiting for more ranks; beyond: FULL")
        ->check(CLI::Range(1u, unsigned{INAGG_MAX_JOBS}))
        ->capture_default_str();
    app.add_flag("--fresh", o.fresh, "discard what an earlier inaggd left")->configurable(false);
    app.add_flag("--keep", o.keep, "leave the switch running on exit");
    app.add_flag("--check", o.check, "only say whether inaggd could start so; changes nothing")->configurable(false);
    app.add_option("--ready-fd", o.ready_fd, "write a newline here once all ports are attached")->configurable(false);
    app.add_flag("-v,--verbose", o.verbose, "log every event");
}

// The run directory, for one agent at a time: the kernel drops the lock with the process.
class RunDir {
public:
    explicit RunDir(std::string path) : path_(std::move(path)) {
        std::error_code seen_below;
        std::filesystem::create_directories(path_, seen_below);
        lock_ = Fd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!lock_)
            throw Error("{}: {}; choose another --run-dir", path_, system_text(errno));
        if (flock(lock_.get(), LOCK_EX | LOCK_NB))
            throw Error("{}: another inaggd runs here; stop it or choose another --run-dir and --bpffs", path_);
        owned_ = true;
    }
    ~RunDir() {
        std::error_code not_empty;
        if (owned_)
            std::filesystem::remove(path_, not_empty);
    }
    RunDir(const RunDir &) = delete;
    RunDir &operator=(const RunDir &) = delete;

private:
    std::string path_;
    Fd lock_;
    bool owned_ = false;
};

Fd signals() {
    sigset_t set;
    sigemptyset(&set);
    for (int number : {SIGTERM, SIGINT, SIGHUP})
        sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd)
        throw Error("signalfd: {}", system_text(errno));
    return fd;
}

Address own_address(const Options &o, uint8_t family) {
    const std::string &text = family == 4 ? o.address4 : o.address6;
    if (!text.empty()) {
        auto address = Address::parse(text);
        if (!address || address->family != family || !address->is_host())
            throw Error("--address{} {}: not an IPv{} address of a host", family, text, family);
        return *address;
    }
    for (const std::string &port : o.ports)
        if (Address address = address_near(port, family); address.family)
            return address;
    return {};
}

// What the options come to. Everything that can be wrong with them shows here, before anything changes.
struct Plan {
    explicit Plan(const Options &o)
        : four(own_address(o, 4)), six(own_address(o, 6)), mtu(smallest_mtu(o.ports)) {
        if (!four.family && !six.family)
            throw Error("no address on {} or its bridge: give the switch one (ip addr add ADDRESS/LEN dev IF), or "
                        "name it with --address4 or --address6",
                        fmt::join(o.ports, ", "));
        need_free_ports(o.bpffs, o.ports);
        for (const std::string &job : o.jobs)
            jobs.push_back(parse_job_spec(job));
        for (const std::string &rate : o.port_rates)
            add_queue(rate, o);
        find_neighbours(o);
    }

    // By the ports as they are now.
    void find_neighbours(const Options &o) {
        parents.clear();
        children.clear();
        for (const std::string &parent : o.parents)
            parents.push_back(other_switch("--parent", parent, o.ports));
        for (const std::string &child : o.children)
            children.insert(other_switch("--child", child, o.ports));
    }

    static uint32_t smallest_mtu(const std::vector<std::string> &ports) {
        uint32_t mtu = UINT32_MAX;
        for (const std::string &port : ports)
            mtu = std::min(mtu, mtu_of(port));
        return mtu;
    }

    // "PORT=RATE"
    void add_queue(const std::string &text, const Options &o) {
        const size_t equals = text.find('=');
        const std::string port = text.substr(0, equals);
        if (equals == std::string::npos || std::find(o.ports.begin(), o.ports.end(), port) == o.ports.end())
            throw Error("--port-rate {}: write it as PORT=RATE, with one of {}", text, fmt::join(o.ports, ", "));
        try {
            const inagg::Nanoseconds longest = inagg::parse_duration(o.mark_after);
            if (longest.count() < 1000 || longest > std::chrono::seconds(1))
                throw Error("--mark-after {}: it must be 1us to 1s", o.mark_after);
            inagg_queue queue{};
            queue.unit_ns = inagg_queue_unit(inagg::parse_rate(text.substr(equals + 1)));
            queue.mark_ns = static_cast<uint32_t>(longest.count());
            queues[port] = queue;
        } catch (const std::invalid_argument &error) {
            throw Error("--port-rate {}, --mark-after {}: {}", text, o.mark_after, error.what());
        }
    }

    // A switch above or below this one in a tree.
    Neighbour other_switch(const char *option, const std::string &text, const std::vector<std::string> &ports) const {
        const size_t slash = text.find('/');
        const std::string port = text.substr(0, slash);
        if (slash == std::string::npos || std::find(ports.begin(), ports.end(), port) == ports.end())
            throw Error("{} {}: write it as PORT/ADDRESS, with one of {}", option, text, fmt::join(ports, ", "));
        const auto address = Address::parse(text.substr(slash + 1));
        if (!address || !address->is_host())
            throw Error("{} {}: not an address of a switch", option, text);
        if (*address == four || *address == six)
            throw Error("{} {}: is this switch's own address", option, text);
        if (!(address->family == 4 ? four : six).family)
            throw Error("{} {}: this switch has no address of that family", option, text);
        return {.port = if_nametoindex(port.c_str()), .address = *address};
    }

    Address four, six;
    uint32_t mtu;
    std::vector<JobSpec> jobs;
    std::vector<Neighbour> parents{};
    std::set<Neighbour> children{};
    std::map<std::string, inagg_queue> queues{}; // by port
};

Policy policy_of(const Options &o, const Plan &plan, uint32_t slots, uint32_t buffers) {
    return {.slots = slots,
            .buffers = buffers,
            .floors = INAGG_DEFAULT_FLOORS,
            .job_slots = o.job_slots,
            .job_control = o.control_slots,
            .auto_jobs = !o.no_auto_jobs,
            .mtu = plan.mtu,
            .idle = std::chrono::seconds(o.idle_seconds),
            .join = std::chrono::seconds(o.join_seconds),
            .port_forming = o.port_forming,
            .parents = plan.parents,
            .children = plan.children,
            .up_policy = o.up_policy,
            .timeout_us = o.canary_timeout_us};
}

// Throws what a start with these options would end with.
void check_start(const Options &o) {
    Plan plan(o);
    JobBook book(policy_of(o, plan, o.slots, o.buffers), [] { return uint16_t{0}; });
    if (std::filesystem::exists(o.bpffs + "/jobs") && !o.fresh) {
        SwitchMaps maps = SwitchMaps::open(o.bpffs);
        book.policy().slots = maps.slot_count();
        book.policy().buffers = maps.buffer_count();
        restore_jobs(book, maps);
    }
    try_jobs(book, plan.jobs);
}

// This program's file, also when an upgrade has replaced it.
std::string own_file() {
    std::string file = std::filesystem::read_symlink("/proc/self/exe");
    if (size_t mark = file.find(" (deleted)"); mark != std::string::npos)
        file.erase(mark);
    return file;
}

std::vector<char *> pointers_to(std::vector<std::string> &arguments) {
    std::vector<char *> argv;
    for (std::string &argument : arguments)
        argv.push_back(argument.data());
    argv.push_back(nullptr);
    return argv;
}

// Runs inaggd's file with `arguments` to its end; what it wrote to stderr is the Error if it failed.
void need_success(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        throw Error("pipe: {}", system_text(errno));
    Fd reader(ends[0]), writer(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
    pid_t child = 0;
    std::string file = own_file();
    int error = posix_spawn(&child, file.c_str(), &actions, nullptr, pointers_to(arguments).data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        throw Error("{}: {}", file, system_text(error));
    writer.reset();
    std::string said;
    char buffer[1024];
    for (ssize_t bytes; (bytes = read(reader.get(), buffer, sizeof buffer)) > 0;)
        said.append(buffer, static_cast<size_t>(bytes));
    int status = 0;
    waitpid(child, &status, 0);
    while (said.ends_with('\n'))
        said.pop_back();
    if (status)
        throw Error("{}", said);
}

class Daemon {
public:
    Daemon(const Options &options, std::vector<std::string> arguments)
        : o_(options), arguments_(std::move(arguments)), plan_(o_), run_dir_(o_.run_dir), signals_(signals()),
          loader_(o_.bpffs,
                  {.slots = o_.slots,
                   .buckets = o_.buckets,
                   .aggregators = o_.aggregators,
                   .buffers = o_.buffers,
                   .descriptors = o_.descriptors,
                   .queues = !plan_.queues.empty()},
                  o_.fresh) {}

    void start() {
        SwitchMaps maps = SwitchMaps::open(o_.bpffs);
        Policy policy = policy_of(o_, plan_, maps.slot_count(), maps.buffer_count());
        inagg_switch_settings settings = settings_for(maps);
        agent_ = std::make_unique<Agent>(
            std::move(maps), loader_.egress(), [this](const inagg_job &job) { loader_.provide(job); }, policy, settings,
            Sweeping{.bpffs = o_.bpffs, .mac = mac_of(o_.ports.front()), .sweepers = o_.sweepers,
                     .per_expiry = o_.sweeps_per_expiry});
        try_jobs(agent_->book(), plan_.jobs);
        events_.reset(ring_buffer__new(agent_->maps().events(), on_event, this, nullptr));
        if (!events_)
            throw Error("events: {}", system_text(errno));
        control_ = std::make_unique<ControlServer>(o_.run_dir + "/" + control_socket_name,
                                                   [this](const json &request) { return command(request); });
        loader_.attach_new(o_.ports);
        take_over(settings);
    }

    void announce() const {
        if (o_.ready_fd < 0)
            return;
        if (write(o_.ready_fd, "\n", 1) != 1)
            throw Error("--ready-fd {}: {}", o_.ready_fd, system_text(errno));
        close(o_.ready_fd);
    }

    // Until a signal ends it, or asks for a reload.
    void run() {
        Time next_poll = Clock::now(), next_watch = next_poll, tended = next_poll;
        ring_buffer__consume(events_.get()); // what came before: the kernel wakes nobody who is behind
        while (!stop_ && !reload_) {
            std::vector<pollfd> fds = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                       {.fd = links_.fd(), .events = POLLIN, .revents = 0},
                                       {.fd = ring_buffer__epoll_fd(events_.get()), .events = POLLIN, .revents = 0}};
            size_t first_control = fds.size();
            control_->add_to(fds);
            poll(fds.data(), fds.size(),
                 static_cast<int>(std::min(agent_->watch_interval(), agent_->tend_interval()).count()));
            if (fds[0].revents)
                read_signals();
            if (fds[1].revents) {
                links_.read([this](bool gone, uint32_t ifindex, const std::string &name) { link(gone, ifindex, name); });
                look_at_links();
            }
            ring_buffer__consume(events_.get());
            for (size_t i = first_control; i < fds.size(); i++)
                if (fds[i].revents)
                    control_->serve(fds[i].fd);
            if (Clock::now() >= next_watch) {
                agent_->watch();
                next_watch = Clock::now() + agent_->watch_interval();
            }
            if (Clock::now() >= tended + agent_->tend_interval()) {
                agent_->tend();
                tended = Clock::now();
            }
            if (Clock::now() >= next_poll) {
                look_at_links();
                agent_->poll_activity();
                next_poll = Clock::now() + std::chrono::seconds(2);
            }
        }
        if (reload_)
            execute_again();
    }

    ~Daemon() {
        if (stop_ && o_.keep)
            spdlog::info("the switch goes on without an agent; pins are in {}", o_.bpffs);
        else if (stop_ || !agent_started())
            loader_.remove_all();
    }

private:
    // Changes a switch that runs, after everything that may fail.
    void take_over(const inagg_switch_settings &settings) {
        agent_->maps().set_settings(settings);
        spdlog::info("switch {} {} port {}, boot id {:#06x}", plan_.four.text(), plan_.six.text(), INAGG_PORT,
                     settings.boot);
        agent_->take_over();
        for (const std::string &port : o_.ports)
            attach(port);
        loader_.publish();
        for (const AttachedPort &old : attached_ports(o_.bpffs))
            if (std::find(o_.ports.begin(), o_.ports.end(), old.name) == o_.ports.end()) {
                spdlog::info("port {}: no longer configured, detached", old.name);
                loader_.detach(old.name);
            }
        std::set<uint32_t> present;
        for (const auto &[ifindex, port] : attached_)
            present.insert(ifindex);
        agent_->keep_ports(present);
        look_at_links();
        for (const JobSpec &job : plan_.jobs)
            agent_->add_job(job);
        started_ = true;
    }

    // A first start that fails leaves nothing; one that found a running switch leaves it as it was.
    bool agent_started() const { return started_ || loader_.resumed(); }

    static int on_event(void *self, void *data, size_t bytes) {
        try {
            static_cast<Daemon *>(self)->agent_->event(data, bytes);
        } catch (const std::exception &error) {
            spdlog::error("event: {}", error.what());
            static_cast<Daemon *>(self)->agent_->take_over();
        }
        return 0;
    }

    inagg_switch_settings settings_for(const SwitchMaps &maps) const {
        inagg_switch_settings settings = maps.settings();
        std::memcpy(&settings.address4, plan_.four.bytes.data(), 4);
        std::memcpy(settings.address6, plan_.six.bytes.data(), 16);
        settings.flags = !plan_.parents.empty() ? INAGG_SWITCH_HAS_PARENT : 0;
        if (!settings.boot) // kept slots keep their boot id
            settings.boot = random_boot();
        return settings;
    }

    void attach(const std::string &port) {
        uint32_t ifindex = loader_.attach(port);
        attached_[ifindex] = port;
        if (const auto queue = plan_.queues.find(port); queue != plan_.queues.end()) {
            agent_->maps().put_queue(ifindex, queue->second);
            loader_.meter(port, ifindex);
        } else {
            agent_->maps().delete_queue(ifindex);
        }
        spdlog::info("port {}: attached, MTU {}", port, mtu_of(port));
    }

    void link(bool gone, uint32_t ifindex, const std::string &name) {
        auto port = attached_.find(ifindex);
        if (gone && port != attached_.end()) {
            spdlog::warn("port {}: the interface has gone; its ranks are forgotten", port->second);
            loader_.detach(port->second);
            attached_.erase(port);
            agent_->maps().delete_queue(ifindex);
            agent_->port_gone(ifindex);
        } else if (!gone && port == attached_.end() &&
                   std::find(o_.ports.begin(), o_.ports.end(), name) != o_.ports.end()) {
            try {
                attach(name);
                plan_.find_neighbours(o_);
                agent_->book().policy().parents = plan_.parents;
                agent_->book().policy().children = plan_.children;
            } catch (const std::exception &error) {
                spdlog::error("{}", error.what());
            }
        } else if (!gone && port != attached_.end()) {
            try {
                agent_->book().policy().mtu = Plan::smallest_mtu(o_.ports);
            } catch (const Error &) {
                // another port is just going; its own message follows
            }
        }
    }

    // As they are, whatever has been told of them: messages of the kernel's may be lost.
    void look_at_links() {
        for (const auto &[ifindex, port] : attached_)
            agent_->link(ifindex, has_link(port));
    }

    void read_signals() {
        signalfd_siginfo info;
        while (read(signals_.get(), &info, sizeof info) == sizeof info) {
            if (info.ssi_signo != SIGHUP)
                stop_ = true;
            else
                reload_on_signal();
        }
    }

    void reload_on_signal() {
        try {
            reload();
        } catch (const std::exception &error) {
            spdlog::error("reload refused: {}", error.what());
        }
    }

    // Only with a configuration that the program can start with; otherwise all goes on as before.
    void reload() {
        std::vector<std::string> arguments = arguments_;
        arguments.push_back("--check");
        need_success(std::move(arguments));
        reload_ = true;
    }

    json command(const json &request) {
        std::string name = request.at("command");
        spdlog::info("control: {}", request.dump());
        if (name == "job add") {
            JobSpec spec = parse_job_spec(request.at("spec"));
            agent_->add_job(spec);
            return {{"job", spec.number}};
        }
        if (name == "job del") {
            int64_t number = request.at("job");
            if (number < 0 || number > UINT16_MAX)
                throw Error("job {}: numbers are 0 to {}", number, UINT16_MAX);
            agent_->remove_job(static_cast<uint16_t>(number));
            return json::object();
        }
        if (name == "reload") {
            reload();
            return json::object();
        }
        throw Error("unknown command '{}'", name);
    }

    // The new program, with the configuration as it is now, takes over like after a restart.
    [[noreturn]] void execute_again() {
        spdlog::info("reload: starting again");
        std::string self = own_file();
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, nullptr);
        execv(self.c_str(), pointers_to(arguments_).data());
        throw Error("reload: {}: {}", self, system_text(errno));
    }

    Options o_;
    std::vector<std::string> arguments_; // of a reload
    Plan plan_;
    RunDir run_dir_;
    Fd signals_;
    LinkWatch links_;
    Loader loader_;
    std::unique_ptr<Agent> agent_;
    Ring events_;
    std::unique_ptr<ControlServer> control_;
    std::map<uint32_t, std::string> attached_; // by ifindex
    bool started_ = false, stop_ = false, reload_ = false;
};

// The command line without what is meant for the first start only.
std::vector<std::string> reload_arguments(int argc, char **argv) {
    std::vector<std::string> kept;
    for (int i = 0; i < argc; i++) {
        std::string argument = argv[i];
        if (argument == "--fresh" || argument.starts_with("--ready-fd=") )
            continue;
        if (argument == "--ready-fd")
            i++;
        else
            kept.push_back(argument);
    }
    return kept;
}

} // namespace
} // namespace inaggd

int main(int argc, char **argv) {
    using namespace inaggd;
    Options options;
    CLI::App app("The agent of an inagg XDP switch");
    describe(app, options);
    CLI11_PARSE(app, argc, argv);
    spdlog::set_default_logger(spdlog::stderr_color_mt("inaggd"));
    if (options.check)
        spdlog::set_pattern("%v"); // for inaggctl reload to show
    spdlog::set_level(options.verbose ? spdlog::level::debug : spdlog::level::info);
    try {
        if (options.check) {
            check_start(options);
            return 0;
        }
        Daemon daemon(options, reload_arguments(argc, argv));
        daemon.start();
        daemon.announce();
        daemon.run();
        return 0;
    } catch (const std::exception &error) {
        spdlog::error("{}", error.what());
        return 1;
    }
}
