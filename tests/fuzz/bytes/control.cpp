// SPDX-License-Identifier: BSD-2-Clause
// The agent's control socket: whatever a client sends, it gets one JSON object for a message, and others are still served.
#include "bytes.hpp"

#include "control.hpp"
#include "job_spec.hpp"

#include <spdlog/spdlog.h>

#include <filesystem>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace {

using fuzz::need;
using nlohmann::json;

// What inaggd does with text in a request.
json answer(const json &request) {
    const std::string name = request.at("command");
    if (name == "job add")
        return {{"job", inaggd::parse_job_spec(request.at("spec")).number}};
    if (name == "job del")
        return {{"job", request.at("job").get<int64_t>()}};
    return json::object();
}

class Daemon {
public:
    Daemon() : server_(folder_ + "/socket", answer) { spdlog::set_level(spdlog::level::off); }
    ~Daemon() { std::filesystem::remove_all(folder_); }

    inaggd::Fd client() {
        inaggd::Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
        (folder_ + "/socket").copy(address.sun_path, sizeof address.sun_path - 1);
        need(connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof address) == 0, "the socket takes clients");
        serve();
        return fd;
    }
    // All that is there.
    void serve() {
        for (;;) {
            std::vector<pollfd> fds;
            server_.add_to(fds);
            if (poll(fds.data(), fds.size(), 0) <= 0)
                return;
            for (const pollfd &ready : fds)
                if (ready.revents)
                    server_.serve(ready.fd);
        }
    }

private:
    static std::string make_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "fuzz-control-XXXXXX").string();
        need(mkdtemp(name.data()) != nullptr, "there is a place for the socket");
        return name;
    }

    std::string folder_ = make_folder();
    inaggd::ControlServer server_;
};

json ask(Daemon &daemon, const inaggd::Fd &client, const std::string &message) {
    need(send(client.get(), message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size()),
         "messages go out");
    daemon.serve();
    std::vector<char> reply(1 << 17);
    const ssize_t bytes = recv(client.get(), reply.data(), reply.size(), MSG_DONTWAIT);
    need(bytes > 0, "a message has an answer");
    json value = json::parse(reply.begin(), reply.begin() + bytes, nullptr, false);
    need(value.is_object() && value.contains("ok") && value["ok"].is_boolean(), "an answer says whether all is well");
    need(value["ok"] || (value.contains("error") && !value["error"].get<std::string>().empty()), "who is refused is told why");
    return value;
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Daemon daemon;
    if (!size)
        return 0; // an empty message says that a client has gone
    {
        const inaggd::Fd client = daemon.client();
        ask(daemon, client, std::string(data, data + size));
    }
    daemon.serve();
    const inaggd::Fd other = daemon.client();
    need(ask(daemon, other, R"({"command":"job add","spec":"7:size=2"})")["ok"] == true, "others are still served");
    return 0;
}
