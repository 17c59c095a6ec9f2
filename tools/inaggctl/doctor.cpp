// SPDX-License-Identifier: BSD-2-Clause
#include "doctor.hpp"

#include "common/fd.hpp"
#include "error.hpp"
#include "findings.hpp"
#include "links.hpp"
#include "maps.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/core.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/magic.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace inaggctl {
namespace {

using inaggd::Fd;
using inaggd::system_text;

std::optional<std::string> first_line(const std::string &path) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line))
        return std::nullopt;
    return line;
}

// Effective capabilities of this process, as /proc writes them.
uint64_t capabilities() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("CapEff:"))
            return std::stoull(line.substr(7), nullptr, 16);
    return 0;
}

constexpr int net_admin = 12, net_raw = 13, sys_admin = 21, perfmon = 38, bpf = 39; // include/uapi/linux/capability.h

// CAP_SYS_ADMIN stands in for the two that were split off from it.
bool holds(int capability) {
    uint64_t held = capabilities();
    bool split_off = capability == bpf || capability == perfmon;
    return (held >> capability & 1) || (split_off && (held >> sys_admin & 1));
}

json check_privileges(const std::string &user, const char *otherwise, const std::vector<std::pair<int, std::string>> &needed) {
    std::string all, lacking;
    for (const auto &[capability, name] : needed) {
        all += (all.empty() ? "" : ", ") + name;
        if (!holds(capability))
            lacking += (lacking.empty() ? "" : ", ") + name;
    }
    return judge("privileges: " + user, lacking.empty(), otherwise, lacking.empty() ? all : "without " + lacking,
                 "run as root, or use transport udp on a worker: it needs none");
}

std::string kernel_release() {
    utsname name{};
    uname(&name);
    return name.release;
}

json check_kernel() {
    const std::string release = kernel_release();
    int major = 0, minor = 0;
    bool known = std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2;
    bool recent = known && (major > 6 || (major == 6 && minor >= 1));
    return judge("kernel", recent, "missing", release, "inagg is made for Linux 6.1 or later");
}

// A feature that only the kernel can tell. Without privileges libbpf takes the refusal for a no.
json check_probe(const std::string &check, int result, const std::string &fix) {
    if (!holds(bpf) || !holds(net_admin))
        return finding(check, "warn", "cannot tell without CAP_BPF and CAP_NET_ADMIN", "run inaggctl doctor as root");
    if (result < 0)
        return finding(check, "warn", "cannot be probed: " + system_text(result), "run inaggctl doctor as root");
    return judge(check, result > 0, "missing", result > 0 ? "available" : "not in this kernel", fix);
}

json check_bpffs(const std::string &dir) {
    std::string parent = std::filesystem::path(dir).parent_path();
    struct statfs info {};
    bool good = statfs(parent.c_str(), &info) == 0 && static_cast<unsigned long>(info.f_type) == BPF_FS_MAGIC;
    return judge("bpffs", good, "missing", parent + (good ? " is mounted" : " is not a bpf file system"),
                 "mount -t bpf bpf /sys/fs/bpf");
}

// The smallest XDP program. An empty Fd tells why in errno.
Fd load_pass_program() {
    const bpf_insn pass[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
                             {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
    LIBBPF_OPTS(bpf_prog_load_opts, options, .prog_flags = BPF_F_XDP_HAS_FRAGS);
    int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "inagg_doctor", "GPL", pass, std::size(pass), &options);
    return Fd(fd < 0 ? -1 : fd);
}

// Asks the kernel for a program's machine code: the sysctl is not visible in network namespaces.
json check_jit() {
    Fd program = load_pass_program();
    bpf_prog_info info{};
    uint32_t length = sizeof info;
    if (!program || bpf_obj_get_info_by_fd(program.get(), &info, &length))
        return finding("JIT", "warn", "cannot be probed: " + system_text(errno), "run inaggctl doctor as root");
    return judge("JIT", info.jited_prog_len > 0, "warn",
                 info.jited_prog_len ? "programs are compiled" : "programs are interpreted, many times slower",
                 "sysctl net.core.bpf_jit_enable=1");
}

json check_io_uring() {
    auto value = first_line("/proc/sys/kernel/io_uring_disabled");
    if (!value)
        return finding("io_uring", "ok", "not restricted by this kernel");
    return judge("io_uring", *value == "0", "warn", "kernel.io_uring_disabled = " + *value,
                 "the udp transport uses io_uring: sysctl kernel.io_uring_disabled=0");
}

json check_af_xdp() {
    Fd fd(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
    bool lacks = !fd && (errno == EAFNOSUPPORT || errno == ESOCKTNOSUPPORT);
    if (fd)
        return finding("AF_XDP", "ok", "available");
    return finding("AF_XDP", lacks ? "missing" : "warn", system_text(errno),
                   lacks ? "the afxdp transport needs a kernel with CONFIG_XDP_SOCKETS"
                         : "needs CAP_NET_RAW: run as root for the afxdp transport");
}

// DKMS has the module's source, but has not built it for the kernel that runs, as after an update without headers.
bool is_left_behind(const std::string &release) {
    const std::filesystem::path module = "/var/lib/dkms/inagg"; // with a link "kernel-RELEASE-MACHINE" for each
    std::error_code ignored;
    if (!std::filesystem::exists(module, ignored))
        return false;
    const std::filesystem::directory_iterator entries(module, ignored);
    return std::none_of(begin(entries), end(entries), [&](const auto &entry) {
        return entry.path().filename().string().starts_with("kernel-" + release + "-");
    });
}

json check_af_inagg() {
    const std::string release = kernel_release();
    if (const auto line = first_line("/proc/net/inagg"))
        return finding("AF_INAGG", "ok", *line);
    if (is_left_behind(release))
        return finding("AF_INAGG", "warn", "DKMS has not built its module for " + release,
                       "a new kernel needs its headers: apt install linux-headers-" + release +
                           " && dkms autoinstall && "
                           "modprobe af_inagg");
    return finding("AF_INAGG", "warn", "no such address family",
                   "the kernel transport needs the module af_inagg: modprobe af_inagg");
}

json check_memlock() {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    bool plenty = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= (8u << 20);
    std::string detail = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} KiB", limit.rlim_cur / 1024);
    return judge("memlock", plenty, "warn", detail, "io_uring's and AF_XDP's buffers count against it: ulimit -l unlimited");
}

json check_program(const std::string &program, const std::string &purpose) {
    std::istringstream path(std::string(std::getenv("PATH") ? std::getenv("PATH") : "") + ":/usr/sbin:/sbin");
    for (std::string dir; std::getline(path, dir, ':');)
        if (access((dir + "/" + program).c_str(), X_OK) == 0)
            return finding(program, "ok", dir + "/" + program);
    return finding(program, "warn", "not found", purpose + ": apt install " + program);
}

// An on/off setting of an interface; nothing if it cannot be read.
std::optional<bool> ethtool_flag(const std::string &interface, uint32_t command) {
    Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ethtool_value value{.cmd = command, .data = 0};
    ifreq request{};
    std::copy_n(interface.begin(), std::min<size_t>(interface.size(), IFNAMSIZ - 1), request.ifr_name);
    request.ifr_data = reinterpret_cast<char *>(&value);
    if (ioctl(fd.get(), SIOCETHTOOL, &request))
        return std::nullopt;
    return value.data != 0;
}

std::string driver_of(const std::string &interface) {
    Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    ifreq request{};
    std::copy_n(interface.begin(), std::min<size_t>(interface.size(), IFNAMSIZ - 1), request.ifr_name);
    request.ifr_data = reinterpret_cast<char *>(&info);
    return ioctl(fd.get(), SIOCETHTOOL, &request) ? "unknown driver" : info.driver;
}

// How an XDP program is attached to the interface already: enum, XDP_ATTACHED_NONE if none is; and which.
bpf_xdp_query_opts attached(uint32_t ifindex) {
    LIBBPF_OPTS(bpf_xdp_query_opts, query);
    if (bpf_xdp_query(static_cast<int>(ifindex), 0, &query))
        query.attach_mode = XDP_ATTACHED_NONE;
    return query;
}

// "" if it has none, nullopt if this user may not know.
std::optional<std::string> program_name(uint32_t id) {
    Fd program(bpf_prog_get_fd_by_id(id));
    if (!program && errno == EPERM)
        return std::nullopt;
    bpf_prog_info info{};
    uint32_t length = sizeof info;
    return program && !bpf_obj_get_info_by_fd(program.get(), &info, &length) ? info.name : "";
}

// A port takes one program, and inaggd only takes over what is pinned in its directory. The loader of libxdp, which ranks
// use, has one that calls others.
json check_owner(const std::string &interface, uint32_t ifindex, const std::string &bpffs) {
    const std::string check = interface + ": other programs";
    const bpf_xdp_query_opts query = attached(ifindex);
    if (query.attach_mode == XDP_ATTACHED_NONE)
        return finding(check, "ok", "none");
    if (inaggd::serves(bpffs, ifindex))
        return finding(check, "ok", "none but the switch of " + bpffs);
    const std::optional<std::string> known = program_name(query.prog_id);
    if (!known)
        return finding(check, "warn", fmt::format("XDP program number {} is attached", query.prog_id),
                       "only root can tell whose it is: run inaggctl doctor as root");
    const bool of_ranks = known->starts_with("xdp_dispatcher"), of_switch = known->starts_with("inagg_");
    if (of_ranks && is_worker())
        return finding(check, "ok", *known + ", which ranks share");
    return finding(check, of_ranks || of_switch ? "warn" : "missing",
                   "XDP program " + (known->empty() ? fmt::format("number {}", query.prog_id) : *known) + " is attached",
                   std::string("inaggd needs the port for itself: ") +
                       (of_switch ? "end the agent that has it, or start one with its --bpffs and end that; what was attached by "
                                    "hand goes with "
                                  : "") +
                       "ip link set dev " + interface + " xdp off");
}

// Attaches a program for a moment: only the driver knows whether it takes native XDP.
json check_native_xdp(const std::string &interface, uint32_t ifindex) {
    std::string check = interface + ": native XDP";
    if (const int mode = attached(ifindex).attach_mode; mode != XDP_ATTACHED_NONE)
        return judge(check, mode == XDP_ATTACHED_DRV, "warn",
                     mode == XDP_ATTACHED_DRV ? "a program is attached natively" : "a program is attached in generic mode",
                     "its driver may not support native XDP; generic XDP is slower");
    Fd program = load_pass_program();
    if (!program)
        return finding(check, "warn", "cannot be tried: " + system_text(errno), "run inaggctl doctor as root");
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
    int link = bpf_link_create(program.get(), static_cast<int>(ifindex), BPF_XDP, &options);
    if (link < 0)
        return finding(check, "warn", driver_of(interface) + ": " + system_text(link),
                       "inaggd falls back to generic XDP, which is slower");
    Fd owner(link);
    return finding(check, "ok", driver_of(interface));
}

json check_mtu(const std::string &interface) {
    uint32_t mtu = inaggd::mtu_of(interface);
    return judge(interface + ": MTU", mtu <= inaggd::largest_single_mtu, "warn", fmt::format("{}", mtu),
                 fmt::format("only udp makes use of what is above {1}, where all ranks use it and every link carries that: "
                             "otherwise ip link set dev {0} mtu {1}",
                             interface, inaggd::largest_single_mtu));
}

// A veth takes frames that a program at its other end sends only with GRO or a program of its own.
json check_gro(const std::string &interface, uint32_t ifindex) {
    std::string check = interface + ": GRO or XDP";
    if (attached(ifindex).attach_mode != XDP_ATTACHED_NONE)
        return finding(check, "ok", "an XDP program is attached");
    auto on = ethtool_flag(interface, ETHTOOL_GGRO);
    if (!on)
        return finding(check, "warn", "GRO cannot be read", "ethtool -k " + interface);
    return judge(check, *on, "warn", *on ? "GRO is on" : "neither",
                 "a switch or xdp worker at the other end of this veth cannot reach it: ethtool -K " + interface + " gro on");
}

void examine_interface(const std::string &interface, const Where &where, json &findings) {
    uint32_t ifindex = if_nametoindex(interface.c_str());
    if (!ifindex) {
        findings.push_back(finding(interface, "missing", "no such interface in this network namespace", "ip link"));
        return;
    }
    examine_network(interface, findings);
    findings.push_back(check_owner(interface, ifindex, where.bpffs));
    findings.push_back(check_native_xdp(interface, ifindex));
    findings.push_back(check_mtu(interface));
    if (driver_of(interface) == "veth")
        findings.push_back(check_gro(interface, ifindex));
}

} // namespace

bool is_generic(uint32_t ifindex) { return attached(ifindex).attach_mode == XDP_ATTACHED_SKB; }

json examine(const std::vector<std::string> &interfaces, const Where &where) {
    libbpf_set_print(nullptr);
    json findings = json::array();
    findings.push_back(
        check_privileges("switch", "missing", {{bpf, "CAP_BPF"}, {net_admin, "CAP_NET_ADMIN"}, {perfmon, "CAP_PERFMON"}}));
    findings.push_back(check_privileges("xdp", "warn", {{sys_admin, "CAP_SYS_ADMIN"}, {net_admin, "CAP_NET_ADMIN"}}));
    findings.push_back(check_privileges("afxdp", "warn",
                                        {{sys_admin, "CAP_SYS_ADMIN"}, {net_admin, "CAP_NET_ADMIN"}, {net_raw, "CAP_NET_RAW"}}));
    findings.push_back(check_kernel());
    findings.push_back(check_probe("XDP programs", libbpf_probe_bpf_prog_type(BPF_PROG_TYPE_XDP, nullptr),
                                   "the switch needs a kernel with CONFIG_BPF_SYSCALL"));
    findings.push_back(
        check_probe("devmap", libbpf_probe_bpf_map_type(BPF_MAP_TYPE_DEVMAP, nullptr), "results are multicast through it"));
    findings.push_back(
        check_probe("ring buffer", libbpf_probe_bpf_map_type(BPF_MAP_TYPE_RINGBUF, nullptr), "joins come through it"));
    findings.push_back(judge("BTF", access("/sys/kernel/btf/vmlinux", R_OK) == 0, "warn", "/sys/kernel/btf/vmlinux",
                             "a kernel with CONFIG_DEBUG_INFO_BTF explains programs and maps better"));
    findings.push_back(check_bpffs(where.bpffs));
    findings.push_back(check_jit());
    findings.push_back(check_io_uring());
    findings.push_back(check_af_xdp());
    findings.push_back(check_af_inagg());
    findings.push_back(check_memlock());
    findings.push_back(check_program("bpftool", "shows and loads programs by hand"));
    findings.push_back(check_program("clang", "builds the BPF programs"));
    for (const std::string &interface : interfaces)
        examine_interface(interface, where, findings);
    examine_switch(where, findings);
    examine_worker(findings);
    return findings;
}

void print_doctor(const json &findings) {
    for (const json &f : findings) {
        fmt::print("{:<8} {:<22} {}\n", f["state"].get<std::string>(), f["check"].get<std::string>(),
                   f["detail"].get<std::string>());
        if (std::string fix = f["fix"]; !fix.empty())
            fmt::print("{:<8} {:<22} -> {}\n", "", "", fix);
    }
}

bool healthy(const json &findings) {
    return std::none_of(findings.begin(), findings.end(), [](const json &f) { return f["state"] == "missing"; });
}

} // namespace inaggctl
