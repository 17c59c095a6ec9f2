// SPDX-License-Identifier: BSD-2-Clause
#include "process.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

namespace netns {

const std::filesystem::path &own_program() {
    static const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe");
    return path;
}

void fail(const std::string &what) { throw std::system_error(errno, std::generic_category(), what); }

Pipe::Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        fail("pipe");
    }
    read = Fd(ends[0]);
    write = Fd(ends[1]);
}

Namespace Namespace::current() {
    Fd fd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!fd) {
        fail("/proc/self/ns/net");
    }
    return Namespace(std::move(fd));
}

Namespace Namespace::open(const std::string &path) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) {
        fail(path);
    }
    return Namespace(std::move(fd));
}

Namespace Namespace::create() {
    const Namespace home = current();
    if (unshare(CLONE_NEWNET) != 0) {
        fail("cannot create a network namespace");
    }
    Namespace made = current();
    home.enter();
    return made;
}

void Namespace::enter() const {
    if (setns(fd_.get(), CLONE_NEWNET) != 0) {
        fail("cannot enter a network namespace");
    }
}

std::string Namespace::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_.get()); }

namespace {

// Puts `fd` (or /dev/null for standard input) in the place of a standard descriptor.
void redirect(int fd, int target) {
    if (fd < 0 && target == STDIN_FILENO) {
        fd = open("/dev/null", O_RDONLY);
    }
    if (fd >= 0 && dup2(fd, target) < 0) {
        fail("dup2");
    }
}

} // namespace

void execute(const Spawn &spec) {
    redirect(spec.input, STDIN_FILENO);
    redirect(spec.output, STDOUT_FILENO);
    redirect(spec.error, STDERR_FILENO);
    if (spec.keep >= 0) {
        fcntl(spec.keep, F_SETFD, 0);
    }
    if (!spec.host_name.empty() &&
        (unshare(CLONE_NEWUTS) != 0 || sethostname(spec.host_name.c_str(), spec.host_name.size()) != 0)) {
        fail("cannot name a host");
    }
    for (const std::string &variable : spec.environment) {
        putenv(const_cast<char *>(variable.c_str()));
    }
    std::vector<char *> arguments;
    for (const std::string &argument : spec.command) {
        arguments.push_back(const_cast<char *>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    fmt::print(stderr, "inagg-netns: cannot run '{}': {}\n", spec.command[0], std::generic_category().message(error));
    _exit(error == ENOENT ? 127 : 126);
}

pid_t spawn(const Spawn &spec) {
    return start_process(*spec.space, spec.command[0], [&spec] { execute(spec); });
}

pid_t start_process(const Namespace &space, const std::string &name, const std::function<void()> &body) {
    const pid_t pid = fork();
    if (pid < 0) {
        fail("fork");
    }
    if (pid == 0) {
        try {
            setpgid(0, 0);
            sigset_t none;
            sigemptyset(&none);
            sigprocmask(SIG_SETMASK, &none, nullptr);
            signal(SIGPIPE, SIG_DFL);
            space.enter();
            body();
        } catch (const std::exception &error) {
            fmt::print(stderr, "inagg-netns: {}: {}\n", name, error.what());
        }
        _exit(125);
    }
    setpgid(pid, pid); // both sides do it, so that it is done when either goes on
    return pid;
}

int exit_code(int wait_status) { return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status); }

namespace {

// A file in memory: unlike a pipe it never blocks whoever fills it.
Fd memory_file(const std::string &content = "") {
    Fd file(memfd_create("inagg-netns", MFD_CLOEXEC));
    if (!file || pwrite(file.get(), content.data(), content.size(), 0) != static_cast<ssize_t>(content.size())) {
        fail("memfd_create");
    }
    return file;
}

} // namespace

void run_checked(const Namespace &space, const std::vector<std::string> &command, const std::string &input) {
    const Fd in = memory_file(input), out = memory_file();
    const pid_t pid = spawn({&space, command, {}, in.get(), out.get(), out.get()});
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (exit_code(status) != 0) {
        std::string said(4096, '\0');
        said.resize(std::max<ssize_t>(pread(out.get(), said.data(), said.size(), 0), 0));
        throw std::runtime_error(
            fmt::format("'{}' failed with status {}: {}{}", fmt::join(command, " "), exit_code(status), said, input));
    }
}

void ip_batch(const Namespace &space, const std::string &commands) { run_checked(space, {"ip", "-batch", "-"}, commands); }

void bridge_batch(const Namespace &space, const std::string &commands) {
    run_checked(space, {"bridge", "-batch", "-"}, commands);
}

} // namespace netns
