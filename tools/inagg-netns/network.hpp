// SPDX-License-Identifier: BSD-2-Clause
// The run's network: a switch, hosts, and what lies between them.
#pragma once

#include "link.hpp"
#include "options.hpp"
#include "pass.hpp"
#include "process.hpp"

#include <optional>
#include <string>
#include <vector>

namespace netns {

inline constexpr const char *switch_address4 = "10.77.0.1";
inline constexpr const char *switch_address6 = "fd77::1";

// Builds the network in the current network namespace, which becomes the switch's:
//
//   star    host 0: eth0 -- p0 \                    bridge   host 0: eth0 -- w0 \                          .
//           host 1: eth0 -- p1 -- br0 (switch)               host 1: eth0 -- w1 -- rack0 -- p0 -- br0
//
// With impairments each host's link passes through the LinkSpace.
class Network {
public:
    explicit Network(const Options &options);

    const Namespace &switch_space() const { return switch_; }
    const Namespace &host_space(unsigned host) const { return hosts_[host]; }
    // Ports of the switch: p0, p1, ...
    const std::vector<std::string> &ports() const { return ports_; }
    // Address of a host in the family that the ranks use.
    std::string host_address(unsigned host) const;
    std::string switch_address() const;
    // nullptr: links are perfect.
    LinkSpace *links() { return links_ ? &*links_ : nullptr; }

private:
    void build_bridge(const Namespace &space, const std::string &name);
    void build_host(unsigned host, const Namespace &fabric, const std::string &bridge,
                    const std::string &port);
    void introduce_neighbours();
    void accept_xdp_tx(const Namespace &space, const std::string &device);
    void set_offloads(const Namespace &space);
    void connect(const Namespace &here, const std::string &device, const Namespace &there,
                 const std::string &peer);

    const Options &options_;
    Namespace switch_;
    std::vector<Namespace> hosts_;
    std::vector<Namespace> between_; // the rack of topology bridge
    std::vector<std::string> ports_;
    std::optional<LinkSpace> links_;
    std::optional<PassProgram> pass_; // with a switch only
};

} // namespace netns
