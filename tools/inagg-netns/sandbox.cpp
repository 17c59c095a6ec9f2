// SPDX-License-Identifier: BSD-2-Clause
#include "sandbox.hpp"

#include "process.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

namespace netns {
namespace {

// nohup, and a shell that starts a job in the background, have us ignore some. Blocked ones would come all the same.
bool is_ignored(int signal) {
    struct sigaction now {};
    return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

sigset_t forwarded_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        if (!is_ignored(signal)) {
            sigaddset(&set, signal);
        }
    }
    return set;
}

void mount_fresh(const char *type, const char *where, const char *data = nullptr) {
    if (mount(type, where, type, MS_NOSUID | MS_NODEV, data) != 0) {
        fail(fmt::format("cannot mount {} on {}", type, where));
    }
}

void private_mounts() {
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        fail("cannot make mounts private");
    }
    mount_fresh("proc", "/proc");
    mount_fresh("bpf", "/sys/fs/bpf", "mode=0700");
    mount_fresh("tmpfs", "/run", "mode=0755");
    mkdir(scratch, 0755);
}

// Process 1. `alive` is a pipe that the launcher holds open: it tells whether it died before prctl().
[[noreturn]] void first_process(const std::function<int()> &body, Pipe &alive) {
    int result = 125;
    try {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alive.write.reset();
        char byte;
        if (read(alive.read.get(), &byte, 1) != 1) {
            _exit(125);
        }
        setsid(); // a terminal's Ctrl-C reaches the launcher only, which passes it on
        private_mounts();
        result = body();
    } catch (const std::invalid_argument &error) { // what the command line names is not in the network
        fmt::print(stderr, "inagg-netns: {}\n", error.what());
        result = 2;
    } catch (const std::exception &error) {
        fmt::print(stderr, "inagg-netns: {}\n", error.what());
    }
    std::fflush(nullptr);
    _exit(result);
}

// Passes signals on until process 1 has ended.
int wait_for(pid_t first, const sigset_t &signals) {
    bool warned = false;
    for (;;) {
        siginfo_t info;
        const int signal = sigwaitinfo(&signals, &info);
        if (signal > 0 && signal != SIGCHLD) {
            kill(first, warned ? SIGKILL : signal);
            warned = true;
        }
        int status = 0;
        if (waitpid(first, &status, WNOHANG) == first) {
            return exit_code(status);
        }
    }
}

} // namespace

int run_isolated(const std::function<int()> &body) {
    const sigset_t signals = forwarded_signals();
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID) != 0) {
        fail("cannot create namespaces");
    }
    Pipe alive;
    const pid_t first = fork();
    if (first < 0) {
        fail("fork");
    }
    if (first == 0) {
        first_process(body, alive);
    }
    alive.read.reset();
    if (write(alive.write.get(), "", 1) != 1) {
        fail("the run's first process ended early");
    }
    return wait_for(first, signals);
}

} // namespace netns
