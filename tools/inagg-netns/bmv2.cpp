// SPDX-License-Identifier: BSD-2-Clause
#include "bmv2.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace netns {
namespace {

constexpr uint16_t thrift_port = 9090;
constexpr unsigned cpu_port = 255; // behind those of the most hosts

// Beside this program, built or installed; as it was found first, before other mounts could hide it.
std::filesystem::path p4_program(const std::string &algorithm) {
    static const auto folder = own_program().parent_path().parent_path() / "share/inagg/p4";
    return folder / (algorithm + ".json");
}

bool is_on_path(const std::string &program) {
    std::istringstream folders(std::getenv("PATH"));
    for (std::string folder; std::getline(folders, folder, ':');) {
        if (access((folder + "/" + program).c_str(), X_OK) == 0) {
            return true;
        }
    }
    return false;
}

// p0 is port 1, and so on: BMv2 may have a port 0, inaggd does not.
unsigned number_of(size_t index) { return static_cast<unsigned>(index) + 1; }

} // namespace

void need_bmv2(const std::string &algorithm) {
    for (const char *program : {"simple_switch", "simple_switch_CLI"}) {
        if (!is_on_path(program)) {
            throw std::runtime_error(
                fmt::format("--switch bmv2: {} is not on the PATH: install BMv2 (github.com/p4lang/behavioral-model)", program));
        }
    }
    if (!std::filesystem::exists(p4_program(algorithm))) {
        throw std::runtime_error(fmt::format("--switch bmv2: {} is not there: put p4c's p4c-bm2-ss on the PATH, and build again "
                                             "(cmake -B BUILD && cmake --build BUILD)",
                                             p4_program(algorithm).string()));
    }
}

std::vector<std::string> bmv2_command(const Switch &node, const std::string &algorithm) {
    std::vector<std::string> command = {"simple_switch", "--thrift-port", std::to_string(thrift_port), "--notifications-addr",
                                        "ipc:///run/bmv2-notifications.ipc"};
    for (size_t i = 0; i < node.ports.size(); ++i) {
        command.insert(command.end(), {"-i", fmt::format("{}@{}", number_of(i), node.ports[i])});
    }
    command.insert(command.end(), {"-i", fmt::format("{}@{}", cpu_port, cpu_peer), p4_program(algorithm).string()});
    return command;
}

std::vector<std::string> bmv2_agent_options(const Switch &node) {
    std::vector<std::string> options = {"--bmv2", std::to_string(thrift_port), "--cpu-port",
                                        fmt::format("{}={}", cpu_device, cpu_port)};
    for (size_t i = 0; i < node.ports.size(); ++i) {
        options.insert(options.end(), {"--port", fmt::format("{}={}", node.ports[i], number_of(i))});
    }
    return options;
}

bool bmv2_answers(const Switch &node) {
    const Inside inside(node.space);
    const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(thrift_port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd && connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof address) == 0;
}

} // namespace netns
