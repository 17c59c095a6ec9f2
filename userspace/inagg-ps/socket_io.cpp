// SPDX-License-Identifier: BSD-2-Clause
#include "socket_io.hpp"

#include "common/ecn.hpp"
#include "error.hpp"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace ps {

using inaggd::Address;
using inaggd::Error;
using inaggd::system_text;

namespace {

constexpr std::size_t max_packet = sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD;
constexpr std::size_t alignment = 64;
constexpr std::size_t frame_stride = (max_packet + alignment - 1) / alignment * alignment;
constexpr unsigned frames = 64, messages = 256, submission_entries = 512, completion_entries = 8192;
constexpr unsigned buffers = 2048; // a power of two
constexpr int buffer_group = 0;
constexpr int socket_buffer_bytes = 64 << 20; // windows of all ranks of several jobs
// One word more than a packet: a longer one shows by its length.
constexpr std::size_t buffer_stride =
    (sizeof(io_uring_recvmsg_out) + sizeof(sockaddr_storage) + inagg::ecn_control_bytes + max_packet + 8 + alignment - 1) /
    alignment * alignment;
static_assert((sizeof(io_uring_recvmsg_out) + sizeof(sockaddr_storage) + inagg::ecn_control_bytes) % 8 == 0);
constexpr uint64_t send_tag = ~uint64_t{0}, watch_tag = send_tag - 1; // others: a socket's index

void set_option(int fd, int level, int option, int value, const char *text) {
    if (setsockopt(fd, level, option, &value, sizeof value))
        throw Error("{}: {}", text, system_text(errno));
}

// As much as the system allows: with CAP_NET_ADMIN everything, else up to net.core.{r,w}mem_max.
void enlarge(int fd, int forced, int plain) {
    if (setsockopt(fd, SOL_SOCKET, forced, &socket_buffer_bytes, sizeof socket_buffer_bytes))
        setsockopt(fd, SOL_SOCKET, plain, &socket_buffer_bytes, sizeof socket_buffer_bytes);
}

Endpoint to_endpoint(const sockaddr_storage &storage) {
    Endpoint endpoint;
    if (storage.ss_family == AF_INET) {
        const auto &in = reinterpret_cast<const sockaddr_in &>(storage);
        endpoint.address.family = 4;
        endpoint.port = in.sin_port;
        std::memcpy(endpoint.address.bytes.data(), &in.sin_addr, sizeof in.sin_addr);
    } else {
        const auto &in6 = reinterpret_cast<const sockaddr_in6 &>(storage);
        endpoint.address.family = 6;
        endpoint.port = in6.sin6_port;
        std::memcpy(endpoint.address.bytes.data(), &in6.sin6_addr, sizeof in6.sin6_addr);
    }
    return endpoint;
}

Error ring_error(int error) {
    return Error("io_uring: {}: inagg-ps needs Linux 6.0 and io_uring allowed (sysctl kernel.io_uring_disabled=0, no "
                 "seccomp filter against it, enough locked memory: ulimit -l)",
                 system_text(error));
}

} // namespace

SocketIo::SocketIo(std::span<const Address> addresses) : messages_(messages) {
    for (const Address &address : addresses)
        open_socket(address);
    open_ring();
}

SocketIo::~SocketIo() {
    io_uring_queue_exit(&ring_);
    munmap(buffer_ring_, buffers * sizeof(io_uring_buf));
}

// No UDP checksums (RFC 6935), as everywhere in this protocol; as long as the interface takes, whatever ICMP says: anybody
// can forge that.
void SocketIo::open_socket(const Address &address) {
    const bool four = address.family == 4;
    inagg::Fd opening(socket(four ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    Socket &opened = sockets_.emplace_back(Socket{.fd = std::move(opening), .family = address.family});
    const int fd = opened.fd.get();
    if (fd < 0)
        throw Error("UDP socket: {}", system_text(errno));
    if (four) {
        set_option(fd, SOL_SOCKET, SO_NO_CHECK, 1, "SO_NO_CHECK");
        set_option(fd, IPPROTO_IP, IP_TOS, INAGG_TOS, "IP_TOS");
        set_option(fd, IPPROTO_IP, IP_RECVTOS, 1, "IP_RECVTOS");
        set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_INTERFACE, "IP_MTU_DISCOVER");
    } else {
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY");
        set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, 1, "UDP_NO_CHECK6_TX");
        set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX");
        set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, INAGG_TOS, "IPV6_TCLASS");
        set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS");
        set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_INTERFACE, "IPV6_MTU_DISCOVER");
    }
    enlarge(fd, SO_RCVBUFFORCE, SO_RCVBUF);
    enlarge(fd, SO_SNDBUFFORCE, SO_SNDBUF);
    int bytes = 0;
    socklen_t length = sizeof bytes;
    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &length);
    receive_buffer_ = std::min(receive_buffer_, bytes);

    sockaddr_storage local;
    length = address.to_sockaddr(htons(INAGG_PORT), local);
    if (bind(fd, reinterpret_cast<const sockaddr *>(&local), length))
        throw Error("--address {}: UDP port {}: {}; {}", address.text(), INAGG_PORT, system_text(errno),
                    errno == EADDRNOTAVAIL ? "give one of this machine's own addresses (ip address)"
                                           : "is another program using it? (ss -lunp)");
}

void SocketIo::open_ring() {
    frames_.reset(static_cast<std::byte *>(std::aligned_alloc(alignment, frames * frame_stride)));
    buffers_.reset(static_cast<std::byte *>(std::aligned_alloc(alignment, buffers * buffer_stride)));
    void *memory = mmap(nullptr, buffers * sizeof(io_uring_buf), PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    if (!frames_ || !buffers_ || memory == MAP_FAILED)
        throw Error("no memory for packets: {}", system_text(ENOMEM));
    buffer_ring_ = static_cast<io_uring_buf_ring *>(memory);

    io_uring_params params{};
    params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CQSIZE;
    params.cq_entries = completion_entries;
    if (const int error = io_uring_queue_init_params(submission_entries, &ring_, &params))
        throw ring_error(error);
    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<uint64_t>(memory);
    registration.ring_entries = buffers;
    registration.bgid = buffer_group;
    if (const int error = io_uring_register_buf_ring(&ring_, &registration, 0))
        throw ring_error(error);
    io_uring_buf_ring_init(buffer_ring_);
    for (unsigned id = 0; id < buffers; id++)
        give_buffer(id);
    arrival_.msg_namelen = sizeof(sockaddr_storage);
    arrival_.msg_controllen = inagg::ecn_control_bytes;
}

io_uring_sqe *SocketIo::next_sqe() {
    io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
    if (sqe)
        return sqe;
    flush();
    return io_uring_get_sqe(&ring_);
}

// Sending. Sends never block (MSG_DONTWAIT), so a frame is free again as soon as it is submitted, and one that worked
// leaves no completion behind.

void SocketIo::flush() {
    while (io_uring_sq_ready(&ring_) && io_uring_submit(&ring_) > 0) // it stops at what fails
        ;
    frames_queued_ = messages_queued_ = 0;
}

void SocketIo::send(const inagg_hdr &header, std::span<const std::byte> payload, std::span<const Endpoint> to) {
    if (frames_queued_ == frames || messages_queued_ + to.size() > messages)
        flush();
    std::byte *frame = frames_.get() + frames_queued_++ * frame_stride;
    std::memcpy(frame, &header, sizeof header);
    std::copy(payload.begin(), payload.end(), frame + sizeof header);
    for (const Endpoint &one : to) {
        const auto socket = std::ranges::find(sockets_, one.address.family, &Socket::family);
        if (one.port && socket != sockets_.end())
            queue(socket->fd.get(), frame, sizeof header + payload.size(), one);
    }
}

void SocketIo::queue(int fd, std::byte *frame, std::size_t bytes, const Endpoint &to) {
    io_uring_sqe *sqe = io_uring_get_sqe(&ring_); // there are more than messages
    if (!sqe)
        return; // lost, as in a network; whoever misses it asks
    Message &message = messages_[messages_queued_++];
    message.data = {frame, bytes};
    message.header = {};
    message.header.msg_name = &message.to;
    message.header.msg_namelen = to.address.to_sockaddr(to.port, message.to);
    message.header.msg_iov = &message.data;
    message.header.msg_iovlen = 1;
    io_uring_prep_sendmsg(sqe, fd, &message.header, MSG_DONTWAIT);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, send_tag);
}

// Receiving.

void SocketIo::watch(int fd) {
    watched_ = fd;
    watching_ = false;
}

void SocketIo::arm(std::size_t index) {
    io_uring_sqe *sqe = next_sqe();
    if (!sqe)
        return;
    io_uring_prep_recvmsg_multishot(sqe, sockets_[index].fd.get(), &arrival_, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = buffer_group;
    io_uring_sqe_set_data64(sqe, index);
    sockets_[index].armed = true;
}

void SocketIo::give_buffer(unsigned id) {
    io_uring_buf_ring_add(buffer_ring_, buffers_.get() + id * buffer_stride, buffer_stride, id, io_uring_buf_ring_mask(buffers),
                          0);
    io_uring_buf_ring_advance(buffer_ring_, 1);
}

void SocketIo::receive(const Receiver &receiver, std::chrono::milliseconds wait) {
    for (std::size_t index = 0; index < sockets_.size(); index++)
        if (!sockets_[index].armed)
            arm(index);
    if (io_uring_sqe *sqe = watched_ >= 0 && !watching_ ? next_sqe() : nullptr) {
        io_uring_prep_poll_add(sqe, watched_, POLLIN);
        io_uring_sqe_set_data64(sqe, watch_tag);
        watching_ = true;
    }
    __kernel_timespec timeout{};
    timeout.tv_sec = wait.count() / 1000;
    timeout.tv_nsec = wait.count() % 1000 * 1'000'000;
    io_uring_cqe *cqe = nullptr;
    const int result = io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &timeout, nullptr);
    frames_queued_ = messages_queued_ = 0;
    if (result < 0 && result != -ETIME && result != -EINTR && result != -EAGAIN && result != -EBUSY)
        throw Error("io_uring_enter: {}", system_text(result));

    unsigned head, count = 0;
    io_uring_for_each_cqe(&ring_, head, cqe) {
        const uint64_t tag = io_uring_cqe_get_data64(cqe);
        if (tag == watch_tag)
            watching_ = false;
        else if (tag != send_tag)
            on_received(tag, *cqe, receiver);
        count++;
    }
    io_uring_cq_advance(&ring_, count);
}

void SocketIo::on_received(std::size_t index, const io_uring_cqe &cqe, const Receiver &receiver) {
    if (!(cqe.flags & IORING_CQE_F_MORE))
        sockets_[index].armed = false;
    if (cqe.res == -EINVAL)
        throw ring_error(EINVAL);
    if (!(cqe.flags & IORING_CQE_F_BUFFER))
        return;
    const unsigned id = cqe.flags >> IORING_CQE_BUFFER_SHIFT;
    if (cqe.res > 0)
        hand_over(buffers_.get() + id * buffer_stride, cqe.res, receiver);
    give_buffer(id);
}

void SocketIo::hand_over(std::byte *buffer, int bytes, const Receiver &receiver) {
    io_uring_recvmsg_out *out = io_uring_recvmsg_validate(buffer, bytes, &arrival_);
    if (!out || out->flags & MSG_TRUNC)
        return;
    sockaddr_storage from;
    std::memcpy(&from, io_uring_recvmsg_name(out), sizeof from);
    const auto *payload = static_cast<const std::byte *>(io_uring_recvmsg_payload(out, &arrival_));
    receiver({payload, io_uring_recvmsg_payload_length(out, bytes, &arrival_)}, to_endpoint(from),
             inagg::is_congested(out, &arrival_));
}

} // namespace ps
