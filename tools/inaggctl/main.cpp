// SPDX-License-Identifier: BSD-2-Clause
// inaggctl: looks at and steers an inagg switch. Reads the pinned maps itself, so it works while inaggd is
// away; only what changes jobs goes through inaggd.
#include "control.hpp"
#include "doctor.hpp"
#include "error.hpp"
#include "job_spec.hpp"
#include "maps.hpp"
#include "plan.hpp"
#include "report.hpp"
#include "sockets.hpp"
#include "top.hpp"
#include "trace.hpp"

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>

namespace {

using namespace inaggctl;

class Command {
public:
    explicit Command(CLI::App &app) : app_(app) {
        app.require_subcommand(1);
        app.fallthrough();
        app.add_flag("--json", json_, "print JSON");
        app.add_option("--bpffs", where_.bpffs, "directory of the pins")->capture_default_str();
        app.add_option("--run-dir", where_.run_dir, "directory of inaggd's socket")->capture_default_str();
        reading(
            "status", "the switch: agent, addresses, ports, slots", [this] { return read_status(where_); }, print_status);
        describe_jobs();
        auto *stats = reading(
            "stats", "counters by job", [this] { return read_stats(where_, job_); }, print_stats);
        auto *drops = reading(
            "drops", "dropped packets by job and reason", [this] { return read_drops(where_, job_); }, print_drops);
        for (CLI::App *command : {stats, drops})
            command->add_option("--job", job_, "only this job");
        describe_top();
        describe_trace();
        reading("sockets", "AF_INAGG sockets of this network namespace", read_sockets, print_sockets);
        describe_slots();
        auto *reload = app.add_subcommand("reload", "let inaggd start again, with its configuration as it is now");
        reload->callback([this] { run_ = [this] { this->reload(); }; });
        describe_doctor();
        describe_plan();
    }

    int run() const {
        run_();
        return failed_;
    }

private:
    using Reader = std::function<json()>;
    using Printer = std::function<void(const json &)>;

    CLI::App *reading(const std::string &name, const std::string &help, Reader read, Printer print) {
        return reading_in(app_, name, help, std::move(read), std::move(print));
    }

    CLI::App *reading_in(CLI::App &parent, const std::string &name, const std::string &help, Reader read, Printer print) {
        CLI::App *command = parent.add_subcommand(name, help);
        command->fallthrough();
        command->callback([this, read, print] { run_ = [this, read, print] { show(read(), print); }; });
        return command;
    }

    void show(const json &value, const Printer &print) const {
        if (json_)
            print_json(value);
        else
            print(value);
    }

    void ask(const nlohmann::json &request) const { show_reply(inaggd::ask_daemon(where_.run_dir, request)); }

    void reload() const {
        const nlohmann::json reply = inaggd::ask_daemon(where_.run_dir, {{"command", "reload"}});
        inaggd::await_reload(where_.run_dir, reply);
        show_reply(reply);
    }

    void show_reply(const nlohmann::json &reply) const {
        if (json_)
            fmt::print("{}\n", reply.dump());
    }

    void describe_jobs() {
        CLI::App *jobs = app_.add_subcommand("job", "jobs of the switch");
        jobs->require_subcommand(1);
        jobs->fallthrough();
        reading_in(
            *jobs, "list", "all jobs", [this] { return read_jobs(where_); }, print_jobs);
        auto *show_one = reading_in(
            *jobs, "show", "a job and its ranks", [this] { return read_job(where_, *job_); }, print_job);
        auto *add = jobs->add_subcommand("add", "configure a job, as with inaggd --job");
        add->fallthrough();
        add->add_option("SPEC", spec_, "7:size=4,slots=256,control=8,elements=352,checked,member=0@p0/10.77.0.10,...")
            ->required();
        add->add_option("--key-file", key_file_, "with the key that ranks must know to join it; as key-file=FILE in SPEC");
        add->callback([this] {
            run_ = [this] {
                if (!key_file_.empty()) // the agent reads it, and is elsewhere
                    spec_ += ",key-file=" + std::filesystem::absolute(key_file_).string();
                inaggd::parse_job_spec(spec_); // complain before asking
                ask({{"command", "job add"}, {"spec", spec_}});
            };
        });
        auto *del = jobs->add_subcommand("del", "remove a job; its ranks are told");
        del->fallthrough();
        del->callback([this] { run_ = [this] { ask({{"command", "job del"}, {"job", *job_}}); }; });
        for (CLI::App *command : {show_one, del})
            command->add_option("JOB", job_, "the job's number")->required();
    }

    void describe_top() {
        CLI::App *top = app_.add_subcommand("top", "what the switch does, live; q quits");
        top->fallthrough();
        top->add_option("--interval", interval_, "seconds that rates are over")
            ->check(CLI::Range(0.1, 3600.0))
            ->capture_default_str();
        top->add_flag("--once", once_, "print rates once, as plain text");
        top->callback([this] {
            run_ = [this] {
                const std::chrono::duration<double> interval(interval_);
                once_ || json_ ? print_switch(where_, interval, json_) : watch_switch(where_, interval);
            };
        });
    }

    void describe_trace() {
        CLI::App *trace = app_.add_subcommand("trace", "where a job's blocks are: who is in, who is waited for, how long");
        trace->fallthrough();
        trace->add_option("JOB", job_, "the job's number")->required();
        trace->add_option("--block", block_, "only this block of the data stream; otherwise those that are not complete");
        trace->add_option("--also", also_, "pins of another switch of the tree on this machine; repeat for more")
            ->allow_extra_args(false);
        trace->add_option("--seconds", trace_seconds_, "for how long to look")
            ->check(CLI::Range(0.0, 3600.0))
            ->capture_default_str();
        trace->callback([this] {
            run_ = [this] {
                if (inaggd::is_asked(where_.run_dir))
                    throw inaggd::Error("trace: reads the maps of an XDP switch, and a P4 switch has none: inaggctl job show");
                std::vector<std::string> switches{where_.bpffs};
                switches.insert(switches.end(), also_.begin(), also_.end());
                show(trace_job(switches, *job_, block_, std::chrono::duration<double>(trace_seconds_)), print_trace);
            };
        });
    }

    void describe_slots() {
        CLI::App *slots = app_.add_subcommand("slots", "the switch's memory");
        slots->require_subcommand(1);
        slots->fallthrough();
        auto *clear = slots->add_subcommand("clear", "forget what slots hold, as a restarted switch would");
        clear->fallthrough();
        clear->add_option("--job", job_, "only this job's slots");
        clear->add_flag("--keep-boot", keep_boot_, "do not change the boot id, so that ranks are not told");
        clear->callback([this] {
            run_ = [this] {
                inaggd::SwitchMaps maps = inaggd::SwitchMaps::open(where_.bpffs);
                inaggd::clear_slots(maps, job_ ? &*job_ : nullptr, keep_boot_);
                if (json_)
                    fmt::print("{}\n", json{{"ok", true}, {"boot", maps.settings().boot}}.dump());
            };
        });
    }

    void describe_doctor() {
        CLI::App *doctor = app_.add_subcommand("doctor", "what this machine lacks or what is set up wrong, and what to do");
        doctor->fallthrough();
        doctor->add_option("IF", interfaces_, "network interfaces to check");
        doctor->callback([this] {
            run_ = [this] {
                json findings = examine(interfaces_, where_);
                show(findings, print_doctor);
                failed_ = healthy(findings) ? 0 : 1;
            };
        });
    }

    void describe_plan() {
        CLI::App *planned =
            app_.add_subcommand("plan", "trees for the jobs of a fabric, and what its switches and ranks are to be told");
        planned->fallthrough();
        planned->add_option("FILE", fabric_, "the fabric's leaves, spines, hosts and jobs, as TOML")->required();
        planned
            ->add_option("--into", directory_,
                         "write inaggd's configuration of each switch and the environment of each host's ranks there")
            ->check([](const std::string &text) {
                return text.empty() ? std::string("it is empty: name a directory") : std::string();
            });
        planned->callback([this] {
            run_ = [this] {
                const json found = plan(read_fabric(fabric_));
                if (!directory_.empty())
                    write_files(found, directory_);
                show(found, print_plan);
            };
        });
    }

    CLI::App &app_;
    Where where_{inaggd::default_bpffs, inaggd::default_run_dir};
    bool json_ = false, keep_boot_ = false, once_ = false;
    double interval_ = 1, trace_seconds_ = 1;
    std::optional<uint16_t> job_;
    std::optional<uint32_t> block_;
    std::vector<std::string> also_;
    std::string spec_, key_file_, fabric_, directory_;
    std::vector<std::string> interfaces_;
    std::function<void()> run_;
    int failed_ = 0;
};

// CLI11 misses a subcommand before it tells that it did not know a word.
int complain(const CLI::App &app, const CLI::ParseError &error) {
    const std::vector<std::string> unknown = app.remaining(true);
    if (unknown.empty() || error.get_exit_code() != static_cast<int>(CLI::ExitCodes::RequiredError))
        return app.exit(error);
    return app.exit(CLI::ValidationError(unknown.front(), "there is no such command"));
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("Looks at and steers an inagg switch");
    Command command(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return complain(app, error);
    }
    try {
        const int status = command.run();
        if (std::fflush(stdout) || std::ferror(stdout))
            throw inaggd::Error("standard output: {}", inaggd::system_text(errno));
        return status;
    } catch (const std::exception &error) {
        fmt::print(stderr, "inaggctl: {}\n", error.what());
        return 1;
    }
}
