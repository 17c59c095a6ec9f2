// SPDX-License-Identifier: BSD-2-Clause
// System calls on AF_INAGG in random order with random arguments, from several threads that share their
// sockets, against a switch on the loopback that answers anything: right, late, damaged or forged. What it
// looks for is the kernel's to report: run it on a kernel with KASAN and lockdep. A seed gives each thread
// the same calls again; how they interleave it cannot. What has found something, or comes far, is kept in the
// file seeds.
#include "rank.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/fixed.h>
#include <inagg/wire.h>

#include <CLI/CLI.hpp>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

using namespace af_inagg;

namespace {

constexpr int shared_sockets = 6, callers = 3;
constexpr std::size_t buffer_bytes = 256 << 10;
// A slow machine gets nowhere with some seeds: so many more are tried before that is too bad.
constexpr int further_seeds = 5;

std::atomic<bool> stopping{false};
std::atomic<uint64_t> calls{0}, succeeded{0}, answers{0}, sums{0}, allocations_failed{0};

class Random {
public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    uint64_t bits() { return engine_(); }
    uint64_t below(uint64_t n) { return engine_() % n; }
    bool one_in(uint64_t n) { return below(n) == 0; }
    template <typename T, std::size_t n> const T &of(const T (&values)[n]) { return values[below(n)]; }

private:
    std::mt19937_64 engine_;
};

// Plays a switch with one rank a job, and often a bad one.
class FakeSwitch {
public:
    FakeSwitch(uint64_t seed, const char *address) : random_(seed), socket_(::socket(AF_INET, SOCK_DGRAM, 0)) {
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_port = htons(INAGG_PORT);
        inet_pton(AF_INET, address, &a.sin_addr);
        const timeval wait{0, 20000};
        setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
        if (bind(socket_.get(), reinterpret_cast<sockaddr *>(&a), sizeof(a)))
            throw std::system_error(errno, std::generic_category(), "binding to UDP port 12000");
    }

    void run() {
        while (!stopping) {
            sockaddr_in from{};
            socklen_t length = sizeof(from);
            const ssize_t bytes =
                recvfrom(socket_.get(), frame_.data(), frame_.size(), 0, reinterpret_cast<sockaddr *>(&from), &length);
            if (bytes >= static_cast<ssize_t>(sizeof(inagg_hdr)) && !random_.one_in(20))
                answer(static_cast<std::size_t>(bytes), from);
        }
    }

private:
    void answer(std::size_t bytes, const sockaddr_in &to) {
        inagg_hdr h;
        std::memcpy(&h, frame_.data(), sizeof(h));
        switch (inagg_hdr_type(&h)) {
        case INAGG_JOIN:
            answer_join(h);
            break;
        case INAGG_CONTRIBUTION:
        case INAGG_RESTORE:
            answer_block(h);
            break;
        case INAGG_REQUEST:
            h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_WAIT;
            break;
        default:
            return;
        }
        const bool damaged = random_.one_in(8), forged = random_.one_in(2);
        if (damaged && forged)
            damage(h, bytes);
        seal(h, bytes);
        if (damaged && !forged)
            damage(h, bytes);
        std::memcpy(frame_.data(), &h, sizeof(h));
        if (random_.one_in(50))
            bytes = random_.below(frame_.size());
        for (uint64_t copies = random_.one_in(10) ? 2 : 1; copies; copies--)
            sendto(socket_.get(), frame_.data(), bytes, 0, reinterpret_cast<const sockaddr *>(&to), sizeof(to));
        answers++;
    }

    void answer_join(inagg_hdr &h) {
        struct inagg_join join;
        std::memcpy(&join, frame_.data() + sizeof(h), sizeof(join));
        inagg_config config{};
        config.nonce = join.nonce;
        config.size = join.size;
        config.algorithm = random_.one_in(50) ? static_cast<uint8_t>(random_.below(5)) : join.algorithm;
        config.elements = random_.one_in(8) ? htons(static_cast<uint16_t>(random_.bits())) : join.elements;
        const uint32_t slots[] = {1, 4, 128, 128, 128, 1u << 20, 3, 0};
        if (random_.one_in(4)) // ranks say that they are there, and some want to come back
            config.flags = static_cast<uint8_t>(random_.bits()) & (INAGG_JOIN_WATCHED | INAGG_JOIN_RETURNING);
        config.slots = htonl(random_.of(slots));
        config.control_slots = htonl(random_.one_in(8) ? random_.of(slots) : 8);
        if (random_.one_in(4)) {
            const uint16_t ports[] = {1, 12001, 12002, INAGG_PORT};
            config.group_port = htons(random_.of(ports));
            config.group[0] = random_.one_in(4) ? 10 : 239;
        }
        h.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | (random_.one_in(10) ? INAGG_REFUSED : INAGG_CONFIG));
        h.slot = htonl(static_cast<uint32_t>(random_.below(40)));
        h.generation = htons(7);
        h.boot = htons(9);
        h.level_flags = 0;
        std::memcpy(frame_.data() + sizeof(h), &config, sizeof(config));
    }

    // One rank's contribution is its own sum; of larger jobs this switch claims the same.
    void answer_block(inagg_hdr &h) {
        const uint16_t fan_in = ntohs(h.fan_in);
        h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_RESULT;
        h.contributors = inagg_swap64(inagg_all_ranks(fan_in ? fan_in : 1));
        if (random_.one_in(4)) { // trio: of some ranks, perhaps recovered
            const uint64_t ranks = random_.below(1 << 4);
            h.contributors = inagg_swap64(ranks);
            h.count = htons(static_cast<uint16_t>(inagg_count_ranks(ranks)));
            h.level_flags |= htons(INAGG_F_DEGRADED);
            h.switch_id = random_.one_in(4) ? htons(static_cast<uint16_t>(random_.below(4))) : 0;
        }
        if (random_.one_in(100)) {
            h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_WAIT;
            h.window_cap = random_.one_in(2) ? htons(static_cast<uint16_t>(random_.below(4))) : 0;
        }
        if (random_.one_in(20)) // ahead of all that was sent
            h.block = htonl(ntohl(h.block) + 128 * static_cast<uint32_t>(random_.below(4)));
    }

    // What has a checksum of its body keeps one: JOIN and what answers it, jobs with payload checksums.
    void seal(inagg_hdr &h, std::size_t bytes) {
        const bool checked =
            inagg_hdr_type(&h) == INAGG_CONFIG || inagg_hdr_type(&h) == INAGG_REFUSED || ntohs(h.level_flags) & INAGG_F_CHECKED;
        if (checked)
            inagg_hdr_seal_checked(&h,
                                   inagg_payload_checksum(frame_.data() + sizeof(h), static_cast<uint32_t>(bytes - sizeof(h))));
        else
            inagg_hdr_seal(&h);
    }

    void damage(inagg_hdr &h, std::size_t bytes) {
        auto *raw = reinterpret_cast<unsigned char *>(&h);
        raw[random_.below(sizeof(h))] ^= static_cast<unsigned char>(1 << random_.below(8));
        if (bytes > sizeof(h))
            frame_[sizeof(h) + random_.below(bytes - sizeof(h))] ^= 1;
    }

    Random random_;
    inagg::Fd socket_;
    std::array<unsigned char, 4096> frame_{};
};

// Makes random calls on the shared sockets.
class Caller {
public:
    Caller(uint64_t seed, std::array<std::atomic<int>, shared_sockets> &fds, bool fail_memory)
        : random_(seed), fds_(fds), buffer_(buffer_bytes), fail_memory_(fail_memory) {}

    void run() {
        std::optional<FailNth> fault;
        if (fail_memory_)
            fault.emplace(); // of this thread
        while (!stopping) {
            const bool armed = fault && random_.one_in(3);
            if (armed)
                fault->arm(1 + static_cast<unsigned>(random_.below(10)));
            const int result = call(fds_[random_.below(shared_sockets)]);
            if (armed)
                allocations_failed += fault->disarm();
            calls++;
            succeeded += result >= 0;
        }
    }

private:
    int call(std::atomic<int> &shared) {
        const int fd = shared;
        switch (random_.below(26)) {
        case 0:
            return random_.one_in(6) ? replace(shared) : 0;
        case 1:
            return random_.one_in(3) ? bind_to(fd, some_address()) : bind_to(fd, address("::", 0));
        case 2:
            return connect_to(fd, some_address());
        case 3:
        case 4:
            return connect_to(fd, address("127.0.0.1", 0, 1, 1));
        case 5:
        case 6:
            return option(fd);
        case 7:
        case 8:
            return read_option(fd);
        case 9:
            return random_.one_in(15) ? shutdown(fd, static_cast<int>(random_.below(4))) : 0;
        case 10:
            return ioctl(fd, random_.one_in(2) ? SIOCOUTQ : SIOCINQ, buffer_.data());
        case 11:
            return wait_for(fd, static_cast<short>(random_.bits()), static_cast<int>(random_.below(5)));
        case 12:
            return name(fd);
        case 13:
            return linger_option(fd);
        case 14:
        case 15:
        case 16:
        case 17:
            return static_cast<int>(receive(fd));
        case 18:
            return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", random_.one_in(2) ? 3 : 0);
        case 19:
            return random_.one_in(10) ? read_proc() : 0;
        default:
            return static_cast<int>(transmit(fd));
        }
    }

    int replace(std::atomic<int> &shared) {
        inagg::Fd fresh = open_socket(random_.one_in(3) ? 0 : SOCK_NONBLOCK);
        if (!fresh)
            return -1;
        const timeval limit{0, 30000};
        setsockopt(fresh.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        setsockopt(fresh.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        set(fresh.get(), INAGG_DEADLINE, 200);
        set(fresh.get(), INAGG_BUFFER, 64 << 10);
        // Keep the number: others may be in a call on it.
        return dup2(fresh.get(), shared);
    }

    sockaddr_inagg some_address() {
        static const char *const texts[] = {"127.0.0.1", "::1", "::", "0.0.0.0", "192.0.2.1", "224.0.0.1", "fe80::1"};
        sockaddr_inagg a = address(random_.of(texts), static_cast<uint16_t>(random_.below(3)),
                                   static_cast<uint16_t>(random_.below(3)), static_cast<uint16_t>(random_.below(4)));
        if (random_.one_in(4))
            reinterpret_cast<unsigned char *>(&a)[random_.below(sizeof(a))] ^= static_cast<unsigned char>(random_.bits());
        return a;
    }

    int option(int fd) {
        static const int values[] = {0, 1, 2, 3, 4, 32, 64, 100, 1000, 65536, -1, INAGG_SCALE_AUTO, 1 << 30};
        const int value = random_.of(values);
        const int name = static_cast<int>(random_.below(19));
        if (name == INAGG_DEADLINE && value > 1000)
            return 0; // or joins would wait longer than the run
        if (name == INAGG_ALGORITHM)
            return setsockopt(fd, SOL_INAGG, name, random_.one_in(2) ? "trio" : "switchml",
                              static_cast<socklen_t>(random_.below(40)));
        if (name == INAGG_KEY || name == INAGG_VERIFY)
            return setsockopt(fd, SOL_INAGG, name, "sixteen bytes...", random_.one_in(5) ? random_.below(17) : 16);
        return setsockopt(fd, SOL_INAGG, name, &value, static_cast<socklen_t>(random_.one_in(5) ? random_.below(9) : 4));
    }

    int read_option(int fd) {
        auto length = static_cast<socklen_t>(random_.one_in(3) ? random_.bits() : random_.below(200));
        if (length > buffer_bytes && length < 0x80000000)
            length = buffer_bytes;
        return getsockopt(fd, SOL_INAGG, static_cast<int>(random_.below(19)), buffer_.data(), &length);
    }

    int linger_option(int fd) {
        const linger value{static_cast<int>(random_.below(2)), 0};
        return setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof(value));
    }

    int read_proc() {
        static const char *const paths[] = {"/proc/net/inagg", "/proc/net/udp", "/proc/net/udp6"};
        const inagg::Fd file(::open(random_.of(paths), O_RDONLY | O_CLOEXEC));
        ssize_t bytes;
        while ((bytes = ::read(file.get(), buffer_.data(), buffer_bytes)) > 0)
            ;
        return static_cast<int>(bytes);
    }

    int name(int fd) {
        auto length = static_cast<socklen_t>(random_.below(64));
        auto *a = reinterpret_cast<sockaddr *>(buffer_.data());
        return random_.one_in(2) ? getsockname(fd, a, &length) : getpeername(fd, a, &length);
    }

    std::size_t some_length() {
        static const std::size_t lengths[] = {0, 4, 8, 40, 1408, 1412, 4096, 65536, buffer_bytes};
        return random_.one_in(4) ? random_.below(buffer_bytes) : random_.of(lengths);
    }

    ssize_t transmit(int fd) {
        static const int flags[] = {0, MSG_DONTWAIT, MSG_DONTWAIT, MSG_DONTWAIT, MSG_OOB, MSG_MORE, -1};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(inagg_tensor_type))] = {};
        iovec iov[2] = {{buffer_.data(), some_length()}, {buffer_.data(), 0}};
        msghdr msg{};
        msg.msg_iov = iov;
        msg.msg_iovlen = 1 + random_.below(2);
        if (random_.one_in(50))
            iov[1] = {reinterpret_cast<void *>(8), 100};
        if (random_.one_in(20))
            iov[0].iov_len = 0; // a barrier
        if (random_.one_in(2)) {
            const inagg_tensor_type type = {static_cast<uint8_t>(random_.below(5)), static_cast<uint8_t>(random_.below(4)),
                                            static_cast<uint16_t>(random_.one_in(10) ? random_.below(8) : 0),
                                            random_.one_in(3) ? static_cast<int>(random_.below(40)) : INAGG_SCALE_AUTO};
            msg.msg_control = control;
            msg.msg_controllen = random_.one_in(10) ? random_.below(sizeof(control)) : sizeof(control);
            auto *cmsg = reinterpret_cast<cmsghdr *>(control);
            cmsg->cmsg_level = random_.one_in(10) ? SOL_SOCKET : SOL_INAGG;
            cmsg->cmsg_type = random_.one_in(10) ? static_cast<int>(random_.below(7)) : INAGG_CMSG_TENSOR;
            cmsg->cmsg_len = random_.one_in(10) ? random_.below(40) : CMSG_LEN(sizeof(type));
            std::memcpy(CMSG_DATA(cmsg), &type, sizeof(type));
        }
        if (random_.one_in(30)) // infinities, NaN and whatever
            for (std::size_t i = 0; i < 2000; i++)
                buffer_[random_.below(buffer_bytes)] = static_cast<char>(random_.bits());
        return sendmsg(fd, &msg, MSG_NOSIGNAL | random_.of(flags));
    }

    ssize_t receive(int fd) {
        static const int flags[] = {0,        MSG_DONTWAIT, MSG_DONTWAIT, MSG_TRUNC, MSG_TRUNC | MSG_DONTWAIT, MSG_ERRQUEUE,
                                    MSG_PEEK, MSG_WAITALL,  MSG_OOB};
        char control[128];
        iovec iov{random_.one_in(50) ? reinterpret_cast<void *>(8) : buffer_.data(), some_length()};
        msghdr msg{};
        msg.msg_iov = &iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control;
        msg.msg_controllen = random_.below(sizeof(control));
        const ssize_t bytes = recvmsg(fd, &msg, random_.of(flags));
        sums += bytes >= 0 && msg.msg_flags & MSG_EOR;
        return bytes;
    }

    Random random_;
    std::array<std::atomic<int>, shared_sockets> &fds_;
    std::vector<char> buffer_;
    const bool fail_memory_;
};

// The numbers in a file, one a line; # begins a comment.
std::vector<uint64_t> read_seeds(const std::string &path) {
    std::ifstream file(path);
    std::vector<uint64_t> seeds;
    for (std::string line; std::getline(file, line);)
        if (uint64_t seed; std::istringstream(line.substr(0, line.find('#'))) >> seed)
            seeds.push_back(seed);
    if (seeds.empty())
        throw std::runtime_error("no seeds in " + path);
    return seeds;
}

// How many tensors were summed.
uint64_t fuzz(uint64_t seed, std::chrono::seconds time, bool fail_memory) {
    stopping = false;
    for (std::atomic<uint64_t> *counter : {&calls, &succeeded, &answers, &sums, &allocations_failed})
        *counter = 0;
    std::array<std::atomic<int>, shared_sockets> fds;
    std::vector<inagg::Fd> owners;
    for (std::atomic<int> &fd : fds) {
        owners.push_back(open_socket(SOCK_NONBLOCK));
        fd = owners.back().get();
    }
    FakeSwitch fake(seed, "127.0.0.1");
    std::vector<std::thread> threads;
    threads.emplace_back(&FakeSwitch::run, &fake);
    std::vector<std::unique_ptr<Caller>> all;
    for (unsigned i = 0; i < callers; i++) {
        all.push_back(std::make_unique<Caller>(seed * callers + i, fds, fail_memory));
        threads.emplace_back(&Caller::run, all.back().get());
    }
    std::this_thread::sleep_for(time);
    stopping = true;
    for (std::thread &thread : threads)
        thread.join();
    std::printf("seed %llu: %llu calls, %llu succeeded, %llu answers, %llu sums, %llu allocations failed\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(calls),
                static_cast<unsigned long long>(succeeded), static_cast<unsigned long long>(answers),
                static_cast<unsigned long long>(sums), static_cast<unsigned long long>(allocations_failed));
    std::fflush(stdout);
    return sums;
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("Random system calls on AF_INAGG");
    std::vector<uint64_t> seeds = {1};
    std::string file;
    unsigned seconds = 10;
    bool fail_memory = false;
    app.add_option("--seed", seeds, "Of all threads' random numbers, one run each; default 1");
    app.add_option("--seeds", file, "File of seeds, one a line, instead");
    app.add_option("--seconds", seconds, "How long each; default 10");
    app.add_flag("--fail-memory", fail_memory, "Let allocations in the calls fail: needs a kernel with fault injection");
    CLI11_PARSE(app, argc, argv);
    if (!open_socket()) {
        std::fprintf(stderr, "SKIP: no AF_INAGG here: load the module af_inagg\n");
        return 77;
    }
    if (fail_memory && !FailNth()) {
        std::fprintf(stderr, "SKIP: this kernel has no fault injection\n");
        return 77;
    }
    if (!file.empty())
        seeds = read_seeds(file);
    uint64_t all_sums = 0;
    for (const uint64_t seed : seeds)
        all_sums += fuzz(seed, std::chrono::seconds(seconds), fail_memory);
    for (int i = 0; !all_sums && !fail_memory && i < further_seeds; i++)
        all_sums += fuzz(++seeds.back(), std::chrono::seconds(seconds), fail_memory);
    if (all_sums || fail_memory)
        return 0;
    std::fprintf(stderr, "no tensor was summed, also not with %d further seeds: the calls get nowhere\n", further_seeds);
    return 1;
}
