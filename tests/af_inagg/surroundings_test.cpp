// SPDX-License-Identifier: BSD-2-Clause
// What docs/man/inagg.7 says of the system around the sockets: memory, control groups, users, /proc, tracepoints.
#include "calls.hpp"

#include <inagg/reason.h>

#include <bpf/bpf.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <sstream>
#include <thread>

using namespace af_inagg;
using inagg::Fd;

namespace {

// Wait until no more memory is in use than `before`: closed sockets leave in the background, those of earlier tests, too.
void expect_memory_back(long before) {
    for (int i = 0; i < 200 && memory_in_use() > before; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LE(memory_in_use(), before);
}

void write_sysctl(const char *name, const std::string &value) {
    std::ofstream(std::string("/proc/sys/net/inagg/") + name) << value;
}

// In a process of a user without privileges; what fails there fails here.
void as_nobody(const std::function<void()> &body) {
    const pid_t child = fork();
    if (!child) {
        if (setgroups(0, nullptr) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
            _exit(2);
        try {
            body();
        } catch (const std::exception &error) {
            ADD_FAILURE() << error.what();
        }
        _exit(testing::Test::HasFailure());
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

} // namespace

TEST(Memory, IsLimitedAndComesBack) {
    const long before = memory_in_use();
    ASSERT_GE(before, 0);
    as_nobody([before] {
        std::vector<Fd> many;
        const std::vector<char> tensor(1 << 20);
        int error = 0;
        for (int i = 0; i < 200 && error != ENOBUFS; i++) { // nobody adds to it, so it stays
            auto ranks = join(2, [](int fd) { set(fd, INAGG_BUFFER, 16 << 20); });
            ssize_t sent;
            while ((sent = send(ranks[0].get(), tensor.data(), tensor.size(), MSG_DONTWAIT | MSG_NOSIGNAL)) == 1 << 20)
                ;
            error = sent < 0 ? errno : 0;
            EXPECT_TRUE(sent > 0 || error == EAGAIN || error == ENOBUFS) << std::strerror(error);
            for (Fd &rank : ranks)
                many.push_back(std::move(rank));
        }
        EXPECT_EQ(error, ENOBUFS);
        EXPECT_GT(memory_in_use(), before + memory_limit() / 2);
        EXPECT_LE(memory_in_use(), memory_limit());
    });
    expect_memory_back(before);
}

TEST(Memory, LimitIsAnEighthAndTheMachinesOwners) {
    struct sysinfo machine {};
    ASSERT_EQ(sysinfo(&machine), 0);
    const double eighth = static_cast<double>(machine.totalram) * machine.mem_unit / 8;
    EXPECT_NEAR(static_cast<double>(memory_limit()), eighth, eighth / 100);
    const std::string file = "/proc/sys/net/inagg/memory_limit";
    struct stat here {
    }, first{};
    ASSERT_EQ(stat("/proc/self/ns/net", &here), 0);
    if (stat("/proc/1/ns/net", &first) == 0 && here.st_ino == first.st_ino)
        GTEST_SKIP() << "this is the first network namespace";
    EXPECT_ERRNO(open(file.c_str(), O_WRONLY), EACCES);
}

// One that this process is in.
class ControlGroup {
public:
    ControlGroup() {
        std::ofstream(root / "cgroup.subtree_control") << "+memory";
        std::error_code error;
        made_ = std::filesystem::create_directory(path, error) && std::filesystem::exists(path / "memory.current");
        std::ofstream(path / "cgroup.procs") << getpid();
    }
    ~ControlGroup() { // once the last socket has gone
        std::ofstream(root / "cgroup.procs") << getpid();
        std::error_code error;
        std::filesystem::remove(path, error);
    }
    explicit operator bool() const { return made_; }
    long in_use() const {
        long bytes = 0;
        std::ifstream(path / "memory.current") >> bytes;
        return bytes;
    }
    void limit(const std::string &bytes) const { std::ofstream(path / "memory.max") << bytes; }
    Fd folder() const { return Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }

private:
    const std::filesystem::path root = "/sys/fs/cgroup", path = root / "af_inagg";
    bool made_;
};

TEST(Memory, OfInfinitiesIsChargedToTheControlGroup) {
    const ControlGroup group;
    if (!group)
        GTEST_SKIP() << "no control groups here";
    {
        constexpr std::size_t count = 1 << 20;
        const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 8 << 20); });
        std::vector<float> tensor(count, 1);
        ASSERT_EQ(send_all(ranks[0].get(), tensor), static_cast<ssize_t>(4 * count));
        ASSERT_EQ(receive<float>(ranks[0].get(), count), tensor);
        tensor[5] = std::numeric_limits<float>::infinity();
        const long before = group.in_use();
        ASSERT_EQ(send_all(ranks[0].get(), tensor), static_cast<ssize_t>(4 * count));
        wait_for(ranks[0].get(), POLLIN);
        EXPECT_GT(group.in_use() - before, static_cast<long>(3 * count)) << "a count for each element";
        EXPECT_EQ(receive<float>(ranks[0].get(), count), tensor);
    }
}

TEST(Memory, SendFailsAndNobodyIsKilledAtTheLimitOfTheControlGroup) {
    const ControlGroup group;
    if (!group)
        GTEST_SKIP() << "no control groups here";
    const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 32 << 20); });
    group.limit(std::to_string(group.in_use() + (8 << 20)));
    EXPECT_ERRNO(send(ranks[0].get(), "abcd", 4, MSG_NOSIGNAL), ENOMEM);
    group.limit("max");
    EXPECT_EQ(send(ranks[0].get(), "abcd", 4, MSG_NOSIGNAL), 4);
}

// A program that lets no packet pass.
class Wall {
public:
    Wall(const ControlGroup &group, bpf_attach_type where)
        : where_(where), group_(group.folder()),
          program_(bpf_prog_load(BPF_PROG_TYPE_CGROUP_SKB, "wall", "GPL", drop, 2, nullptr)),
          stands_(bpf_prog_attach(program_.get(), group_.get(), where, 0) == 0) {}
    ~Wall() {
        if (stands_)
            bpf_prog_detach2(program_.get(), group_.get(), where_);
    }
    Wall(const Wall &) = delete;
    Wall &operator=(const Wall &) = delete;
    explicit operator bool() const { return stands_; }

private:
    static constexpr bpf_insn drop[2] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
    bpf_attach_type where_;
    Fd group_, program_;
    bool stands_;
};

TEST(ControlGroup, ProgramsSeeWhatLeavesButNotWhatComes) {
    const auto before = join(1);
    const ControlGroup group;
    if (!group)
        GTEST_SKIP() << "no control groups here";
    const auto ranks = join(1);
    const auto sums = [&] {
        EXPECT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
        return receive<float>(ranks[0].get(), 10).size() == 10;
    };
    EXPECT_TRUE(sums());
    {
        const Wall wall(group, BPF_CGROUP_INET_INGRESS);
        if (!wall)
            GTEST_SKIP() << "no programs for control groups here: " << std::strerror(errno);
        EXPECT_TRUE(sums()) << "BUGS";
    }
    const Wall wall(group, BPF_CGROUP_INET_EGRESS);
    ASSERT_TRUE(wall);
    EXPECT_EQ(set(ranks[0].get(), INAGG_DEADLINE, 500), 0);
    EXPECT_FALSE(sums());
    EXPECT_EQ(send_all(before[0].get(), ramp<float>(10, 0)), 40);
    EXPECT_EQ(receive<float>(before[0].get(), 10).size(), 10u) << "it was opened in another group";
}

TEST(Filter, SeesNothingOfWhatComes) {
    const auto ranks = join(1);
    sock_filter none[] = {{BPF_RET | BPF_K, 0, 0, 0}};
    const sock_fprog drop = {1, none};
    ASSERT_EQ(setsockopt(ranks[0].get(), SOL_SOCKET, SO_ATTACH_FILTER, &drop, sizeof(drop)), 0);
    EXPECT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    EXPECT_EQ(receive<float>(ranks[0].get(), 10).size(), 10u) << "BUGS";
}

// A rank alone: all that it asks of the kernel, from socket() to close(). 0 or what failed.
int errno_of_a_job(const std::vector<float> &tensor) {
    static uint16_t job = 5000;
    const Fd fd = open_socket();
    if (!fd || bind_to(fd.get(), address("::")) || connect_to(fd.get(), address(switch_address(), 0, job++, 1)) ||
        send_all(fd.get(), tensor) < 0)
        return errno;
    std::vector<float> sum(tensor.size());
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(sum));
    for (std::size_t have = 0; have < bytes.size();) { // what was copied before a copy failed counts
        const ssize_t more = recv(fd.get(), bytes.data() + have, bytes.size() - have, 0);
        if (more <= 0)
            return errno;
        have += static_cast<std::size_t>(more);
    }
    EXPECT_EQ(sum, tensor);
    return 0;
}

void sweep_failures(const std::vector<float> &tensor) {
    const FailNth fault;
    if (!fault)
        GTEST_SKIP() << "this kernel has no fault injection";
    const long before = memory_in_use();
    unsigned nth = 1;
    for (bool failed = true; failed; nth++) {
        fault.arm(nth);
        const int error = errno_of_a_job(tensor);
        failed = fault.disarm();
        EXPECT_TRUE(error == 0 || (failed && (error == ENOMEM || error == ENOBUFS || error == ENFILE || error == EFAULT)))
            << "call " << nth << ": " << std::strerror(error);
    }
    EXPECT_GT(nth, 20U) << "nothing could fail: is ignore-gfp-wait off?";
    expect_memory_back(before);
}

TEST(Memory, EachAllocationAndCopyMayFail) { sweep_failures(ramp<float>(1000, 1)); }

TEST(Memory, EachAllocationAndCopyMayFailForInfinities) {
    sweep_failures(std::vector<float>(100, std::numeric_limits<float>::infinity()));
}

TEST(Proc, ShowsSocketsAndFamily) {
    const auto ranks = join(1);
    std::ifstream proc("/proc/net/inagg");
    std::string first, line;
    std::getline(proc, first);
    EXPECT_NE(first.find("family 25 "), std::string::npos) << first;
    int sockets = 0;
    while (std::getline(proc, line))
        sockets += line.find(" state joined job ") != std::string::npos;
    EXPECT_EQ(sockets, 1);
}

// The line of /proc/net/inagg that begins a socket with this port.
std::string line_of(uint16_t port) {
    std::ifstream proc("/proc/net/inagg");
    for (std::string line; std::getline(proc, line);)
        if (line.find("]:" + std::to_string(ntohs(port)) + " switch") != std::string::npos)
            return line;
    return "";
}

// From a stranger.
void send_nonsense(__be16 port) {
    const Fd stranger(socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = port;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const char nonsense[200] = {};
    ASSERT_EQ(sendto(stranger.get(), nonsense, sizeof(nonsense), 0, reinterpret_cast<sockaddr *>(&to), sizeof(to)), 200);
}

TEST(Proc, TellsOfEachSocket) {
    as_nobody([] {
        const auto ranks = join(2);
        for (const Fd &rank : ranks)
            EXPECT_EQ(send_all(rank.get(), ramp<float>(5000, 0)), 20000);
        for (const Fd &rank : ranks)
            EXPECT_EQ(receive<float>(rank.get(), 5000).size(), 5000u);
        const int fd = ranks[1].get();
        struct stat status {};
        ASSERT_EQ(fstat(fd, &status), 0);
        const std::string line = line_of(name_of(fd).sinagg_port);
        const inagg_info info = info_of(fd);
        EXPECT_TRUE(line.starts_with("socket " + std::to_string(status.st_ino) + " uid 65534 state joined job " +
                                     std::to_string(info.job) + " rank 1 size 2 "))
            << line;
        EXPECT_NE(line.find(std::string(" switch [::ffff:") + switch_address() + "]:12000 "), std::string::npos) << line;
        const std::pair<const char *, uint64_t> counters[] = {
            {"blocks", info.blocks},
            {"contributions", info.contributions},
            {"retransmissions", info.retransmissions},
            {"requests", info.requests},
            {"degraded", info.degraded},
            {"skipped", info.skipped},
            {"abstained", info.abstained},
            {"refused", info.refused},
            {"restores", info.restores},
            {"duplicates", info.duplicates},
            {"rejected", info.rejected},
            {"reboots", info.reboots},
        };
        EXPECT_GT(info.blocks, 0u);
        for (const auto &[name, value] : counters)
            EXPECT_NE(line.find(std::string(" ") + name + " " + std::to_string(value) + " "), std::string::npos)
                << name << ": " << line;
    });
}

TEST(Proc, CountsWhatEachRankRefuses) {
    const auto ranks = join(2);
    const uint16_t port = name_of(ranks[1].get()).sinagg_port;
    for (int i = 0; i < 3; i++)
        send_nonsense(port);
    for (int i = 0; i < 100 && line_of(port).find(" dropped_ADDRESS 3") == std::string::npos; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_NE(line_of(port).find(" dropped_ADDRESS 3"), std::string::npos) << line_of(port);
    EXPECT_NE(line_of(port).find(" rank 1 "), std::string::npos);
    EXPECT_EQ(line_of(name_of(ranks[0].get()).sinagg_port).find(" dropped_"), std::string::npos);
}

// What netfilter's owner match, ss(8) and this file know of a packet's user is one pointer.
void expect_udp_is_its_users(int fd) {
    struct stat status {};
    ASSERT_EQ(fstat(fd, &status), 0);
    char port[16];
    std::snprintf(port, sizeof(port), ":%04X ", ntohs(name_of(fd).sinagg_port));
    std::ifstream udp("/proc/net/udp");
    std::string line;
    while (std::getline(udp, line) && line.find(port) == std::string::npos)
        ;
    std::istringstream words(line);
    const std::vector<std::string> fields(std::istream_iterator<std::string>(words), {});
    ASSERT_GT(fields.size(), 9u) << "no port" << port;
    EXPECT_EQ(fields[7], std::to_string(geteuid())) << line;
    EXPECT_EQ(fields[9], std::to_string(status.st_ino)) << line;
}

TEST(Proc, UdpPacketsAreTheirUsers) {
    as_nobody([] {
        const Fd fd = open_socket();
        ASSERT_EQ(bind_to(fd.get(), address("127.0.0.1", 0)), 0);
        expect_udp_is_its_users(fd.get());
        expect_udp_is_its_users(join(1)[0].get());
    });
}

// Of inaggctl, which lies beside these tests.
std::string output_of_inaggctl(const std::string &arguments) {
    const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "inaggctl";
    FILE *pipe = popen((program.string() + " " + arguments).c_str(), "r");
    std::string text;
    for (int c = 0; pipe && (c = std::fgetc(pipe)) != EOF;)
        text += static_cast<char>(c);
    EXPECT_EQ(pipe ? pclose(pipe) : -1, 0) << text;
    return text;
}

TEST(Proc, InaggctlListsTheSame) {
    const auto ranks = join(2);
    const auto state = nlohmann::json::parse(output_of_inaggctl("sockets --json"));
    EXPECT_EQ(state["family"], AF_INAGG);
    std::vector<int> joined;
    for (const auto &socket : state["sockets"])
        if (socket["state"] == "joined" && socket["job"] == info_of(ranks[0].get()).job)
            joined.push_back(socket["rank"]);
    std::sort(joined.begin(), joined.end());
    EXPECT_EQ(joined, (std::vector<int>{0, 1})) << state;
    EXPECT_NE(output_of_inaggctl("sockets").find("\njoined "), std::string::npos);
}

// The kernel's trace of this family's events while it lives.
class Trace {
public:
    Trace() {
        std::ofstream(root / "trace"); // empties it
        std::ofstream(root / "events/inagg/enable") << 1;
    }
    ~Trace() { std::ofstream(root / "events/inagg/enable") << 0; }
    static bool is_there() { return std::filesystem::exists(root / "events/inagg"); }
    bool has(const std::string &event, const std::string &end = "") const {
        std::ifstream trace(root / "trace");
        for (std::string line; std::getline(trace, line);)
            if (line.find(" " + event) != std::string::npos && line.ends_with(end))
                return true;
        return false;
    }

private:
    static inline const std::filesystem::path root = "/sys/kernel/tracing";
};

TEST(Trace, TellsOfJoinsResendsRefusalsAndFailures) {
    if (!Trace::is_there())
        GTEST_SKIP() << "no tracepoints here";
    const Trace trace;
    const auto ranks = join(2);
    const std::string job = "job=" + std::to_string(info_of(ranks[0].get()).job) + " rank=";
    const inagg_info info = info_of(ranks[0].get());
    EXPECT_TRUE(trace.has("inagg_join: " + job + "1 size=2 generation=" + std::to_string(info.generation) + " reason=0"));
    const Fd other = open_socket();
    ASSERT_EQ(bind_to(other.get(), address("::", 2)), 0);
    EXPECT_ERRNO(connect_to(other.get(), address(switch_address(), 0, info.job, 3)), EINVAL);
    EXPECT_TRUE(trace.has("inagg_join: " + job + "2 size=3 ", " reason=" + std::to_string(INAGG_R_SIZE)));
    send_nonsense(name_of(ranks[1].get()).sinagg_port);
    for (int i = 0; i < 100 && !trace.has("inagg_refuse: " + job + "1 "); i++)
        usleep(20000);
    EXPECT_TRUE(trace.has("inagg_refuse: " + job + "1 reason=" + std::to_string(INAGG_R_ADDRESS)));
    ASSERT_EQ(set(ranks[0].get(), INAGG_DEADLINE, 500), 0);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    float sum;
    EXPECT_ERRNO(recv(ranks[0].get(), &sum, 4, 0), ETIMEDOUT);
    EXPECT_TRUE(trace.has("inagg_resend: " + job + "0 control block="));
    EXPECT_TRUE(trace.has("inagg_fail: " + job + "0 errno=" + std::to_string(ETIMEDOUT) + " reason=0 ", " missing=0x2"));
}

TEST(Sysctl, CutsTheBuffer) {
    write_sysctl("buffer_max", "200000");
    const Fd fd = open_socket();
    EXPECT_EQ(get(fd.get(), INAGG_BUFFER), 200000) << "buffer_default, too";
    EXPECT_EQ(set(fd.get(), INAGG_BUFFER, 300000), 0);
    EXPECT_EQ(get(fd.get(), INAGG_BUFFER), 200000);
    write_sysctl("buffer_max", std::to_string(256 << 20));
}

TEST(Sysctl, SetsTheDefaultsOfNewSockets) {
    write_sysctl("deadline_default_ms", "1234");
    write_sysctl("buffer_default", "100000");
    const Fd fd = open_socket();
    EXPECT_EQ(get(fd.get(), INAGG_DEADLINE), 1234);
    EXPECT_EQ(get(fd.get(), INAGG_BUFFER), 100000);
    write_sysctl("deadline_default_ms", "30000");
    write_sysctl("buffer_default", std::to_string(4 << 20));
}

TEST(Unprivileged, UsersMayAllreduce) {
    as_nobody([] {
        const auto ranks = join(2);
        for (const Fd &rank : ranks)
            EXPECT_EQ(send_all(rank.get(), ramp<float>(10, 1)), 40);
        EXPECT_EQ(receive<float>(ranks[0].get(), 10).back(), 20);
        sockaddr_inagg low = address("127.0.0.1", 0);
        low.sinagg_port = htons(80);
        EXPECT_ERRNO(bind_to(open_socket().get(), low), EACCES);
    });
}
