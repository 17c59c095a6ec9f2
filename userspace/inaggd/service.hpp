// SPDX-License-Identifier: BSD-2-Clause
// What an agent is to its users, whatever its switch is made of: the only one in its run directory, ended by signals,
// steered through the control socket.
#pragma once

#include "blocks.hpp"
#include "control.hpp"
#include "daemon_options.hpp"
#include "job_spec.hpp"
#include "metrics.hpp"
#include "web.hpp"

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace inaggd {

// The run directory, for one agent at a time: the kernel drops the lock with the process.
class RunDir {
public:
    explicit RunDir(std::string path);
    ~RunDir();
    RunDir(const RunDir &) = delete;
    RunDir &operator=(const RunDir &) = delete;

private:
    std::string path_;
    Fd lock_;
    bool owned_ = false;
};

// What the agent does for its users.
struct Commands {
    std::function<void(const JobSpec &)> add_job;
    std::function<void(uint16_t)> remove_job;
    // What inaggctl is to show: "status", "jobs", "job", "stats" or "drops", the last three of `job`, if that is no null.
    // Not set: it is in pinned maps, which inaggctl reads.
    std::function<nlohmann::ordered_json(const std::string &what, const nlohmann::json &job)> read{};
    std::function<Metrics()> metrics{};
    std::function<nlohmann::ordered_json()> refusals{}; // as Refusals::rows()
};

// Throws Error if what is to be served over HTTP has an address that is not this machine's, or, before a reload, one that another
// program serves.
void need_own_addresses(const Options &options);

// Throws Error if there can be no control socket in `run_dir`.
void need_run_dir(const Options &options);

class Service {
public:
    // `arguments`: of this process.
    Service(const Options &options, std::vector<std::string> arguments);

    void listen(Commands commands);
    // Tells whoever has started this process that it is ready.
    void announce() const;
    // Descriptors to wait for, and what to do about those that can be read.
    void add_to(std::vector<pollfd> &fds) const;
    void serve(const std::vector<pollfd> &fds);
    // Until a signal ends it, or asks for a reload.
    bool goes_on() const { return !stop_ && !reload_; }
    bool stops() const { return stop_; }
    bool reloads() const { return reload_ && !stop_; }
    // The new program, with the configuration as it is now, takes over like after a restart.
    [[noreturn]] void execute_again();

private:
    void read_signals();
    void reload_on_signal();
    void reload();
    nlohmann::json command(const nlohmann::json &request);
    nlohmann::ordered_json state();

    Options o_;
    std::vector<std::string> arguments_; // of a reload
    RunDir run_dir_;
    Fd signals_;
    Commands commands_{};
    std::unique_ptr<ControlServer> control_;
    std::unique_ptr<MetricsServer> metrics_;
    std::unique_ptr<WebServer> web_;
    Waits waits_{};
    bool stop_ = false, reload_ = false;
    // Names this program, whose process stays when another takes over; nanoseconds of the monotonic clock.
    const int64_t started_ = std::chrono::steady_clock::now().time_since_epoch().count();
};

} // namespace inaggd
