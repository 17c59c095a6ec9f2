// SPDX-License-Identifier: BSD-2-Clause
#include "service.hpp"

#include "error.hpp"
#include "http_address.hpp"
#include "switch_state.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>

extern char **environ;

namespace inaggd {
namespace {

using nlohmann::json;

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

// The command line without what is meant for the first start only.
std::vector<std::string> reload_arguments(const std::vector<std::string> &arguments) {
    std::vector<std::string> kept;
    for (size_t i = 0; i < arguments.size(); i++) {
        const std::string &argument = arguments[i];
        if (argument == "--fresh" || argument.starts_with("--fresh=") || argument.starts_with("--ready-fd="))
            continue;
        if (argument == "--ready-fd")
            i++;
        else
            kept.push_back(argument);
    }
    return kept;
}

// As Commands::read, of a switch that has pinned maps.
nlohmann::ordered_json read_pins(const Where &where, std::string_view what, const json &job) {
    if (what == "status")
        return read_status(where);
    if (what == "jobs")
        return read_jobs(where);
    if (what == "job")
        return read_job(where, job);
    return what == "stats" ? read_stats(where, {}) : read_drops(where, {});
}

} // namespace

void need_own_addresses(const Options &options) {
    const auto need = [&](const char *option, const std::string &where) {
        const auto is_there = [&](const std::string &held) { return overlap(held, where); };
        const bool fresh = options.held && std::ranges::none_of(*options.held, is_there);
        if (!where.empty())
            fresh ? need_free_address(option, where) : need_own_address(option, where);
    };
    if (overlap(options.metrics, options.web))
        throw Error("--web {} and --metrics {}: give them two ports", options.web, options.metrics);
    need("--metrics", options.metrics);
    need("--web", options.web);
}

void need_run_dir(const Options &options) {
    const std::string &run_dir = options.run_dir;
    need_socket_path(run_dir + "/" + (options.is_p4() ? asked_socket_name : control_socket_name));
    std::error_code error;
    std::filesystem::path there = std::filesystem::absolute(run_dir, error);
    while (!error && !std::filesystem::exists(there, error) && there.has_relative_path())
        there = there.parent_path();
    if (run_dir.empty() || error || !std::filesystem::is_directory(there, error) || access(there.c_str(), W_OK | X_OK))
        throw Error("--run-dir '{}': {} is no directory that can be written to", run_dir,
                    run_dir.empty() ? "it" : there.string());
}

RunDir::RunDir(std::string path) : path_(std::move(path)) {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    lock_ = Fd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock_)
        throw Error("{}: {}; choose another --run-dir", path_, system_text(error ? error.value() : errno));
    if (flock(lock_.get(), LOCK_EX | LOCK_NB))
        throw Error("{}: another inaggd runs here; stop it or choose another --run-dir and --bpffs", path_);
    owned_ = true;
}

RunDir::~RunDir() {
    std::error_code not_empty;
    if (owned_)
        std::filesystem::remove(path_, not_empty);
}

Service::Service(const Options &options, std::vector<std::string> arguments)
    : o_(options), arguments_(reload_arguments(arguments)), run_dir_(o_.run_dir), signals_(signals()) {}

void Service::listen(Commands commands) {
    commands_ = std::move(commands);
    const bool is_asked = static_cast<bool>(commands_.read);
    unlink((o_.run_dir + "/" + (is_asked ? control_socket_name : asked_socket_name)).c_str()); // of an agent that was killed
    control_ = std::make_unique<ControlServer>(o_.run_dir + "/" + (is_asked ? asked_socket_name : control_socket_name),
                                               [this](const json &request) { return command(request); });
    if (!o_.metrics.empty()) {
        metrics_ = std::make_unique<MetricsServer>(o_.metrics, commands_.metrics);
        spdlog::info("metrics at http://{}/metrics", o_.metrics);
    }
    if (!o_.web.empty()) {
        web_ = std::make_unique<WebServer>(o_.web, [this] { return state(); });
        spdlog::info("a page at http://{}/", o_.web);
    }
}

void Service::announce() const {
    if (o_.ready_fd < 0)
        return;
    if (write(o_.ready_fd, "\n", 1) != 1)
        throw Error("--ready-fd {}: {}", o_.ready_fd, system_text(errno));
    close(o_.ready_fd);
}

void Service::add_to(std::vector<pollfd> &fds) const {
    fds.push_back({.fd = signals_.get(), .events = POLLIN, .revents = 0});
    control_->add_to(fds);
    if (metrics_)
        fds.push_back({.fd = metrics_->fd(), .events = POLLIN, .revents = 0});
    if (web_)
        fds.push_back({.fd = web_->fd(), .events = POLLIN, .revents = 0});
}

void Service::serve(const std::vector<pollfd> &fds) {
    for (const pollfd &ready : fds)
        if (ready.revents && ready.fd == signals_.get())
            read_signals();
        else if (ready.revents && metrics_ && ready.fd == metrics_->fd())
            metrics_->serve();
        else if (ready.revents && web_ && ready.fd == web_->fd())
            web_->serve();
        else if (ready.revents)
            control_->serve(ready.fd);
}

void Service::read_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGHUP)
            stop_ = true;
        else
            reload_on_signal();
    }
}

void Service::reload_on_signal() {
    try {
        reload();
    } catch (const std::exception &error) {
        spdlog::error("reload refused: {}", error.what());
    }
}

// Only with a configuration that the program can start with; otherwise all goes on as before.
void Service::reload() {
    std::vector<std::string> arguments = arguments_;
    arguments.push_back("--check");
    arguments.push_back("--held=none");
    for (const std::string &where : {o_.metrics, o_.web})
        if (!where.empty())
            arguments.push_back("--held=" + where);
    need_success(std::move(arguments));
    reload_ = true;
}

json Service::command(const json &request) {
    const std::string name = request.at("command");
    const bool only_asks = name == "read" || name == "refusals";
    spdlog::log(only_asks ? spdlog::level::debug : spdlog::level::info, "control: {}", request.dump());
    if (name == "read" && commands_.read) // as text, which keeps the order
        return {{"value", commands_.read(request.at("what"), request.at("job")).dump()}};
    if (name == "job add") {
        const JobSpec spec = parse_job_spec(request.at("spec"));
        commands_.add_job(spec);
        return {{"job", spec.number}};
    }
    if (name == "job del") {
        const json &number = request.at("job");
        if (!number.is_number_integer() || number < 0 || number > UINT16_MAX)
            throw Error("job {}: numbers are 0 to {}", number.dump(), UINT16_MAX);
        commands_.remove_job(number.get<uint16_t>());
        return json::object();
    }
    if (name == "refusals")
        return {{"refusals", commands_.refusals()}};
    if (name == "which")
        return {{"started", started_}};
    if (name == "reload") {
        reload();
        return {{"started", started_}, {"pid", getpid()}}; // of the next program, too
    }
    throw Error("unknown command '{}'", name);
}

// What the page shows.
nlohmann::ordered_json Service::state() {
    using std::chrono::steady_clock;
    const auto read = [this](const char *what, const json &job = nullptr) {
        return commands_.read ? commands_.read(what, job) : read_pins({o_.bpffs, o_.run_dir}, what, job);
    };
    nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
    for (const auto &job : read("jobs"))
        jobs.push_back(read("job", job["job"]));
    const auto uptime = std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now().time_since_epoch());
    waits_.look({o_.bpffs, o_.run_dir});
    return {{"uptime_ms", uptime.count()}, {"status", read("status")}, {"jobs", jobs},
            {"stats", read("stats")},      {"drops", read("drops")},   {"waits", waits_.take()}};
}

void Service::execute_again() {
    spdlog::info("reload: starting again");
    const std::string self = own_file();
    // Signals stay blocked, and wait for signals(): what comes now ends the next program.
    execv(self.c_str(), pointers_to(arguments_).data());
    throw Error("reload: {}: {}", self, system_text(errno));
}

} // namespace inaggd
