// SPDX-License-Identifier: BSD-2-Clause
#include "udp_io.hpp"

#include "common/ecn.hpp"
#include "device_of.hpp"
#include "engine.hpp"
#include "errors.hpp"
#include "options.hpp"
#include "port_of.hpp"
#include "transports.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace inagg {

namespace {

constexpr unsigned rx_buffers = 256; // a power of two
constexpr unsigned completion_entries = 2048;
constexpr int buffer_group = 0;
constexpr int socket_buffer_bytes = 4 << 20;
constexpr uint32_t packet_cost = 4608; // of a received packet in the socket's books: a page, and an sk_buff
constexpr uint64_t send_tag = 0, cancel_tag = 1, first_receive_tag = 2;
constexpr std::size_t alignment = 64;

void set_option(int fd, int level, int name, int value, const char *text) {
    if (setsockopt(fd, level, name, &value, sizeof(value)))
        throw system_error(text);
}

// As much as the system allows: with CAP_NET_ADMIN everything, else up to net.core.{r,w}mem_max.
void enlarge(int fd, int forced, int plain, int bytes = socket_buffer_bytes) {
    if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof(bytes)))
        setsockopt(fd, SOL_SOCKET, plain, &bytes, sizeof(bytes));
}

// What every socket of the transport needs: no UDP checksums (veth leaves them unfinished and XDP could
// not use them), packets that fit the interface whatever ICMP says, room for a whole window.
Fd udp_socket(int family) {
    Fd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int fd = socket.get();
    if (fd < 0)
        throw system_error("socket");
    if (family == AF_INET) {
        set_option(fd, SOL_SOCKET, SO_NO_CHECK, 1, "SO_NO_CHECK");
        set_option(fd, IPPROTO_IP, IP_TOS, INAGG_TOS, "IP_TOS");
        set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_INTERFACE, "IP_MTU_DISCOVER");
    } else {
        set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, 1, "UDP_NO_CHECK6_TX");
        set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX");
        set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, INAGG_TOS, "IPV6_TCLASS");
        set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_INTERFACE, "IPV6_MTU_DISCOVER");
    }
    enlarge(fd, SO_RCVBUFFORCE, SO_RCVBUF);
    enlarge(fd, SO_SNDBUFFORCE, SO_SNDBUF);
    return socket;
}

sockaddr_storage local_address(int fd) {
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    if (getsockname(fd, reinterpret_cast<sockaddr *>(&local), &length))
        throw system_error("getsockname");
    return local;
}

// A send that failed like this may succeed when it is repeated; the engine's timers see to that.
constexpr int passing[] = {
    EAGAIN,
    ENOBUFS,
    ENETDOWN,
    ENOMEM,
    EINTR,
    EPERM,
    // what ICMP says, and anybody can forge that
    ECONNREFUSED,
    ENETUNREACH,
    EHOSTUNREACH,
    EHOSTDOWN,
    ENONET,
    ENOPROTOOPT,
    EOPNOTSUPP,
    EPROTO,
    EACCES,
};

void mark_send(io_uring_sqe *sqe) {
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, send_tag);
}

bool is_passing(int error) { return std::ranges::find(passing, error) != std::end(passing); }

} // namespace

sockaddr_storage switch_address(const inagg_options &options) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo *found = nullptr;
    if (getaddrinfo(options.switch_address, std::to_string(INAGG_PORT).c_str(), &hints, &found))
        throw Error(INAGG_EINVAL, "switch address '{}': give an IPv4 or IPv6 address", options.switch_address);
    sockaddr_storage address{};
    std::memcpy(&address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return address;
}

UdpIo::UdpIo(const inagg_options &options)
    : options_(options), peer_(switch_address(options)),
      peer_length_(peer_.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)),
      marks_(inagg_reaction_of(algorithm_number(options.algorithm)) != INAGG_UNCONTROLLED) {
    arrival_.msg_controllen = ecn_control_bytes;
    open_socket();
    open_ring();
}

UdpIo::~UdpIo() {
    io_uring_unregister_buf_ring(&ring_, buffer_group);
    io_uring_queue_exit(&ring_);
}

// That the interface of a connected socket carries. Not IP_MTU: it heeds ICMP that other sockets of this host have been sent.
static std::size_t payload_of_path(int fd) {
    ifreq request{};
    const sockaddr_storage local = local_address(fd);
    const std::string name = device_of(local);
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    if (ioctl(fd, SIOCGIFMTU, &request))
        throw system_error(fmt::format("the MTU of interface '{}'", name));
    const std::size_t mtu = request.ifr_mtu, headers = (local.ss_family == AF_INET ? 20 : 40) + 8;
    return std::max(mtu, headers) - headers;
}

void UdpIo::open_socket() {
    const bool ipv4 = peer_.ss_family == AF_INET;
    unicast_.socket = udp_socket(peer_.ss_family);
    const int fd = unicast_.socket.get();
    if (marks_)
        set_option(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, 1, "IP_RECVTOS");
    if (connect(fd, reinterpret_cast<const sockaddr *>(&peer_), peer_length_))
        throw no_route(options_, errno);
    sockaddr_storage local = local_address(fd);
    receive_port_ = ntohs(port_of(local));
    path_payload_ = payload_of_path(fd);
}

static Error ring_error(int error) {
    if (error == ENOMEM)
        return {INAGG_ESYSTEM, "io_uring: {}: its memory counts as locked: raise the limit of ulimit -l, or free memory",
                std::strerror(error)};
    return {INAGG_ESYSTEM,
            "io_uring: {}: the udp transport needs Linux 6.0 and io_uring allowed "
            "(sysctl kernel.io_uring_disabled=0, no seccomp filter against it)",
            std::strerror(error)};
}

void UdpIo::expect(uint32_t packets) {
    const uint64_t bytes = std::min<uint64_t>(uint64_t{packets} * packet_cost, INT32_MAX / 2);
    for (const Listener *listener : {&unicast_, &group_})
        if (listener->socket && bytes > socket_buffer_bytes)
            enlarge(listener->socket.get(), SO_RCVBUFFORCE, SO_RCVBUF, static_cast<int>(bytes));
}

void UdpIo::open_ring() {
    const std::size_t packet = std::min(path_payload_, max_packet);
    // One word more than a packet: a longer one shows by its length.
    const std::size_t before = marks_ ? sizeof(io_uring_recvmsg_out) + ecn_control_bytes : 0;
    rx_stride_ = (before + packet + 8 + alignment - 1) / alignment * alignment;
    frame_stride_ = (std::max(packet + 8, max_packet) + alignment - 1) / alignment * alignment;
    tx_frames_ = allocate(tx_frames * frame_stride_, alignment);
    rx_buffers_ = allocate(rx_buffers * rx_stride_, alignment);
    rx_entries_ = allocate(rx_buffers * sizeof(io_uring_buf), sysconf(_SC_PAGESIZE));

    // Whoever drives the communicator reaps; nobody is interrupted for a completion.
    io_uring_params params{};
    params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL;
    params.cq_entries = completion_entries;
    if (const int error = io_uring_queue_init_params(tx_frames * 2, &ring_, &params))
        throw ring_error(-error);
    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<uint64_t>(rx_entries_.get());
    registration.ring_entries = rx_buffers;
    registration.bgid = buffer_group;
    if (const int error = io_uring_register_buf_ring(&ring_, &registration, 0)) {
        io_uring_queue_exit(&ring_);
        throw ring_error(-error);
    }
    io_uring_buf_ring_init(rx_ring());
    for (unsigned id = 0; id < rx_buffers; id++)
        give_buffer(id);
}

UdpIo::Buffers UdpIo::allocate(std::size_t bytes, std::size_t aligned) const {
    void *memory = std::aligned_alloc(aligned, (bytes + aligned - 1) / aligned * aligned);
    if (!memory)
        throw system_error("memory for packets", ENOMEM);
    return Buffers(static_cast<std::byte *>(memory));
}

// Sending. Sends never block (MSG_DONTWAIT), so a frame is free again as soon as it is submitted, and a
// send that worked leaves no completion behind.

std::byte *UdpIo::reserve() noexcept {
    if (queued_ == tx_frames)
        submit();
    return tx_frames_.get() + next_frame_ * frame_stride_;
}

void UdpIo::commit(std::size_t bytes) noexcept {
    std::byte *frame = tx_frames_.get() + next_frame_ * frame_stride_;
    Joined &packet = packets_[next_frame_];
    packet.sqe = nullptr;
    heed_loss(frame, bytes);
    if (last_ && joins(*last_, frame, bytes)) {
        join(*last_, frame, bytes);
    } else {
        packet.sqe = next_sqe();
        if (!packet.sqe)
            return; // lost, as in a network; the timer repeats it
        io_uring_prep_send(packet.sqe, unicast_.socket.get(), frame, bytes, MSG_DONTWAIT);
        mark_send(packet.sqe);
        packet.blocks = 1;
        packet.parts[0] = {frame, bytes};
        last_ = &packet;
    }
    next_frame_ = (next_frame_ + 1) % tx_frames;
    queued_++;
}

void UdpIo::join_blocks(const inagg_job_config &job) {
    const std::size_t room = path_payload_ - std::min(path_payload_, sizeof(inagg_hdr));
    block_bytes_ = sizeof(inagg_hdr) + std::size_t{job.elements} * 4;
    data_slots_ = job.slots;
    most_blocks_ = std::min<unsigned>(job.blocks, inagg_blocks_of_room(job.elements, static_cast<uint32_t>(room)));
}

static inagg_hdr header_at(const void *frame) {
    inagg_hdr header;
    std::memcpy(&header, frame, sizeof(header));
    return header;
}

// The next data block, for the first time, and in all else as that before?
bool UdpIo::joins(const Joined &packet, const std::byte *frame, std::size_t bytes) const {
    const unsigned blocks = packet.blocks;
    if (blocks >= most_blocks_ || bytes != block_bytes_ ||
        packet.parts[blocks - 1].iov_len + sizeof(inagg_hdr) * (blocks > 1) != bytes)
        return false;
    const inagg_hdr first = header_at(packet.parts[0].iov_base);
    inagg_hdr next = header_at(frame);
    if (inagg_hdr_type(&first) != INAGG_CONTRIBUTION || !inagg_may_be_joined(&first) ||
        inagg_swap32(first.slot) + blocks >= data_slots_)
        return false;
    next.block = inagg_swap32(inagg_swap32(next.block) - blocks);
    next.slot = inagg_swap32(inagg_swap32(next.slot) - blocks);
    next.checksum = first.checksum;
    return std::memcmp(&first, &next, sizeof(first)) == 0;
}

void UdpIo::join(Joined &packet, std::byte *frame, std::size_t bytes) {
    packet.parts[packet.blocks++] = {frame + sizeof(inagg_hdr), bytes - sizeof(inagg_hdr)};
    packet.message = {};
    packet.message.msg_iov = packet.parts.data();
    packet.message.msg_iovlen = packet.blocks;
    io_uring_prep_sendmsg(packet.sqe, unicast_.socket.get(), &packet.message, MSG_DONTWAIT);
    mark_send(packet.sqe);
    if (++joined_ == 1024) {
        joined_ /= 2;
        resent_ /= 2;
    }
}

// Not every path carries what its ends' interfaces do, nor does every driver let XDP look at it: where half of the blocks that
// left together, of the last thousand, had to be sent again, each goes by itself from now on.
void UdpIo::heed_loss(const std::byte *frame, std::size_t bytes) {
    if (most_blocks_ < 2 || bytes != block_bytes_)
        return;
    const inagg_hdr header = header_at(frame);
    resent_ += inagg_hdr_type(&header) == INAGG_CONTRIBUTION && (inagg_swap16(header.level_flags) & INAGG_F_RESEND);
    if (resent_ > 16 && resent_ * 2 > joined_)
        most_blocks_ = 1;
}

void UdpIo::flush() {
    if (queued_)
        submit();
}

void UdpIo::submit() {
    io_uring_submit(&ring_);
    release_frames();
}

// For other packets, also those that the kernel had no memory to take: they are lost, as in a network.
void UdpIo::release_frames() {
    for (unsigned back = 1; io_uring_sq_ready(&ring_) && back <= queued_; back++)
        if (io_uring_sqe *sqe = packets_[(next_frame_ + tx_frames - back) % tx_frames].sqe) {
            io_uring_prep_nop(sqe);
            mark_send(sqe);
        }
    queued_ = 0;
    last_ = nullptr;
}

io_uring_sqe *UdpIo::next_sqe() {
    io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
    if (sqe)
        return sqe;
    submit();
    return io_uring_get_sqe(&ring_);
}

// Receiving.

void UdpIo::receive(PacketReceiver &receiver, std::chrono::nanoseconds wait) {
    arm();
    if (io_uring_cq_ready(&ring_))
        wait = std::chrono::nanoseconds(0);
    wait_for_events(wait);
    while (reap(receiver) == completion_entries / 2)
        ;
    if (failure_ == EMSGSIZE)
        check_path();
    if (failure_)
        throw system_error(fmt::format("sending to the switch at {}", options_.switch_address), failure_);
}

// A packet was too long: for its interface, or for somebody's ICMP, after which the next one is sent.
void UdpIo::check_path() {
    const std::size_t now = payload_of_path(unicast_.socket.get());
    if (now < path_payload_ && now >= std::max(block_bytes_, sizeof(inagg_hdr)) && most_blocks_ > 1) {
        path_payload_ = now; // of one block it still has room
        most_blocks_ = 1;
    }
    if (now < path_payload_)
        throw Error(
            INAGG_ESYSTEM,
            "the path to the switch at {} carried packets of {} bytes when rank {} joined job {}, and now no more than {}: "
            "restore its MTU, or start all ranks again",
            options_.switch_address, path_payload_, options_.rank, options_.job, now);
    failure_ = 0;
}

// The kernel completes a request on the thread that made it. When another thread takes over (the
// keeper, a second thread of the application) it asks for packets anew.
void UdpIo::arm() {
    const bool moved = owner_ != std::this_thread::get_id();
    owner_ = std::this_thread::get_id();
    for (Listener *listener : {&unicast_, &group_}) {
        if (listener->socket.get() < 0)
            continue;
        if (moved && listener->armed) {
            if (io_uring_sqe *sqe = next_sqe()) {
                io_uring_prep_cancel64(sqe, listener->tag, 0);
                io_uring_sqe_set_data64(sqe, cancel_tag);
            }
            listener->armed = false;
        }
        if (!listener->armed)
            arm(*listener);
    }
}

void UdpIo::arm(Listener &listener) {
    io_uring_sqe *sqe = next_sqe();
    if (!sqe)
        return;
    if (multishot_ && marks_)
        io_uring_prep_recvmsg_multishot(sqe, listener.socket.get(), &arrival_, 0);
    else if (multishot_)
        io_uring_prep_recv_multishot(sqe, listener.socket.get(), nullptr, 0, 0);
    else
        io_uring_prep_recv(sqe, listener.socket.get(), nullptr, rx_stride_, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = buffer_group;
    listener.tag = first_receive_tag + last_tag_++;
    listener.armed = true;
    io_uring_sqe_set_data64(sqe, listener.tag);
}

void UdpIo::wait_for_events(std::chrono::nanoseconds wait) {
    __kernel_timespec timeout{};
    timeout.tv_sec = wait.count() / 1'000'000'000;
    timeout.tv_nsec = wait.count() % 1'000'000'000;
    io_uring_cqe *cqe = nullptr;
    int result;
    if (wait.count() > 0)
        result = io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &timeout, nullptr);
    else if (io_uring_sq_ready(&ring_))
        result = io_uring_submit_and_get_events(&ring_);
    else
        result = io_uring_peek_cqe(&ring_, &cqe); // a system call only if the kernel has something
    release_frames();
    if (result < 0 && result != -ETIME && result != -EINTR && result != -EAGAIN && result != -EBUSY)
        throw system_error("io_uring_enter", -result);
}

// Handles at most half a completion queue, then returns how many.
unsigned UdpIo::reap(PacketReceiver &receiver) {
    unsigned head, count = 0;
    io_uring_cqe *cqe;
    io_uring_for_each_cqe(&ring_, head, cqe) {
        const uint64_t tag = io_uring_cqe_get_data64(cqe);
        if (tag == send_tag)
            on_send_failed(-cqe->res);
        else if (tag != cancel_tag)
            on_received(*cqe, receiver);
        if (++count == completion_entries / 2)
            break;
    }
    io_uring_cq_advance(&ring_, count);
    return count;
}

void UdpIo::on_received(const io_uring_cqe &cqe, PacketReceiver &receiver) {
    if (cqe.flags & IORING_CQE_F_BUFFER) {
        const unsigned id = cqe.flags >> IORING_CQE_BUFFER_SHIFT;
        if (cqe.res > 0)
            hand_over(rx_buffers_.get() + id * rx_stride_, cqe.res, receiver);
        give_buffer(id);
    }
    if (cqe.res == -EINVAL)
        multishot_ = false; // an older kernel
    if (!(cqe.flags & IORING_CQE_F_MORE))
        for (Listener *listener : {&unicast_, &group_})
            if (listener->tag == io_uring_cqe_get_data64(&cqe))
                listener->armed = false;
}

void UdpIo::hand_over(std::byte *buffer, int bytes, PacketReceiver &receiver) {
    if (!marks_ || !multishot_)
        return receiver.packet({buffer, static_cast<std::size_t>(bytes)}, false);
    io_uring_recvmsg_out *out = io_uring_recvmsg_validate(buffer, bytes, &arrival_);
    if (!out)
        return;
    const auto *payload = static_cast<const std::byte *>(io_uring_recvmsg_payload(out, &arrival_));
    receiver.packet({payload, io_uring_recvmsg_payload_length(out, bytes, &arrival_)}, is_congested(out, &arrival_));
}

void UdpIo::give_buffer(unsigned id) {
    io_uring_buf_ring_add(rx_ring(), rx_buffers_.get() + id * rx_stride_, rx_stride_, id, io_uring_buf_ring_mask(rx_buffers), 0);
    io_uring_buf_ring_advance(rx_ring(), 1);
}

void UdpIo::on_send_failed(int error) {
    if (error > 0 && !is_passing(error))
        failure_ = error;
}

// A static job's results come by multicast, on the interface that leads to the switch.
void UdpIo::join_group(std::span<const uint8_t, 16> group, uint16_t port) {
    const bool ipv4 = peer_.ss_family == AF_INET;
    const unsigned interface = if_nametoindex(device_of(local_address(unicast_.socket.get())).c_str());
    Fd socket = udp_socket(peer_.ss_family);
    const int fd = socket.get();
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
    sockaddr_storage address{};
    socklen_t length;
    if (ipv4) {
        auto &in = reinterpret_cast<sockaddr_in &>(address);
        in.sin_family = AF_INET;
        in.sin_port = htons(port);
        std::memcpy(&in.sin_addr, group.data(), 4);
        length = sizeof(in);
    } else {
        auto &in6 = reinterpret_cast<sockaddr_in6 &>(address);
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(port);
        in6.sin6_scope_id = interface;
        std::memcpy(&in6.sin6_addr, group.data(), 16);
        length = sizeof(in6);
    }
    if (bind(fd, reinterpret_cast<sockaddr *>(&address), length))
        throw system_error(fmt::format("binding to the job's group, UDP port {}", port));
    group_req request{};
    request.gr_interface = interface;
    std::memcpy(&request.gr_group, &address, length);
    if (setsockopt(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &request, sizeof(request)))
        throw system_error("joining the job's group");
    if (connect(fd, reinterpret_cast<const sockaddr *>(&peer_), peer_length_)) // only the switch may speak
        throw system_error("connecting the group's socket");
    group_.socket = std::move(socket);
}

std::unique_ptr<PacketIo> make_udp_io(const inagg_options &options) { return std::make_unique<UdpIo>(options); }

std::unique_ptr<Transport> make_udp(const inagg_options &options, BlockClient &client) {
    auto io = std::make_unique<UdpIo>(options);
    const Membership membership = join(*io, options);
    io->expect(membership.config.slots + membership.config.control_slots);
    return std::make_unique<Engine>("udp", std::move(io), membership, client, options);
}

} // namespace inagg
