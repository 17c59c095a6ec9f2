// SPDX-License-Identifier: BSD-2-Clause
// A page for people: the switch, who is behind its ports, how fast its jobs are and who keeps them waiting.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>

class CivetServer;

namespace inaggd {

// Serves http://ADDRESS:PORT/ and, which the page reads each second, /state.json. Nothing can be changed there. Its threads only
// carry text, as those of MetricsServer: the state is read by whoever calls serve().
class WebServer {
public:
    // `where`: as http_address() leaves it. Throws Error, also if another program listens there. Threads that it starts
    // have the signals blocked that the caller has.
    WebServer(const std::string &where, std::function<nlohmann::ordered_json()> state);
    ~WebServer();
    // A descriptor to wait for, and what to do when it is readable; otherwise it does nothing.
    int fd() const;
    void serve();

private:
    class Handlers;

    std::function<nlohmann::ordered_json()> state_;
    std::unique_ptr<Handlers> handlers_;
    std::unique_ptr<CivetServer> server_; // goes first
};

} // namespace inaggd
