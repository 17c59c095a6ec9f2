// SPDX-License-Identifier: BSD-2-Clause
#include "ring_links.hpp"

#include "engine.hpp"
#include "join.hpp"
#include "options.hpp"
#include "port_of.hpp"
#include "transports.hpp"

#include <inagg/core/types.h>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>

namespace inagg {

namespace {

constexpr std::size_t most_strangers = 64; // that have connected and not said who they are
constexpr int most_notices = 256;          // read at a time
constexpr uint16_t nobody = UINT16_MAX;

std::span<const std::byte> bytes_of(const auto &object) { return std::as_bytes(std::span(&object, 1)); }

sockaddr *generic(sockaddr_storage &address) { return reinterpret_cast<sockaddr *>(&address); }

std::span<uint8_t> host_of(sockaddr_storage &address) {
    if (address.ss_family == AF_INET)
        return {reinterpret_cast<uint8_t *>(&reinterpret_cast<sockaddr_in &>(address).sin_addr), 4};
    return {reinterpret_cast<sockaddr_in6 &>(address).sin6_addr.s6_addr, 16};
}

Fd open_socket(int family, int type) {
    Fd fd(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd)
        throw system_error("ring: socket");
    return fd;
}

sockaddr_storage name_of(int fd) {
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    if (getsockname(fd, generic(name), &length))
        throw system_error("ring: getsockname");
    return name;
}

// A socket at `local`, any port; `port` receives which.
Fd bound_socket(sockaddr_storage local, socklen_t length, int type, uint16_t &port) {
    Fd fd = open_socket(local.ss_family, type);
    if (bind(fd.get(), generic(local), length))
        throw system_error("ring: bind");
    local = name_of(fd.get());
    port = ntohs(port_of(local));
    return fd;
}

// The address from which this host's packets to the switch come.
sockaddr_storage address_towards(sockaddr_storage peer, socklen_t length) {
    const Fd probe = open_socket(peer.ss_family, SOCK_DGRAM);
    if (::connect(probe.get(), generic(peer), length))
        throw system_error("ring: route to the switch");
    sockaddr_storage local = name_of(probe.get());
    port_of(local) = 0;
    return local;
}

} // namespace

RingLinks::RingLinks(const inagg_options &options)
    : job_(options.job), rank_(options.rank), size_(options.size), presences_(options.size) {
    const sockaddr_storage peer = switch_address(options_of_tree(options, 0));
    length_ = peer.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    local_ = address_towards(peer, length_);
    own_.aggregate_from = options.aggregate_from;
    own_.nonce = random_nonce();
    std::ranges::copy(host_of(local_), own_.address);
    listener_ = bound_socket(local_, length_, SOCK_STREAM, own_.port);
    if (listen(listener_.get(), most_strangers))
        throw system_error("ring: listen");
    notices_ = bound_socket(local_, length_, SOCK_DGRAM, own_.notice_port);
}

uint16_t RingLinks::neighbour(int step) const { return static_cast<uint16_t>((rank_ + size_ + step) % size_); }

sockaddr_storage RingLinks::address_of(uint16_t rank, uint16_t port) const {
    sockaddr_storage address = local_; // family, and an IPv6 link's scope, are ours
    std::copy_n(entries_[rank].address, host_of(address).size(), host_of(address).data());
    port_of(address) = htons(port);
    return address;
}

// Connecting

void RingLinks::meet(const std::vector<RingEntry> &entries) {
    entries_ = entries;
    connect();
}

void RingLinks::connect() {
    const uint16_t after = neighbour(1);
    sockaddr_storage address = address_of(after, entries_[after].port);
    after_ = open_socket(address.ss_family, SOCK_STREAM);
    const int at_once = 1;
    setsockopt(after_.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    if (::connect(after_.get(), generic(address), length_) && errno != EINPROGRESS)
        miss(after, std::strerror(errno));
}

void RingLinks::move(uint32_t calls) {
    presences_[rank_].calls = calls;
    if (entries_.empty())
        return;
    hear();
    if (!lost_ && greeted_ < sizeof(Greeting))
        greet();
    if (!lost_ && !came())
        accept();
}

void RingLinks::greet() {
    const Greeting greeting{entries_[neighbour(1)].nonce, own_.nonce};
    greeted_ += send(bytes_of(greeting).subspan(greeted_));
}

void RingLinks::accept() {
    for (std::size_t i = 0; i < most_strangers; i++) {
        Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket)
            break;
        if (strangers_.size() == most_strangers)
            strangers_.erase(strangers_.begin());
        strangers_.push_back({std::move(socket)});
    }
    std::erase_if(strangers_, [this](Stranger &stranger) { return !before_ && !admit(stranger); });
    if (before_) {
        listener_.reset();
        strangers_.clear();
    }
}

// False: it may go, with its connection if that is still its own.
bool RingLinks::admit(Stranger &stranger) {
    const auto room = std::as_writable_bytes(std::span(&stranger.greeting, 1)).subspan(stranger.got);
    const ssize_t bytes = recv(stranger.socket.get(), room.data(), room.size(), 0);
    if (bytes < 0)
        return errno == EAGAIN || errno == EINTR;
    stranger.got += static_cast<std::size_t>(bytes);
    if (stranger.got < sizeof(Greeting))
        return bytes > 0;
    if (stranger.greeting == Greeting{own_.nonce, entries_[neighbour(-1)].nonce})
        before_ = std::move(stranger.socket);
    return false;
}

void RingLinks::poll_for(std::vector<pollfd> &polled) const {
    polled.push_back({notices_.get(), POLLIN, 0});
    if (after_ && greeted_ < sizeof(Greeting))
        polled.push_back({after_.get(), POLLOUT, 0});
    if (came() || entries_.empty())
        return;
    polled.push_back({listener_.get(), POLLIN, 0});
    for (const Stranger &stranger : strangers_)
        polled.push_back({stranger.socket.get(), POLLIN, 0});
}

// Bytes

std::size_t RingLinks::send(std::span<const std::byte> bytes) {
    const ssize_t sent = ::send(after_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0)
        return static_cast<std::size_t>(sent);
    if (errno != EAGAIN && errno != EINTR)
        miss(neighbour(1), std::strerror(errno));
    return 0;
}

std::size_t RingLinks::receive(std::span<std::byte> bytes) {
    if (!before_)
        return 0;
    const ssize_t got = recv(before_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0)
        return static_cast<std::size_t>(got);
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        ended_ = got == 0 ? "its connection is closed" : std::strerror(errno);
        before_.reset();
    }
    return 0;
}

void RingLinks::starve() {
    if (ended_ && !lost_)
        miss(neighbour(-1), *ended_);
}

// A neighbour is gone. If that is because of another, it has said so before.
void RingLinks::miss(uint16_t rank, std::string_view why) {
    hear();
    lose(rank, fmt::format("rank {} has left the ring: {}", rank, why));
}

// Notices

void RingLinks::hear() {
    Notice notice;
    for (int i = 0; i < most_notices; i++) {
        const ssize_t bytes = recv(notices_.get(), &notice, sizeof(notice), MSG_TRUNC);
        if (bytes < 0)
            return;
        const auto entry = std::ranges::find(entries_, notice.from, &RingEntry::nonce);
        if (bytes != sizeof(notice) || notice.to != own_.nonce || entry == entries_.end())
            continue;
        const auto from = static_cast<uint16_t>(entry - entries_.begin());
        presences_[from] = {notice.calls, monotonic_ns()};
        if (notice.asks)
            tell(from, nobody, false);
        if (notice.gone == from)
            lose(from, fmt::format("rank {} has left the ring: its own error says why", from));
        else if (notice.gone != nobody)
            lose(notice.gone, fmt::format("rank {} has left the ring, says rank {}", notice.gone, from));
    }
}

// Best effort: who asks, asks again, and who is gone is known from two sides.
void RingLinks::tell(uint16_t rank, uint16_t gone, bool asks) const {
    const Notice notice{entries_[rank].nonce, own_.nonce, presences_[rank_].calls, gone, asks};
    sockaddr_storage address = address_of(rank, entries_[rank].notice_port);
    sendto(notices_.get(), &notice, sizeof(notice), MSG_NOSIGNAL, generic(address), length_);
}

void RingLinks::tell_all(uint16_t gone, bool asks) const {
    for (uint16_t rank = 0; rank < entries_.size(); rank++)
        if (rank != rank_)
            tell(rank, gone, asks);
}

void RingLinks::ask() { tell_all(nobody, true); }

uint64_t RingLinks::missing(uint32_t calls, uint64_t since_ns) const {
    uint64_t silent = 0, behind = 0;
    uint32_t fewest = calls - 1;
    for (uint16_t rank = 0; rank < size_; rank++) {
        if (rank == rank_)
            continue;
        if (presences_[rank].heard_ns < since_ns)
            silent |= inagg_rank_bit(rank);
        if (presences_[rank].calls < fewest)
            behind = 0;
        fewest = std::min(fewest, presences_[rank].calls);
        if (presences_[rank].calls == fewest)
            behind |= inagg_rank_bit(rank);
    }
    return silent ? silent : behind;
}

std::string RingLinks::trouble() const {
    if (greeted_ < sizeof(Greeting))
        return fmt::format("rank {} to take a TCP connection", neighbour(1));
    if (!came())
        return fmt::format("rank {} to make a TCP connection", neighbour(-1));
    return fmt::format("bytes of rank {}, or for rank {}, that do not get through", neighbour(-1), neighbour(1));
}

// All others are told before this rank's connections close, so that they do not take it for the one that is gone.
void RingLinks::lose(uint16_t rank, const std::string &why) {
    if (lost_)
        return;
    lost_ = Error(INAGG_ECLOSED, "job {}: {}", job_, why);
    tell_all(rank, false);
    before_.reset();
    after_.reset();
}

void RingLinks::break_off() { lose(rank_, "the ranks' calls differ"); }

} // namespace inagg
