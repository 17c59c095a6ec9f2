// SPDX-License-Identifier: BSD-2-Clause
// The server's sockets, through io_uring: one request receives until further notice, one system call sends a batch and
// waits for what comes next.
#pragma once

#include "common/fd.hpp"
#include "endpoint.hpp"

#include <liburing.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ps {

class SocketIo final : public Outbox {
public:
    using Receiver = std::function<void(std::span<const std::byte> packet, const Endpoint &from, bool congested)>;

    // Takes UDP port INAGG_PORT of these addresses, one of each family at most. Throws inaggd::Error.
    explicit SocketIo(std::span<const inaggd::Address> addresses);
    ~SocketIo() override;
    SocketIo(const SocketIo &) = delete;

    void send(const inagg_hdr &header, std::span<const std::byte> payload, std::span<const Endpoint> to) override;
    void flush();
    // receive() returns at once when `fd` can be read.
    void watch(int fd);
    // Sends what is queued and hands over what has come; sleeps up to `wait` if nothing has.
    void receive(const Receiver &receiver, std::chrono::milliseconds wait);
    // Bytes that the smallest receive buffer holds.
    int receive_buffer() const { return receive_buffer_; }

private:
    struct Socket {
        inagg::Fd fd;
        uint8_t family;
        bool armed = false;
    };
    struct Message {
        msghdr header;
        iovec data;
        sockaddr_storage to;
    };
    struct Free {
        void operator()(std::byte *memory) const { std::free(memory); }
    };
    using Buffers = std::unique_ptr<std::byte[], Free>;

    void open_socket(const inaggd::Address &address);
    void open_ring();
    io_uring_sqe *next_sqe();
    void arm(std::size_t index);
    void queue(int fd, std::byte *frame, std::size_t bytes, const Endpoint &to);
    void give_buffer(unsigned id);
    void on_received(std::size_t index, const io_uring_cqe &cqe, const Receiver &receiver);
    void hand_over(std::byte *buffer, int bytes, const Receiver &receiver);

    std::vector<Socket> sockets_;
    int receive_buffer_ = INT32_MAX;
    io_uring ring_{};
    int watched_ = -1;
    bool watching_ = false;

    // What is queued; nothing of it is needed once it has been submitted, because sends do not wait.
    Buffers frames_;
    std::vector<Message> messages_;
    unsigned frames_queued_ = 0, messages_queued_ = 0;

    msghdr arrival_{}; // the shape of what is received
    io_uring_buf_ring *buffer_ring_ = nullptr;
    Buffers buffers_;
};

} // namespace ps
