// SPDX-License-Identifier: BSD-2-Clause
// The afxdp transport: the engine over an AF_XDP socket (copy mode, any driver). Joins go through a UDP
// socket, which also gets what comes by another receive queue.
#include "engine.hpp"
#include "error.hpp"
#include "errors.hpp"
#include "join.hpp"
#include "transports.hpp"
#include "xdp_device.hpp"

#include <bpf/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <xdp/xsk.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace inagg {

using namespace std::chrono_literals;

namespace {

constexpr uint32_t fewest_frames = 1024, most_frames = 8192; // to receive in; powers of two
constexpr uint32_t transmit_frames = 512;
constexpr uint32_t frame_bytes = 4096;
constexpr unsigned wake_tries = 64;          // a window takes 16
constexpr std::size_t transmit_offset = 128; // of the UDP payload in its frame
constexpr auto socket_check = 50ms;
constexpr auto stuck_check = 1ms;

struct UmemDeleter {
    void operator()(xsk_umem *umem) const { xsk_umem__delete(umem); }
};
struct SocketDeleter {
    void operator()(xsk_socket *socket) const { xsk_socket__delete(socket); }
};
struct Free {
    void operator()(std::byte *memory) const { std::free(memory); }
};

class AfxdpIo final : public PacketIo {
public:
    AfxdpIo(std::unique_ptr<XdpDevice> device, std::unique_ptr<PacketIo> udp);

    // From now on through AF_XDP: the switch has answered, so the way to it is known. Two windows of so many packets
    // may arrive while nobody looks.
    void activate(const JobConfig &job);

    std::byte *reserve() noexcept override;
    void commit(std::size_t bytes) noexcept override;
    void flush() override;
    void receive(PacketReceiver &receiver, std::chrono::nanoseconds wait) override;
    void join_group(std::span<const uint8_t, 16> group, uint16_t port) override;
    uint16_t receive_port() const override { return udp_->receive_port(); }
    std::size_t path_payload() const override { return udp_->path_payload(); }

private:
    void open_socket();
    void steer();
    void fill(uint32_t count);
    void reclaim();
    void wake_sender();
    uint32_t reap(PacketReceiver &receiver);
    void deliver(PacketReceiver &receiver, const xdp_desc &descriptor) const;
    bool from_switch(const std::byte *frame) const;
    bool is_marked(const std::byte *frame) const;

    std::unique_ptr<XdpDevice> device_;
    std::unique_ptr<PacketIo> udp_;
    bool grouped_ = false;
    bool active_ = false;
    FrameHeader header_;

    uint32_t receive_frames_ = fewest_frames;
    std::unique_ptr<std::byte, Free> memory_;
    std::unique_ptr<xsk_umem, UmemDeleter> umem_;
    std::unique_ptr<xsk_socket, SocketDeleter> socket_; // goes before its umem
    xsk_ring_prod fill_{}, transmit_{};
    xsk_ring_cons completed_{}, received_{};
    std::vector<uint64_t> free_; // addresses of frames to send in
    std::byte emergency_[frame_bytes];
    uint64_t reserved_ = 0; // address of the frame reserved last
    bool have_reserved_ = false;
    uint32_t queued_ = 0; // descriptors not submitted yet
    bool stuck_ = false;  // the kernel has left some
    std::chrono::steady_clock::time_point socket_checked_{};
};

AfxdpIo::AfxdpIo(std::unique_ptr<XdpDevice> device, std::unique_ptr<PacketIo> udp)
    : device_(std::move(device)), udp_(std::move(udp)) {
    device_->expect_config(receive_port());
}

void AfxdpIo::activate(const JobConfig &job) {
    if (grouped_) // others on this host share the only copy, and answers to one rank come elsewhere
        throw results_to_group(job.job);
    receive_frames_ = std::bit_ceil(std::clamp(2 * job.slots, fewest_frames, most_frames));
    header_ = device_->frame_header(receive_port());
    open_socket();
    fill(receive_frames_);
    for (uint32_t i = 0; i < transmit_frames; i++)
        free_.push_back(uint64_t{receive_frames_ + i} * frame_bytes);
    steer();
    active_ = true;
}

void AfxdpIo::open_socket() {
    const std::size_t bytes = std::size_t{receive_frames_ + transmit_frames} * frame_bytes;
    memory_.reset(static_cast<std::byte *>(std::aligned_alloc(frame_bytes, bytes)));
    if (!memory_)
        throw system_error("memory for packets", ENOMEM);
    xsk_umem_config umem_config{};
    umem_config.fill_size = receive_frames_;
    umem_config.comp_size = transmit_frames;
    umem_config.frame_size = frame_bytes;
    // Behind the kernel's own 256 bytes: UDP payloads start at a multiple of 8.
    umem_config.frame_headroom = static_cast<uint32_t>((8 - header_.size % 8) % 8);
    xsk_umem *umem = nullptr;
    const int failed = xsk_umem__create(&umem, memory_.get(), bytes, &fill_, &completed_, &umem_config);
    if (failed == -EPERM)
        throw Error(INAGG_EPRIVILEGE, "transport afxdp needs CAP_NET_RAW: run as root or use transport udp");
    if (failed)
        throw system_error(fmt::format("AF_XDP memory: {} KiB, locked: see `ulimit -l`", bytes / 1024), -failed);
    umem_.reset(umem);

    xsk_socket_config config{};
    config.rx_size = receive_frames_;
    config.tx_size = transmit_frames;
    config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
    config.bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP;
    xsk_socket *socket = nullptr;
    const int error =
        xsk_socket__create(&socket, device_->name().c_str(), INAGG_SOCKET_QUEUE, umem, &received_, &transmit_, &config);
    if (error == -EBUSY)
        throw Error(INAGG_ESYSTEM,
                    "another AF_XDP socket has queue {} of device {}: only one rank of a device can use transport "
                    "afxdp, xdp and udp have no such limit",
                    INAGG_SOCKET_QUEUE, device_->name());
    if (error)
        throw system_error(fmt::format("AF_XDP socket on device {}", device_->name()), -error);
    socket_.reset(socket);
}

void AfxdpIo::steer() {
    const uint32_t index = receive_port();
    const int fd = xsk_socket__fd(socket_.get());
    if (bpf_map_update_elem(device_->sockets(), &index, &fd, BPF_ANY)) // leaves with the socket
        throw system_error("steering packets into AF_XDP");
}

void AfxdpIo::join_group(std::span<const uint8_t, 16> group, uint16_t port) {
    grouped_ = true;
    udp_->join_group(group, port);
}

// Sending.

std::byte *AfxdpIo::reserve() noexcept {
    if (!active_)
        return udp_->reserve();
    if (free_.empty()) {
        wake_sender();
        reclaim();
    }
    have_reserved_ = !free_.empty();
    if (!have_reserved_)
        return emergency_ + transmit_offset;
    reserved_ = free_.back();
    return memory_.get() + reserved_ + transmit_offset;
}

void AfxdpIo::commit(std::size_t bytes) noexcept {
    if (!active_)
        return udp_->commit(bytes);
    uint32_t index = 0;
    if (!have_reserved_ || xsk_ring_prod__reserve(&transmit_, 1, &index) != 1)
        return; // lost, as in a network; the timer repeats it
    free_.pop_back();
    header_.write_before(memory_.get() + reserved_ + transmit_offset, bytes);
    xdp_desc *descriptor = xsk_ring_prod__tx_desc(&transmit_, index);
    descriptor->addr = reserved_ + transmit_offset - header_.size;
    descriptor->len = static_cast<uint32_t>(header_.size + bytes);
    descriptor->options = 0;
    queued_++;
}

void AfxdpIo::flush() {
    if (!active_)
        return udp_->flush();
    if (!queued_ && !stuck_)
        return;
    wake_sender();
    reclaim();
}

// In copy mode the kernel sends inside the call, some frames a time; or one fewer and EBUSY if the device dropped it. A queue
// that stands still must not keep us here.
void AfxdpIo::wake_sender() {
    xsk_ring_prod__submit(&transmit_, queued_);
    queued_ = 0;
    stuck_ = true;
    for (unsigned i = 0; i < wake_tries && stuck_; i++) {
        const bool sent = sendto(xsk_socket__fd(socket_.get()), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0;
        stuck_ = !sent && (errno == EAGAIN || errno == EBUSY);
    }
}

void AfxdpIo::reclaim() {
    uint32_t index = 0;
    const uint32_t count = static_cast<uint32_t>(xsk_ring_cons__peek(&completed_, transmit_frames, &index));
    for (uint32_t i = 0; i < count; i++)
        free_.push_back(*xsk_ring_cons__comp_addr(&completed_, index + i) / frame_bytes * frame_bytes);
    xsk_ring_cons__release(&completed_, count);
}

// Receiving.

void AfxdpIo::fill(uint32_t count) {
    uint32_t index = 0;
    xsk_ring_prod__reserve(&fill_, count, &index);
    for (uint32_t i = 0; i < count; i++)
        *xsk_ring_prod__fill_addr(&fill_, index + i) = uint64_t{i} * frame_bytes;
    xsk_ring_prod__submit(&fill_, count);
}

bool AfxdpIo::from_switch(const std::byte *frame) const {
    // Source and destination trade places; the source address precedes the destination's.
    const std::size_t address = device_->family() == 4 ? 4 : 16;
    return std::memcmp(frame + header_.size - 8 - 2 * address, device_->switch_address().data(), address) == 0;
}

// Has a router on the way marked it because of its queue (RFC 3168)?
bool AfxdpIo::is_marked(const std::byte *frame) const {
    const bool is_v4 = device_->family() == 4;
    const std::size_t ip = header_.size - sizeof(udphdr) - (is_v4 ? sizeof(iphdr) : sizeof(ipv6hdr)); // a VLAN tag may precede it
    const auto second = std::to_integer<unsigned>(frame[ip + 1]);
    return ((is_v4 ? second : second >> 4) & 3) == 3;
}

void AfxdpIo::deliver(PacketReceiver &receiver, const xdp_desc &descriptor) const {
    const std::byte *frame = memory_.get() + descriptor.addr;
    if (descriptor.len < header_.size || !from_switch(frame))
        return;
    const auto udp_length = static_cast<std::size_t>(std::to_integer<unsigned>(frame[header_.size - 4]) << 8 |
                                                     std::to_integer<unsigned>(frame[header_.size - 3]));
    if (udp_length < 8 || udp_length - 8 > descriptor.len - header_.size)
        return;
    receiver.packet({frame + header_.size, udp_length - 8}, is_marked(frame));
}

uint32_t AfxdpIo::reap(PacketReceiver &receiver) {
    uint32_t index = 0, back = 0;
    const uint32_t count = static_cast<uint32_t>(xsk_ring_cons__peek(&received_, receive_frames_, &index));
    if (!count)
        return 0;
    // These frames came from it; the kernel says so right after it has handed them over.
    while (xsk_ring_prod__reserve(&fill_, count, &back) != count)
        ;
    for (uint32_t i = 0; i < count; i++) {
        const xdp_desc descriptor = *xsk_ring_cons__rx_desc(&received_, index + i);
        deliver(receiver, descriptor);
        *xsk_ring_prod__fill_addr(&fill_, back + i) = descriptor.addr / frame_bytes * frame_bytes;
    }
    xsk_ring_prod__submit(&fill_, count);
    xsk_ring_cons__release(&received_, count);
    return count;
}

void AfxdpIo::receive(PacketReceiver &receiver, std::chrono::nanoseconds wait) {
    if (!active_)
        return udp_->receive(receiver, wait);
    flush();
    if (!reap(receiver) && wait.count() > 0) {
        const auto longest = std::min<std::chrono::nanoseconds>(wait, stuck_ ? stuck_check : socket_check);
        timespec timeout{};
        timeout.tv_nsec = static_cast<long>(longest.count());
        pollfd sockets[] = {{xsk_socket__fd(socket_.get()), POLLIN, 0}, {udp_->descriptor(), POLLIN, 0}};
        if (ppoll(sockets, 2, &timeout, nullptr) > 0)
            reap(receiver);
        if (sockets[1].revents)
            socket_checked_ = {};
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - socket_checked_ > socket_check) {
        socket_checked_ = now;
        udp_->receive(receiver, 0ns);
    }
}

} // namespace

std::unique_ptr<Transport> make_afxdp(const inagg_options &options, BlockClient &client) {
    auto io =
        std::make_unique<AfxdpIo>(std::make_unique<XdpDevice>("afxdp", options.switch_address, false), make_udp_io(options));
    const Membership membership = join(*io, options);
    std::string name = "afxdp";
    try {
        io->activate(membership.config);
    } catch (const Error &) {
        need_auto(*io, membership, options);
        name = "udp";
    }
    return std::make_unique<Engine>(name, std::move(io), membership, client, options);
}

} // namespace inagg
