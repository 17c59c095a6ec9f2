// SPDX-License-Identifier: BSD-2-Clause
#include "control.hpp"

#include "error.hpp"

#include "maps.hpp"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>

namespace inaggd {
namespace {

constexpr size_t max_clients = 16, max_message = 64 * 1024;

sockaddr_un unix_address(const std::string &path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        throw Error("{}: path of a socket is limited to {} bytes; choose a shorter --run-dir", path, sizeof address.sun_path - 1);
    std::copy(path.begin(), path.end(), address.sun_path);
    return address;
}

Fd new_socket() {
    Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!fd)
        throw Error("control socket: {}", system_text(errno));
    return fd;
}

Fd connect_to(const std::string &run_dir) {
    std::string path = run_dir + "/" + (is_asked(run_dir) ? asked_socket_name : control_socket_name);
    Fd fd = new_socket();
    timeval limit{.tv_sec = 10, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); // of connect(), too
    sockaddr_un address = unix_address(path);
    if (connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof address))
        throw Error("{}: {}; is inaggd running? (--run-dir names its directory)", path, system_text(errno));
    return fd;
}

} // namespace

ControlServer::ControlServer(std::string path, Handler handler)
    : path_(std::move(path)), handler_(std::move(handler)), listener_(new_socket()) {
    unlink(path_.c_str()); // of an agent that was killed: the caller holds the directory's lock
    sockaddr_un address = unix_address(path_);
    mode_t mask = umask(0177);
    int result = bind(listener_.get(), reinterpret_cast<sockaddr *>(&address), sizeof address);
    umask(mask);
    if (result || listen(listener_.get(), max_clients))
        throw Error("{}: {}", path_, system_text(errno));
}

ControlServer::~ControlServer() { unlink(path_.c_str()); }

void ControlServer::add_to(std::vector<pollfd> &poll) const {
    poll.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
    for (const Fd &client : clients_)
        poll.push_back({.fd = client.get(), .events = POLLIN, .revents = 0});
}

void ControlServer::serve(int fd) {
    if (fd == listener_.get())
        return accept_client();
    auto client = std::find_if(clients_.begin(), clients_.end(), [&](const Fd &c) { return c.get() == fd; });
    if (client != clients_.end() && !answer(fd))
        clients_.erase(client);
}

void ControlServer::accept_client() {
    Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ucred peer{};
    socklen_t length = sizeof peer;
    if (!client || getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length))
        return;
    if ((peer.uid != 0 && peer.uid != geteuid()) || clients_.size() >= max_clients) {
        spdlog::warn("control: user {} (process {}) is turned away", peer.uid, peer.pid);
        return;
    }
    clients_.push_back(std::move(client));
}

// False when the client has gone.
bool ControlServer::answer(int fd) {
    std::vector<char> message(max_message);
    ssize_t bytes = recv(fd, message.data(), message.size(), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (bytes <= 0)
        return false;
    nlohmann::json reply;
    try {
        reply = handler_(nlohmann::json::parse(message.begin(), message.begin() + bytes));
        reply["ok"] = true;
    } catch (const std::exception &error) {
        reply = {{"ok", false}, {"error", error.what()}};
    }
    std::string text = reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

void need_socket_path(const std::string &path) { unix_address(path); }

bool is_asked(const std::string &run_dir) { return std::filesystem::exists(run_dir + "/" + asked_socket_name); }

nlohmann::json ask_daemon(const std::string &run_dir, const nlohmann::json &request) {
    Fd fd = connect_to(run_dir);
    std::string text = request.dump();
    std::vector<char> message(max_message);
    if (send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0)
        throw Error("inaggd: {}", system_text(errno));
    ssize_t bytes = recv(fd.get(), message.data(), message.size(), 0);
    if (bytes <= 0)
        throw Error("inaggd does not answer: {}", bytes ? system_text(errno) : "connection closed");
    nlohmann::json reply = nlohmann::json::parse(message.begin(), message.begin() + bytes);
    if (!reply.value("ok", false))
        throw Error("{}", reply.value("error", "inaggd refuses without a reason"));
    return reply;
}

void await_reload(const std::string &run_dir, const nlohmann::json &reply) {
    using std::chrono::steady_clock;
    constexpr std::chrono::seconds limit(60); // it loads and verifies its programs first
    constexpr int pause_ms = 50;
    if (!reply.contains("pid"))
        return; // an agent of an earlier version
    const Fd process(static_cast<int>(syscall(SYS_pidfd_open, reply.at("pid").get<pid_t>(), 0)));
    pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
    for (const auto end = steady_clock::now() + limit; steady_clock::now() < end;) {
        if (!process || poll(&ended, 1, pause_ms) > 0)
            throw Error("inaggd has ended: its log says why (journalctl -u inaggd)");
        try {
            if (ask_daemon(run_dir, {{"command", "which"}}).at("started") != reply.at("started"))
                return;
        } catch (const Error &) { // it does not listen yet
        }
    }
    throw Error("inaggd has not come back within {} s: its log says why (journalctl -u inaggd)", limit.count());
}

bool daemon_answers(const std::string &run_dir) {
    try {
        connect_to(run_dir);
        return true;
    } catch (const Error &) {
        return false;
    }
}

} // namespace inaggd
