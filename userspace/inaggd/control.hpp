// SPDX-License-Identifier: BSD-2-Clause
// The control socket: SOCK_SEQPACKET, one JSON object a message, one answer each.
#pragma once

#include "common/fd.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

struct pollfd;

namespace inaggd {

using inagg::Fd;

class ControlServer {
public:
    using Handler = std::function<nlohmann::json(const nlohmann::json &request)>;

    // Listens at `path`; only root and this process's user are heard.
    ControlServer(std::string path, Handler handler);
    ~ControlServer();
    // Descriptors to wait for, and what to do when one is readable.
    void add_to(std::vector<pollfd> &poll) const;
    void serve(int fd);

private:
    void accept_client();
    bool answer(int fd);

    std::string path_;
    Handler handler_;
    Fd listener_;
    std::vector<Fd> clients_;
};

// Throws Error if a socket's path cannot be as long.
void need_socket_path(const std::string &path);

// Is there, or was there at last, an agent that inaggctl asks instead of reading pinned maps?
bool is_asked(const std::string &run_dir);
// Asks a running inaggd. Throws Error when there is none, or when it says no.
nlohmann::json ask_daemon(const std::string &run_dir, const nlohmann::json &request);
// Returns when the program that takes over from the one that has given `reply` answers commands; throws if it does not.
void await_reload(const std::string &run_dir, const nlohmann::json &reply);
bool daemon_answers(const std::string &run_dir);

} // namespace inaggd
