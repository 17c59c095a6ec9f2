// SPDX-License-Identifier: BSD-2-Clause
// File descriptors, network namespaces and child processes.
#pragma once

#include "common/fd.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace netns {

// This program's file. The first call comes before this process has mounts of its own, from which it may not be seen.
const std::filesystem::path &own_program();

// Throws std::system_error for the current errno.
[[noreturn]] void fail(const std::string &what);

using inagg::Fd;

struct Pipe {
    Pipe();
    Fd read, write;
};

// A network namespace. Nothing names it: it lives as long as a descriptor or a process holds it.
class Namespace {
public:
    static Namespace current();
    // Makes a new one; the caller stays where it is.
    static Namespace create();
    // The one at a path().
    static Namespace open(const std::string &path);
    void enter() const;
    // For `ip link ... netns PATH`.
    std::string path() const;

private:
    explicit Namespace(Fd fd) : fd_(std::move(fd)) {}
    Fd fd_;
};

// Enters a namespace and returns when the scope ends.
class Inside {
public:
    explicit Inside(const Namespace &space) : home_(Namespace::current()) { space.enter(); }
    ~Inside() { home_.enter(); }

private:
    Namespace home_;
};

struct Spawn {
    const Namespace *space;
    std::vector<std::string> command;
    std::vector<std::string> environment = {}; // NAME=value, beside the inherited ones
    int input = -1;                            // -1: /dev/null
    int output = -1;                           // -1: inherited
    int error = -1;
    int keep = -1;              // a further descriptor that the command inherits
    std::string host_name = {}; // that it sees; empty: the machine's
};

// Becomes a command, where it is: `space` is for spawn(). What cannot be executed ends with 127 or 126 and a message, as
// in a shell.
[[noreturn]] void execute(const Spawn &spec);

// Starts a command in its namespace and in a process group of its own.
pid_t spawn(const Spawn &spec);

// Starts a function, which does not return, in a process and process group of its own. `name` is for what it
// complains of.
pid_t start_process(const Namespace &space, const std::string &name, const std::function<void()> &body);

// 0 .. 255 as a shell reports it: 128 + signal for a killed process.
int exit_code(int wait_status);

// Runs `command` to its end with `input` as standard input. Throws with what it printed if it fails.
void run_checked(const Namespace &space, const std::vector<std::string> &command, const std::string &input = "");

// Runs ip's `commands`, one a line.
void ip_batch(const Namespace &space, const std::string &commands);

// The same for bridge's.
void bridge_batch(const Namespace &space, const std::string &commands);

} // namespace netns
