// SPDX-License-Identifier: BSD-2-Clause
#include "sockets.hpp"

#include "error.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <fstream>
#include <sstream>

namespace inaggctl {

namespace {

constexpr const char *path = "/proc/net/inagg";

// "key value key value …": numbers as numbers.
json pairs(std::istringstream &line) {
    json object = json::object();
    std::string key, value;
    while (line >> key >> value) {
        const bool number = value.find_first_not_of("0123456789") == std::string::npos;
        object[key] = number ? json(std::stoull(value)) : json(value);
    }
    return object;
}

// A socket's line; its keys "dropped_REASON" become the object "drops".
json socket(std::istringstream line) {
    json object = json::object(), drops = json::object();
    const json all = pairs(line);
    constexpr std::string_view prefix = "dropped_";
    for (const auto &[key, value] : all.items()) {
        if (key.starts_with(prefix))
            drops[key.substr(prefix.size())] = value;
        else
            object[key] = value;
    }
    object["drops"] = drops;
    return object;
}

// [::ffff:10.0.0.1]:12000 is 10.0.0.1:12000 to people.
std::string endpoint(const json &text) {
    std::string s = text.get<std::string>();
    if (s.starts_with("[::ffff:"))
        s.erase(s.find(']'), 1).erase(0, 8);
    return s;
}

} // namespace

json parse_sockets(std::istream &proc) {
    json result;
    result["drops"] = json::array();
    result["sockets"] = json::array();
    std::string text, word;
    while (std::getline(proc, text)) {
        std::istringstream line(text);
        line >> word;
        if (word == "inagg") {
            std::string version;
            line >> version;
            result["version"] = version;
            result.update(pairs(line));
        } else if (word == "dropped") {
            uint64_t packets = 0;
            line >> packets;
            result["drops"].push_back({{"packets", packets}, {"text", text.substr(text.find(": ") + 2)}});
        } else if (word == "socket") {
            result["sockets"].push_back(socket(std::istringstream(text)));
        }
    }
    return result;
}

json read_sockets() {
    std::ifstream proc(path);
    if (!proc)
        throw inaggd::Error("{}: there is no AF_INAGG here: load the module with `modprobe af_inagg`", path);
    return parse_sockets(proc);
}

void print_sockets(const json &state) {
    fmt::print("AF_INAGG {}, family {}, {} of {} bytes in use\n", state["version"].get<std::string>(), state["family"].dump(),
               state["memory"].dump(), state["limit"].dump());
    for (const json &drop : state["drops"])
        fmt::print("dropped {}: {}\n", drop["packets"].dump(), drop["text"].get<std::string>());
    fmt::print("{:<8} {:>6} {:>9} {:<24} {:<24} {:>7} {:>10} {:>8}\n", "STATE", "JOB", "RANK", "LOCAL", "SWITCH", "TENSORS",
               "BLOCKS", "RESENT");
    for (const json &s : state["sockets"]) {
        fmt::print("{:<8} {:>6} {:>9} {:<24} {:<24} {:>7} {:>10} {:>8}\n", s["state"].get<std::string>(), s["job"].dump(),
                   s["rank"].dump() + " of " + s["size"].dump(), endpoint(s["local"]), endpoint(s["switch"]), s["tensors"].dump(),
                   s["blocks"].dump(), s["retransmissions"].dump());
        for (const auto &[reason, packets] : s["drops"].items())
            fmt::print("         dropped {}: {}\n", packets.dump(), reason);
    }
}

} // namespace inaggctl
