// SPDX-License-Identifier: BSD-2-Clause
#include "p4/dialogue.hpp"

#include "error.hpp"

#include <spdlog/spdlog.h>

#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

extern char **environ;

namespace inaggd::p4 {
namespace {

using inagg::Fd;

// Both ends, closed in children.
std::array<Fd, 2> make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        throw Error("pipe: {}", system_text(errno));
    return {Fd(ends[0]), Fd(ends[1])};
}

} // namespace

Dialogue::Dialogue(Partner partner) : partner_(std::move(partner)) {
    signal(SIGPIPE, SIG_IGN); // its end is an error
    auto [in_reader, in_writer] = make_pipe();
    auto [out_reader, out_writer] = make_pipe();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in_reader.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_writer.get(), STDOUT_FILENO);
    if (partner_.hears_errors)
        posix_spawn_file_actions_adddup2(&actions, out_writer.get(), STDERR_FILENO);
    std::vector<std::string> command = partner_.command;
    std::vector<char *> argv;
    for (std::string &word : command)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    const int error = posix_spawnp(&child_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        throw Error("{}: {}; it comes with {}", command[0], system_text(error), partner_.comes_with);
    to_ = std::move(in_writer);
    from_ = std::move(out_reader);
}

// Nothing is under way, or the switch does not answer: then the program would wait for that.
Dialogue::~Dialogue() {
    to_.reset();
    from_.reset();
    if (child_ > 0) {
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
    }
}

void Dialogue::say(const std::string &lines) {
    if (write(to_.get(), lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
        throw Error("{} is out of reach, since {} has ended: {}", partner_.name, partner_.command[0], system_text(errno));
}

std::string Dialogue::answer() {
    if (silent_) // what it says now answers something else
        throw Error("{} has not answered in time: start inaggd again", partner_.name);
    size_t end;
    while ((end = heard_.find(partner_.end)) == std::string::npos) {
        char buffer[65536];
        pollfd readable{.fd = from_.get(), .events = POLLIN, .revents = 0};
        silent_ = poll(&readable, 1, partner_.answer_ms) == 0;
        if (silent_)
            throw Error("{} has not answered for {} s", partner_.name, partner_.answer_ms / 1000);
        const ssize_t bytes = read(from_.get(), buffer, sizeof buffer);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0) {
            spdlog::debug("{} has ended: {}", partner_.command[0], heard_);
            throw Error("{} does not answer: start it, and then inaggd", partner_.name);
        }
        heard_.append(buffer, static_cast<size_t>(bytes));
    }
    std::string said = heard_.substr(0, end);
    heard_.erase(0, end + partner_.end.size());
    return said;
}

} // namespace inaggd::p4
