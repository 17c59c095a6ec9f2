// SPDX-License-Identifier: BSD-2-Clause
#include "supervisor.hpp"

#include "bmv2.hpp"
#include "link.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

namespace netns {
namespace {

using std::chrono::seconds;

constexpr int setup_failed = 125;
constexpr int timed_out = 124;
constexpr auto kill_after = seconds(2);       // between SIGTERM and SIGKILL
constexpr auto agent_deadline = seconds(120); // for the switch agent to be ready, its programs verified by an emulated CPU
constexpr auto bmv2_poll_interval = std::chrono::milliseconds(20); // until it answers
constexpr auto sampling_interval = std::chrono::milliseconds(100); // of background flows
constexpr size_t longest_line = 64 * 1024;

// Signals that end a run arrive here as data.
Fd open_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
        sigaddset(&set, signal);
    }
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd) {
        fail("signalfd");
    }
    return fd;
}

std::filesystem::path own_folder() { return own_program().parent_path(); }

// A program of this project: beside this one, else on the PATH.
std::string sibling(const std::string &name) {
    const std::filesystem::path path = own_folder() / name;
    return std::filesystem::exists(path) ? path.string() : name;
}

nlohmann::json to_json(const Counters &counters) {
    return {{"frames", counters.frames},       {"dropped", counters.dropped},     {"duplicated", counters.duplicated},
            {"corrupted", counters.corrupted}, {"reordered", counters.reordered}, {"overflowed", counters.overflowed}};
}

// Puts those of the `folders` that exist before what the variable has.
void add_path(const char *variable, const std::vector<std::filesystem::path> &folders) {
    const char *before = std::getenv(variable);
    std::string path = before ? before : "";
    for (const std::filesystem::path &folder : folders) {
        if (std::filesystem::exists(folder)) {
            path = std::filesystem::canonical(folder).string() + (path.empty() ? "" : ":") + path;
        }
    }
    setenv(variable, path.c_str(), 1);
}

} // namespace

void prepare_environment() {
    const char *path = std::getenv("PATH");
    // ip, ethtool and, once installed, inaggd lie in sbin, which the PATH of users, and that of plain su, lacks.
    setenv("PATH",
           fmt::format("{0}:{1}:{0}/../sbin:/usr/sbin:/sbin", own_folder().string(), path ? path : "/usr/bin:/bin").c_str(), 1);
    add_path("LD_LIBRARY_PATH", {own_folder() / "../lib"});
    add_path("PYTHONPATH", {own_folder() / "../../userspace/python", own_folder() / "../lib/python3/dist-packages"});
    setenv("INAGG_NETNS", "1", 1);
}

std::ofstream open_summary(const Options &options) {
    std::ofstream file;
    if (!options.json_summary.empty()) {
        file.open(options.json_summary);
        if (!file) {
            fail(fmt::format("--json-summary: cannot write '{}'", options.json_summary));
        }
    }
    return file;
}

Supervisor::Supervisor(const Options &options, Network &network, std::ofstream summary)
    : options_(options), network_(network), signals_(open_signals()), summary_(std::move(summary)) {}

int Supervisor::run() {
    const int status = supervise();
    const bool written = report();
    return status == 0 && !written ? setup_failed : status;
}

// What the links and background flows did, on standard error and in the summary, which is {} without
// impairments and flows: nothing counts frames then. False if it cannot be written.
bool Supervisor::report() {
    nlohmann::json summary = nlohmann::json::object();
    if (const LinkSpace *links = network_.links()) {
        Counters all = links->to_switch();
        all += links->to_hosts();
        fmt::print(stderr, "netns: dropped {} duplicated {} corrupted {} reordered {} of {} frames\n", all.dropped,
                   all.duplicated, all.corrupted, all.reordered, all.frames);
        if (all.overflowed) {
            fmt::print(stderr, "netns: lost {} more, which found no room where frames are held\n", all.overflowed);
        }
        summary = {{"to_switch", to_json(links->to_switch())}, {"to_hosts", to_json(links->to_hosts())}, {"total", to_json(all)}};
    }
    for (const Flow &flow : flows_) {
        fmt::print(stderr, "netns: background {}: {:.1f} Mbit/s\n", flow.name(), flow.mbit_per_s());
        summary["background"].push_back(flow.to_json());
    }
    if (!summary_.is_open()) {
        return true;
    }
    summary_ << summary.dump() << '\n';
    summary_.close();
    if (!summary_) {
        fmt::print(stderr, "netns: --json-summary: '{}' is not complete: {}\n", options_.json_summary,
                   std::generic_category().message(errno));
    }
    return bool(summary_);
}

int Supervisor::supervise() {
    start_relay();
    for (const Switch &node : network_.switches()) {
        if (network_.is_bmv2(node)) {
            start_bmv2(node);
        }
    }
    if (options_.with_switch() && !stopping_) {
        start_agents();
    }
    if (!stopping_) {
        start_ranks();
    }
    while (ranks_running() && !killed_) {
        wait_for_events();
    }
    if (!stopping_) {
        stop(0);
    }
    while (!children_.empty() && !killed_) {
        wait_for_events();
    }
    for (Stream &stream : streams_) {
        while (read_stream(stream)) {
            // what is left, without waiting for others that hold the pipe
        }
    }
    return status_;
}

// Starting

pid_t Supervisor::start(Role role, const std::string &name, Spawn spec, bool hide_output) {
    const std::string prefix = options_.prefix || role != Role::rank ? fmt::format("[{}] ", name) : "";
    Pipe output, error;
    spec.output = output.write.get();
    spec.error = error.write.get();
    const pid_t pid = spawn(spec);
    for (Fd *fd : {&output.read, &error.read}) {
        fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    }
    streams_.push_back({std::move(output.read), STDOUT_FILENO, prefix, hide_output});
    streams_.push_back({std::move(error.read), STDERR_FILENO, prefix, false});
    children_.push_back({role, pid, name});
    return pid;
}

// And what goes on beside them.
void Supervisor::start_ranks() {
    publish_hosts(options_, network_);
    for (const Launch &launch : launches(options_, network_)) {
        start_command(launch);
    }
    start_flows();
    for (const std::string &command : options_.also_in_switch) {
        start_side(command);
    }
    schedule();
}

void Supervisor::start_relay() {
    const pid_t pid = network_.links() ? network_.links()->start_relay() : 0;
    if (pid > 0) {
        children_.push_back({Role::helper, pid, "relay"});
    }
}

void Supervisor::start_flows() {
    for (const FlowPath &path : network_.flow_paths()) {
        flows_.emplace_back(path, network_.address(path.to), flows_.size(), options_.mtu);
        for (const pid_t pid : flows_.back().start()) {
            children_.push_back({Role::helper, pid, path.name});
        }
    }
    if (!flows_.empty()) {
        sample_flows();
    }
}

void Supervisor::sample_flows() {
    for (Flow &flow : flows_) {
        flow.sample();
    }
    if (!stopping_) {
        at(sampling_interval, [this] { sample_flows(); });
    }
}

// Its agent can start once it answers.
void Supervisor::start_bmv2(const Switch &node) {
    const auto deadline = Clock::now() + agent_deadline;
    bmv2_log_ = Fd(memfd_create("simple_switch", MFD_CLOEXEC));
    const int log = bmv2_log_.get();
    const pid_t pid =
        spawn({.space = &node.space, .command = bmv2_command(node, options_.algorithm), .output = log, .error = log});
    children_.push_back({Role::bmv2, pid, "simple_switch"});
    while (!stopping_ && !bmv2_answers(node)) {
        if (!find(Role::bmv2)) {
            stop(setup_failed);
        } else if (Clock::now() > deadline) {
            fmt::print(stderr, "netns: simple_switch was not ready in time\n");
            show_bmv2_log();
            stop(setup_failed);
        }
        at(bmv2_poll_interval, [] {});
        wait_for_events();
    }
}

void Supervisor::show_bmv2_log() const {
    char buffer[4096];
    const off_t end = lseek(bmv2_log_.get(), 0, SEEK_END);
    const ssize_t got = pread(bmv2_log_.get(), buffer, sizeof buffer, std::max<off_t>(0, end - off_t{sizeof buffer}));
    fmt::print(stderr, "netns: simple_switch said:\n{}\n", std::string_view(buffer, std::max<ssize_t>(got, 0)));
}

// After its agent, which empties its tables.
void Supervisor::end_bmv2() {
    const Child *bmv2 = find(Role::bmv2);
    if (bmv2 && !find(Role::agent)) {
        kill(-bmv2->pid, SIGTERM);
    }
}

Supervisor::Beginning Supervisor::begin_agent(const Switch &node, bool fresh) {
    Pipe ready;
    std::vector<std::string> command = network_.is_server(node) ? server_command(node) : agent_command(node);
    if (fresh) {
        command.emplace_back("--fresh");
    }
    command.insert(command.end(), {"--ready-fd", std::to_string(ready.write.get())});
    const std::string name = agent_name(node);
    const pid_t pid = start(Role::agent, name, {.space = &node.space, .command = command, .keep = ready.write.get()}, false);
    return {name, pid, std::move(ready.read)};
}

void Supervisor::start_agent(const Switch &node, bool fresh) { await_ready(begin_agent(node, fresh)); }

// All at once: most of it is the kernel's verifier, which knows one program at a time but many processors.
void Supervisor::start_agents() {
    std::vector<Beginning> begun;
    for (const Switch &node : network_.switches()) {
        begun.push_back(begin_agent(node));
    }
    for (const Beginning &agent : begun) {
        await_ready(agent);
    }
}

void Supervisor::kill_agent(const Switch &node) {
    if (const Child *agent = find(Role::agent, agent_name(node))) {
        killed_agents_.insert(agent->pid);
        kill(agent->pid, SIGKILL);
    }
}

void Supervisor::set_carrier_of(const Switch &spine, bool carrier) {
    for (const Switch &leaf : network_.switches()) {
        for (const Uplink &uplink : leaf.uplinks) {
            if (&network_.switches()[uplink.parent] == &spine) {
                network_.links()->set_carrier(network_.links()->find(leaf.name + "/" + uplink.port), carrier);
            }
        }
    }
}

// The neighbours see that the links fail; what the switch has in memory is gone with its pins.
void Supervisor::power_off(const Switch &spine) {
    set_carrier_of(spine, false);
    kill_agent(spine);
    std::error_code gone_already;
    std::filesystem::remove_all(pins_of(spine), gone_already);
}

void Supervisor::power_on(const Switch &spine) {
    start_agent(spine, true);
    set_carrier_of(spine, true);
}

// Where the agent pins it: spine0 and the only root have the default place.
std::string Supervisor::pins_of(const Switch &node) const {
    return &node == &network_.switches()[0] ? "/sys/fs/bpf/inagg" : "/sys/fs/bpf/inagg-" + node.name;
}

std::vector<std::string> Supervisor::agent_command(const Switch &node) const {
    std::vector<std::string> command = {sibling("inaggd")};
    if (network_.is_bmv2(node)) {
        const std::vector<std::string> of_bmv2 = bmv2_agent_options(node);
        command.insert(command.end(), of_bmv2.begin(), of_bmv2.end());
    } else {
        for (const std::string &port : node.ports) {
            command.insert(command.end(), {"--port", port});
        }
    }
    command.insert(command.end(), {"--address4", node.address4(), "--address6", node.address6()});
    for (const std::string &parent : network_.parents(node)) {
        command.insert(command.end(), {"--parent", parent});
    }
    if (&node != &network_.switches()[0]) { // which has the default places
        command.insert(command.end(), {"--run-dir", "/run/inagg-" + node.name});
        if (!network_.is_bmv2(node)) {
            command.insert(command.end(), {"--bpffs", pins_of(node)});
        }
    }
    for (const std::string &child : network_.children(node)) {
        command.insert(command.end(), {"--child", child});
    }
    add_rates(node, command);
    command.insert(command.end(), options_.inaggd_arguments.begin(), options_.inaggd_arguments.end());
    if (node.is_root()) {
        add_root_arguments(node, command);
    }
    return command;
}

// Leaves choose among their uplinks by what waits there, if there is a choice and the rate is limited.
void Supervisor::add_rates(const Switch &node, std::vector<std::string> &command) const {
    const uint64_t rate = options_.impairments.between_switches();
    if (options_.algorithm != "canary" || rate == 0 || node.uplinks.size() < 2) {
        return;
    }
    for (const Uplink &uplink : node.uplinks) {
        command.insert(command.end(), {"--port-rate", fmt::format("{}={}bit", uplink.port, rate)});
    }
    const bool says_so = std::ranges::any_of(options_.inaggd_arguments, [](const std::string &argument) {
        return argument.starts_with("--queue-limit") || argument.starts_with("--mark-after");
    });
    const auto longest = std::min<std::chrono::nanoseconds>(longest_queue(rate), std::chrono::seconds(10)); // inaggd's most
    if (!says_so) {
        command.insert(command.end(), {"--queue-limit", fmt::format("{}us", longest.count() / 1000)});
    }
}

void Supervisor::add_root_arguments(const Switch &node, std::vector<std::string> &command) const {
    for (std::string argument : options_.root_arguments) {
        if (const size_t at = argument.find("{}"); at != std::string::npos) {
            argument.replace(at, 2, node.name);
        }
        command.push_back(argument);
    }
}

std::vector<std::string> Supervisor::server_command(const Switch &node) const {
    std::vector<std::string> command = {sibling("inagg-ps"), "--address", node.address4(), "--address", node.address6()};
    for (const std::string &child : network_.children(node)) {
        command.insert(command.end(), {"--child", child});
    }
    if (options_.with_bmv2()) { // as many in flight as that keeps up with
        command.insert(command.end(), {"--job-slots", "16", "--control-slots", "8"});
    }
    add_root_arguments(node, command);
    return command;
}

// The root that is called switch goes by its program.
std::string Supervisor::agent_name(const Switch &node) const {
    return node.name != "switch" ? node.name : options_.with_server() ? "inagg-ps" : "inaggd";
}

// The agent writes a newline once the switch is attached; its end closes the pipe.
void Supervisor::await_ready(const Beginning &agent) {
    const auto deadline = Clock::now() + agent_deadline;
    fcntl(agent.ready.get(), F_SETFL, O_NONBLOCK);
    while (!stopping_) {
        char byte;
        const ssize_t got = read(agent.ready.get(), &byte, 1);
        if (got == 1 || (got == 0 && killed_agents_.contains(agent.pid))) {
            return;
        }
        if (got == 0 || Clock::now() > deadline) {
            fmt::print(stderr, "netns: {} {}; its messages are above\n", agent.name,
                       got == 0 ? "did not start" : "was not ready in time");
            stop(setup_failed);
            return;
        }
        wait_for_events(agent.ready.get());
    }
}

void Supervisor::start_command(const Launch &launch) {
    start(Role::rank, launch.name,
          {.space = &network_.host_space(launch.host),
           .command = options_.command,
           .environment = launch.environment,
           .host_name = host_name(launch.host)},
          options_.quiet_ranks && find(Role::rank));
}

void Supervisor::start_side(const std::string &command) {
    start(
        Role::side, "switch",
        {.space = &network_.switches()[0].space,
         .command = {"sh", "-c", command},
         .environment = {"INAGG_SWITCH=" + network_.address(network_.switches()[0]), fmt::format("INAGG_JOB={}", options_.job)}},
        false);
}

// Timers

void Supervisor::at(Nanoseconds delay, std::function<void()> action) { timers_.emplace(Clock::now() + delay, std::move(action)); }

void Supervisor::schedule() {
    for (const auto &[rank, when] : options_.kill) {
        at(when, [this, name = std::to_string(rank)] {
            if (const Child *child = find(Role::rank, name)) {
                kill(-child->pid, SIGKILL);
            }
        });
    }
    for (const auto &[name, when] : options_.kill_inaggd) {
        at(when, [this, &node = network_.find_switch(name)] { kill_agent(node); });
    }
    for (const auto &[name, when] : options_.restart_inaggd) {
        at(when, [this, &node = network_.find_switch(name)] { start_agent(node); });
    }
    for (const auto &[spine, when] : options_.kill_spine) {
        at(when, [this, &node = network_.switches()[spine]] { power_off(node); });
    }
    for (const auto &[spine, when] : options_.start_spine) {
        at(when, [this, &node = network_.switches()[spine]] { power_on(node); });
    }
    schedule_carrier(options_.cut, false);
    schedule_carrier(options_.mend, true);
    if (options_.timeout.count() > 0) {
        at(options_.timeout, [this] {
            fmt::print(stderr, "netns: not finished in {:.3g} s: ending the run\n", options_.timeout.count() / 1e9);
            stop(timed_out);
        });
    }
}

void Supervisor::schedule_carrier(const std::vector<std::pair<std::string, Nanoseconds>> &links, bool carrier) {
    for (const auto &[name, when] : links) {
        at(when, [this, link = network_.links()->find(name), carrier] { network_.links()->set_carrier(link, carrier); });
    }
}

void Supervisor::run_due_timers() {
    while (!timers_.empty() && timers_.begin()->first <= Clock::now()) {
        const auto action = std::move(timers_.begin()->second);
        timers_.erase(timers_.begin());
        action();
    }
}

// Until the next timer; at most a second, so that deadlines without a timer are noticed.
int Supervisor::poll_timeout() const {
    constexpr int64_t longest = 1000;
    if (timers_.empty()) {
        return longest;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first - Clock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, longest));
}

// Events

void Supervisor::wait_for_events(int extra) {
    std::vector<pollfd> polled = {{signals_.get(), POLLIN, 0}};
    for (const Stream &stream : streams_) {
        polled.push_back({stream.fd.get(), POLLIN, 0});
    }
    polled.push_back({extra, POLLIN, 0}); // ignored when negative
    if (poll(polled.data(), polled.size(), poll_timeout()) < 0 && errno != EINTR) {
        fail("poll");
    }
    for (size_t i = 1; i + 1 < polled.size(); ++i) {
        if (polled[i].revents != 0) {
            read_stream(streams_[i - 1]);
        }
    }
    std::erase_if(streams_, [](const Stream &stream) { return !stream.fd; });
    read_signals();
    reap();
    run_due_timers();
}

// Once, so that who writes without end keeps nothing else waiting. False: there is no more now.
bool Supervisor::read_stream(Stream &stream) {
    char buffer[65536];
    const ssize_t got = read(stream.fd.get(), buffer, sizeof buffer);
    if (got > 0) {
        stream.partial.append(buffer, got);
        show_lines(stream);
        return true;
    }
    if (got < 0 && errno == EAGAIN) {
        return false;
    }
    if (!stream.partial.empty()) {
        show(stream, stream.partial + "\n");
    }
    stream.fd.reset();
    return false;
}

// Whole ones; a carriage return ends a line too, so that progress bars move.
void Supervisor::show_lines(Stream &stream) {
    std::string_view left = stream.partial;
    for (size_t end; (end = left.find_first_of("\n\r")) != std::string_view::npos || left.size() > longest_line;
         left.remove_prefix(end)) {
        end = std::min(end, left.size() - 1) + 1;
        show(stream, left.substr(0, end));
    }
    stream.partial.erase(0, stream.partial.size() - left.size());
}

void Supervisor::show(const Stream &stream, std::string_view text) {
    if (stream.hidden) {
        return;
    }
    const std::string line = stream.prefix + std::string(text);
    for (size_t done = 0; done < line.size();) {
        const ssize_t wrote = write(stream.target, line.data() + done, line.size() - done);
        if (wrote < 0) {
            if (errno == EPIPE) {
                stop(128 + SIGPIPE); // nobody reads any more, as at the end of `| head`
            }
            return;
        }
        done += wrote;
    }
}

void Supervisor::read_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            stop(128 + static_cast<int>(info.ssi_signo));
        }
    }
}

void Supervisor::reap() {
    int wait_status = 0;
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
        const auto child =
            std::find_if(children_.begin(), children_.end(), [pid](const Child &candidate) { return candidate.pid == pid; });
        if (child != children_.end()) { // else an orphan that process 1 inherited
            const Child done = *child;
            children_.erase(child);
            ended(done, exit_code(wait_status));
        }
    }
}

// Ending

void Supervisor::ended(const Child &child, int code) {
    if (stopping_ && child.role == Role::agent) {
        end_bmv2();
    }
    if (stopping_ || killed_agents_.contains(child.pid)) {
        return;
    }
    if (child.role == Role::agent || child.role == Role::bmv2 || child.role == Role::helper) {
        fmt::print(stderr, "netns: {} ended with status {} during the run\n", child.name, code);
        if (child.role == Role::bmv2) {
            show_bmv2_log();
        }
        failed(setup_failed);
    } else if (code != 0) {
        const char *what = child.role != Role::rank ? "command in " : options_.launcher == Launcher::none ? "rank " : "";
        fmt::print(stderr, "netns: {}{} ended with status {}\n", what, child.name, code);
        failed(code);
    }
}

// The first failure decides the status; the others get a grace period to end by themselves.
void Supervisor::failed(int code) {
    if (status_ != 0) {
        return;
    }
    status_ = code;
    at(options_.grace, [this] {
        if (ranks_running()) {
            fmt::print(stderr, "netns: a rank has failed and others still run: ending them\n");
            stop(status_);
        }
    });
}

void Supervisor::stop(int code) {
    if (stopping_) {
        return;
    }
    stopping_ = true;
    sample_flows();
    status_ = status_ != 0 ? status_ : code;
    signal_all(SIGTERM);
    end_bmv2();
    at(kill_after, [this] {
        signal_all(SIGKILL);
        killed_ = true;
    });
}

void Supervisor::signal_all(int signal) {
    for (const Child &child : children_) {
        if (signal == SIGKILL || child.role != Role::bmv2) {
            kill(-child.pid, signal);
        }
    }
}

Supervisor::Child *Supervisor::find(Role role, const std::string &name) {
    const auto child = std::find_if(children_.begin(), children_.end(), [&](const Child &candidate) {
        return candidate.role == role && (name.empty() || candidate.name == name);
    });
    return child == children_.end() ? nullptr : &*child;
}

bool Supervisor::ranks_running() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child &child) { return child.role == Role::rank; });
}

} // namespace netns
