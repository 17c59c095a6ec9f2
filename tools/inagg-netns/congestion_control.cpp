// SPDX-License-Identifier: BSD-2-Clause
#include "congestion_control.hpp"

#include <cstring>
#include <memory>

#include <bpf/bpf.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "dctcp.skel.h"

namespace netns {
namespace {

// Debian 12's headers are those of Linux 6.1 and do not know these, of 6.4.
constexpr uint32_t map_has_link = 1 << 13;                         // BPF_F_LINK
constexpr auto struct_ops_link = static_cast<bpf_attach_type>(44); // BPF_STRUCT_OPS

bool choose(const Fd &socket, const char *name) {
    return setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, static_cast<socklen_t>(strlen(name))) == 0;
}

// Registered with the kernel as long as this lives. By a link, so that it goes with the process, however that ends.
class OwnDctcp {
public:
    OwnDctcp() : program_(dctcp_bpf__open(), dctcp_bpf__destroy) {
        if (!program_ || bpf_map__set_map_flags(program_->maps.dctcp, map_has_link) != 0 ||
            dctcp_bpf__load(program_.get()) != 0) {
            fail("the kernel's TCP has no DCTCP (modprobe tcp_dctcp), and to load one takes Linux 6.4");
        }
        if (!attach(program_->maps.dctcp) && errno != EEXIST) { // another run's is as good
            fail("cannot register DCTCP");
        }
    }

private:
    bool attach(const bpf_map *operations) {
        filled_ = bpf_map__attach_struct_ops(operations);
        if (!filled_ || bpf_link__fd(filled_) != bpf_map__fd(operations)) {
            return filled_; // libbpf since 1.2 makes the link itself
        }
        link_ = Fd(bpf_link_create(bpf_map__fd(operations), 0, struct_ops_link, nullptr));
        return static_cast<bool>(link_);
    }

    std::unique_ptr<dctcp_bpf, void (*)(dctcp_bpf *)> program_;
    bpf_link *filled_ = nullptr; // lives as long as the process
    Fd link_;
};

} // namespace

void use_cubic(const Fd &socket) {
    if (!choose(socket, "cubic")) {
        fail("TCP has no cubic");
    }
}

void use_dctcp(const Fd &socket) {
    if (choose(socket, "dctcp")) {
        return;
    }
    static const OwnDctcp registered;
    if (!choose(socket, "inagg_dctcp")) {
        fail("cannot use DCTCP");
    }
}

} // namespace netns
