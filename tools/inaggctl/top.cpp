// SPDX-License-Identifier: BSD-2-Clause
#include "top.hpp"

#include "blocks.hpp"
#include "error.hpp"
#include "trace.hpp"

#define NCURSES_NOMACROS // they have names of C++'s
#include <curses.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace inaggctl {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Lines = std::vector<std::string>;

constexpr auto look_period = std::chrono::milliseconds(100); // shorter waits are not shown

// What a switch says of itself at one time.
struct Sample {
    Clock::time_point at;
    json status, jobs, stats, drops;
    json waits;                           // the longest of each job since the sample before
    std::map<std::string, json> switches; // members of a job that are switches, by the job
};

std::string job_name(const json &job) { return job.is_null() ? "none" : job.dump(); }

std::string text(const json &value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

json switches_of(const Where &where, uint16_t job) {
    json found = json::array();
    try {
        const json shown = read_job(where, job);
        for (const json &member : shown["members"])
            if (member["switch"].get<bool>())
                found.push_back(member);
    } catch (const inaggd::Error &) { // it has just gone
    }
    return found;
}

Sample sample(const Where &where, inaggd::Waits &waits) {
    waits.look(where);
    Sample now{.at = Clock::now(),
               .status = read_status(where),
               .jobs = read_jobs(where),
               .stats = read_stats(where, {}),
               .drops = read_drops(where, {}),
               .waits = waits.take(),
               .switches = {}};
    for (const json &job : now.jobs)
        now.switches[job_name(job["job"])] = switches_of(where, job["job"]);
    return now;
}

uint64_t count_of(const Sample &sample, const std::string &job, const std::string &counter) {
    for (const json &row : sample.stats)
        if (job_name(row["job"]) == job)
            return row.value(counter, uint64_t{0});
    return 0;
}

// 0 also if the counter has begun again.
double rate(const Sample &before, const Sample &now, const std::string &job, const std::string &counter) {
    const uint64_t old = count_of(before, job, counter), value = count_of(now, job, counter);
    const double seconds = Seconds(now.at - before.at).count();
    return value > old && seconds > 0 ? static_cast<double>(value - old) / seconds : 0;
}

std::string job_line(const Sample &before, const Sample &now, const std::string &job, const std::string &ranks,
                     const std::string &algorithm) {
    const auto per_second = [&](const char *counter) { return rate(before, now, job, counter); };
    return fmt::format("{:>6} {:>7} {:<9} {:>10.0f} {:>10.0f} {:>8.2f} {:>9} {:>9} {:>4.0f}", job, ranks, algorithm,
                       per_second("packets"), per_second("completions"), per_second("elements") / 1e6,
                       count_of(now, job, "degraded"), count_of(now, job, "drops"), per_second("drops"));
}

void add_jobs(Lines &lines, const Sample &before, const Sample &now) {
    lines.push_back(fmt::format("{:>6} {:>7} {:<9} {:>10} {:>10} {:>8} {:>9} {:>9} {:>4}", "JOB", "RANKS", "ALGORITHM",
                                "PACKETS/s", "BLOCKS/s", "Melem/s", "DEGRADED", "DROPS", "/s"));
    for (const json &job : now.jobs)
        lines.push_back(
            job_line(before, now, job_name(job["job"]), text(job["joined"]) + "/" + text(job["size"]), text(job["algorithm"])));
    lines.push_back(job_line(before, now, "none", "", ""));
}

// Those that trio has not waited for, and those that jobs wait for.
void add_stragglers(Lines &lines, const Sample &now) {
    Lines found;
    for (const json &job : now.jobs)
        for (const json &rank : job["stragglers"])
            found.push_back(fmt::format("{:>6} rank {:>2} {:<10} missed {} blocks, {} packets heard", job_name(job["job"]),
                                        text(rank["rank"]), text(rank["state"]), text(rank["missed"]), text(rank["heard"])));
    for (const json &wait : now.waits)
        found.push_back(fmt::format("{:>6} waits for ranks {} ({:.1f} s)", job_name(wait["job"]),
                                    ranks_text(wait["ranks"], wait["children"]), wait["seconds"].get<double>()));
    if (found.empty())
        return;
    lines.insert(lines.end(), {"", "STRAGGLERS"});
    lines.insert(lines.end(), found.begin(), found.end());
}

void add_drops(Lines &lines, const Sample &now) {
    if (now.drops.empty())
        return;
    lines.insert(lines.end(), {"", "DROPS"});
    for (const json &row : now.drops)
        lines.push_back(fmt::format("{:>6} {:>10} {:<14} {}", job_name(row["job"]), text(row["packets"]), text(row["reason"]),
                                    text(row["text"])));
}

// Neighbours of this switch in the jobs' trees.
void add_tree(Lines &lines, const Sample &now) {
    Lines found;
    for (const json &job : now.jobs) {
        const std::string name = job_name(job["job"]);
        const json ups = job["route"].is_null() ? json::array() : job["route"]["ports"];
        for (const json &up : ups)
            found.push_back(fmt::format("{:>6} above {} through {}{}", name, text(up["address"]), text(up["port"]),
                                        up["up"].get<bool>() ? "" : ", not in use"));
        if (ups.empty() && job["parent"] != "none")
            found.push_back(fmt::format("{:>6} above {} through {}", name, text(job["parent"]), text(job["parent_port"])));
        for (const json &below : now.switches.at(name))
            found.push_back(fmt::format("{:>6} below {} through {}, rank {}", name, text(below["address"]), text(below["port"]),
                                        text(below["rank"])));
    }
    if (found.empty())
        return;
    lines.insert(lines.end(), {"", "TREE"});
    lines.insert(lines.end(), found.begin(), found.end());
}

Lines frame(const Sample &before, const Sample &now) {
    const json &status = now.status;
    Lines lines = {
        fmt::format("inagg switch {} {}: agent {}, {} ports", text(status["address4"]), text(status["address6"]),
                    text(status["agent"]), status["ports"].size()),
        fmt::format("slots {} of {} in use, {} jobs", text(status["slots_used"]), text(status["slots"]), text(status["jobs"])),
        ""};
    add_jobs(lines, before, now);
    add_stragglers(lines, now);
    add_drops(lines, now);
    add_tree(lines, now);
    return lines;
}

// Of every job, also of none.
json rates_of(const Sample &before, const Sample &now) {
    json all = json::array();
    for (json row : now.stats) {
        const std::string job = job_name(row["job"]);
        for (const auto &[name, value] : row.items())
            if (name != "job")
                value = rate(before, now, job, name);
        all.push_back(row);
    }
    return all;
}

// The terminal as curses has it, until this goes.
class Screen {
public:
    Screen() {
        std::setlocale(LC_ALL, "");
        screen_ = newterm(nullptr, stdout, stdin);
        if (!screen_)
            throw inaggd::Error("top: there is no terminal that curses knows (TERM); --once prints plain text");
        cbreak();
        noecho();
        curs_set(0);
        keypad(stdscr, true);
    }
    ~Screen() {
        endwin();
        delscreen(screen_);
    }
    Screen(const Screen &) = delete;

    void show(const Lines &lines) {
        const int rows = std::max(getmaxy(stdscr) - 1, 1);
        first_ = std::clamp(first_, 0, std::max(static_cast<int>(lines.size()) - rows, 0));
        werase(stdscr);
        for (int row = 0; row < rows && first_ + row < static_cast<int>(lines.size()); row++)
            mvwaddnstr(stdscr, row, 0, lines[first_ + row].c_str(), getmaxx(stdscr));
        mvwaddnstr(stdscr, rows, 0, "q quits, arrows scroll", getmaxx(stdscr));
        wrefresh(stdscr);
    }

    // False when the user wants to go. Waits until `end` at most, or for a key.
    bool wait(Clock::time_point end) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
        wtimeout(stdscr, std::max(static_cast<int>(left.count()), 0));
        const int key = wgetch(stdscr);
        if (key == ERR && Clock::now() < end && at_end())
            return false;
        if (key == KEY_DOWN || key == 'j')
            first_++;
        if (key == KEY_UP || key == 'k')
            first_--;
        return key != 'q';
    }

private:
    // Nobody will press a key any more: the terminal has gone.
    static bool at_end() {
        pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
        return poll(&input, 1, 0) > 0;
    }

    SCREEN *screen_ = nullptr;
    int first_ = 0; // line at the top
};

} // namespace

void watch_switch(const Where &where, Seconds interval) {
    inaggd::Waits waits;
    Sample before = sample(where, waits), now = before; // or say now that there is no switch
    const auto period = std::chrono::duration_cast<Clock::duration>(interval);
    Clock::time_point looked = now.at;
    Screen screen;
    screen.show(frame(before, now));
    while (screen.wait(std::min(now.at + period, looked + look_period))) {
        if (Clock::now() >= now.at + period) {
            before = std::move(now);
            now = sample(where, waits);
            looked = now.at;
        } else if (Clock::now() >= looked + look_period) {
            waits.look_again();
            looked = Clock::now();
        }
        screen.show(frame(before, now));
    }
}

void print_switch(const Where &where, Seconds interval, bool as_json) {
    inaggd::Waits waits;
    const Sample before = sample(where, waits);
    const auto end = before.at + std::chrono::duration_cast<Clock::duration>(interval);
    for (auto next = before.at + look_period; next < end; next = std::max(next + look_period, Clock::now())) {
        std::this_thread::sleep_until(next);
        waits.look_again();
    }
    std::this_thread::sleep_until(end);
    const Sample now = sample(where, waits);
    if (as_json) {
        const double seconds = Seconds(now.at - before.at).count();
        const json value = {{"seconds", seconds}, {"status", now.status}, {"jobs", now.jobs}, {"rates", rates_of(before, now)},
                            {"drops", now.drops}, {"waits", now.waits}};
        print_json(value);
        return;
    }
    for (const std::string &line : frame(before, now))
        fmt::print("{}\n", line);
}

} // namespace inaggctl
