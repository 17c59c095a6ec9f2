// SPDX-License-Identifier: BSD-2-Clause
// UDP datagrams through io_uring: one system call sends a batch and waits for the next.
#pragma once

#include "common/fd.hpp"
#include "packet_io.hpp"

#include <inagg/inagg.h>

#include <liburing.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace inagg {

class UdpIo final : public PacketIo {
public:
    explicit UdpIo(const inagg_options &options);
    ~UdpIo() override;

    std::byte *reserve() noexcept override;
    void commit(std::size_t bytes) noexcept override;
    void join_blocks(const inagg_job_config &job) override;
    void flush() override;
    void receive(PacketReceiver &receiver, std::chrono::nanoseconds wait) override;
    int descriptor() const override { return ring_.ring_fd; }
    void join_group(std::span<const uint8_t, 16> group, uint16_t port) override;
    uint16_t receive_port() const override { return receive_port_; }
    std::size_t path_payload() const override { return path_payload_; }
    // Room for so many packets that arrive while nobody looks, as far as the system allows.
    void expect(uint32_t packets);

private:
    // One socket's receive request; each arming has a tag of its own, so that the end of a cancelled
    // request is not taken for the end of its successor.
    struct Listener {
        Fd socket;
        uint64_t tag = 0;
        bool armed = false;
    };
    struct Free {
        void operator()(std::byte *memory) const { std::free(memory); }
    };
    using Buffers = std::unique_ptr<std::byte[], Free>;
    // Frames that leave as one packet: the elements of all behind the header of the first.
    struct Joined {
        io_uring_sqe *sqe; // none: the frame is not the first
        msghdr message;    // of several
        unsigned blocks;
        std::array<iovec, INAGG_MAX_BLOCKS> parts;
    };
    static constexpr unsigned tx_frames = 256;

    void open_socket();
    void open_ring();
    void check_path();
    Buffers allocate(std::size_t bytes, std::size_t aligned) const;
    io_uring_buf_ring *rx_ring() { return reinterpret_cast<io_uring_buf_ring *>(rx_entries_.get()); }
    io_uring_sqe *next_sqe();
    void submit();
    void release_frames();
    bool joins(const Joined &packet, const std::byte *frame, std::size_t bytes) const;
    void join(Joined &packet, std::byte *frame, std::size_t bytes);
    void heed_loss(const std::byte *frame, std::size_t bytes);
    void arm();
    void arm(Listener &listener);
    void give_buffer(unsigned id);
    void wait_for_events(std::chrono::nanoseconds wait);
    unsigned reap(PacketReceiver &receiver);
    void on_received(const io_uring_cqe &cqe, PacketReceiver &receiver);
    void hand_over(std::byte *buffer, int bytes, PacketReceiver &receiver);
    void on_send_failed(int error);

    const inagg_options options_;
    const sockaddr_storage peer_;
    const socklen_t peer_length_;
    uint16_t receive_port_ = 0;
    std::size_t path_payload_ = 0;

    io_uring ring_{};
    std::thread::id owner_; // thread that armed the listeners
    Listener unicast_, group_;
    uint64_t last_tag_ = 0;
    bool multishot_ = true;
    const bool marks_; // are asked for: whether routers marked packets
    msghdr arrival_{}; // their shape then
    int failure_ = 0;  // errno of a send that cannot succeed later

    Buffers tx_frames_;
    std::size_t frame_stride_ = 0;
    unsigned next_frame_ = 0;
    unsigned queued_ = 0;                   // frames whose sends are not submitted yet
    unsigned most_blocks_ = 1;              // of a packet
    std::size_t block_bytes_ = 0;           // of those that may be joined, and their header
    uint32_t data_slots_ = 0;               // of theirs
    unsigned joined_ = 0, resent_ = 0;      // blocks, lately: sent together with others, sent again
    std::array<Joined, tx_frames> packets_; // by the first of their frames
    Joined *last_ = nullptr;                // the packet that was queued last

    Buffers rx_entries_; // rx_ring()
    Buffers rx_buffers_;
    std::size_t rx_stride_ = 0;
};

} // namespace inagg
