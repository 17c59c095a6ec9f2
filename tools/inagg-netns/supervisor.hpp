// SPDX-License-Identifier: BSD-2-Clause
// Process 1 of a run: starts the switch agent and the ranks, shows what they print, ends them.
#pragma once

#include "flow.hpp"
#include "launch.hpp"
#include "network.hpp"
#include "options.hpp"
#include "process.hpp"

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace netns {

/** Lets this process and its children find the programs, libraries and Python module of this build or prefix, and sbin. */
void prepare_environment();

/** The file of --json-summary, empty; not open without. Throws if it cannot be written. */
std::ofstream open_summary(const Options &options);

class Supervisor {
public:
    Supervisor(const Options &options, Network &network, std::ofstream summary);

    // Runs the command on all ranks; returns the status of the run.
    int run();

private:
    using Clock = std::chrono::steady_clock;
    enum class Role { rank, agent, bmv2, helper, side };

    struct Child {
        Role role;
        pid_t pid;
        std::string name;
    };

    // One output of one child, cut into lines.
    struct Stream {
        Fd fd;
        int target;
        std::string prefix;
        bool hidden;
        std::string partial = {};
    };

    // An agent that is to say that it is ready.
    struct Beginning {
        std::string name;
        pid_t pid;
        Fd ready;
    };

    int supervise();
    bool report();
    void start_ranks();
    void start_relay();
    void start_flows();
    void sample_flows();
    void start_bmv2(const Switch &node);
    void show_bmv2_log() const;
    void end_bmv2();
    Beginning begin_agent(const Switch &node, bool fresh = false);
    void start_agent(const Switch &node, bool fresh = false);
    void start_agents();
    void kill_agent(const Switch &node);
    void power_off(const Switch &spine);
    void power_on(const Switch &spine);
    void set_carrier_of(const Switch &spine, bool carrier);
    std::vector<std::string> agent_command(const Switch &node) const;
    std::string pins_of(const Switch &node) const;
    void add_rates(const Switch &node, std::vector<std::string> &command) const;
    std::vector<std::string> server_command(const Switch &node) const;
    void add_root_arguments(const Switch &node, std::vector<std::string> &command) const;
    std::string agent_name(const Switch &node) const;
    void await_ready(const Beginning &agent);
    void start_command(const Launch &launch);
    void start_side(const std::string &command);
    pid_t start(Role role, const std::string &name, Spawn spec, bool hide_output);

    void schedule();
    void schedule_carrier(const std::vector<std::pair<std::string, Nanoseconds>> &links, bool carrier);
    void at(Nanoseconds delay, std::function<void()> action);
    void run_due_timers();
    int poll_timeout() const;
    void wait_for_events(int extra = -1); // returns also when `extra` is readable
    bool read_stream(Stream &stream);
    void show_lines(Stream &stream);
    void show(const Stream &stream, std::string_view text);
    void read_signals();
    void reap();
    void ended(const Child &child, int code);
    void failed(int code);
    void stop(int code);
    void signal_all(int signal);
    Child *find(Role role, const std::string &name = "");
    bool ranks_running() const;

    const Options &options_;
    Network &network_;
    Fd signals_;
    std::ofstream summary_;
    std::set<pid_t> killed_agents_; // on purpose, perhaps before they were ready: their end is no failure
    Fd bmv2_log_;                   // what simple_switch has printed, which is shown only if it fails
    std::vector<Child> children_;
    std::vector<Stream> streams_;
    std::vector<Flow> flows_;
    std::multimap<Clock::time_point, std::function<void()>> timers_;
    int status_ = 0;
    bool stopping_ = false;
    bool killed_ = false;
};

} // namespace netns
