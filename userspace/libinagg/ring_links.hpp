// SPDX-License-Identifier: BSD-2-Clause
// How the ranks of a ring find and know each other. Each listens on its address towards the switch, tells all others by a
// RingEntry which that is, connects to the rank after it and accepts the rank before it. A port that others can reach
// is open only until then, and whoever comes without the nonces in the entries is not listened to.
//
// Connections lead to neighbours only. What a rank must hear of others comes in datagrams (notices), with nonces too:
// who is gone, and, when nothing moves, who has come how far.
#pragma once

#include "common/fd.hpp"
#include "error.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace inagg {

// What a rank tells all others of itself.
struct RingEntry {
    uint64_t aggregate_from;
    uint64_t nonce;
    uint8_t address[16];  // IPv4: the first 4
    uint16_t port;        // TCP: for the rank before
    uint16_t notice_port; // UDP: for all
    uint32_t reserved;    // 0

    bool operator==(const RingEntry &) const = default;
};
static_assert(sizeof(RingEntry) == 40);

class RingLinks {
public:
    explicit RingLinks(const inagg_options &options);

    const RingEntry &own() const { return own_; }
    // All ranks' entries are known, this rank's among them: connect.
    void meet(const std::vector<RingEntry> &entries);
    // Both neighbours are there.
    bool up() const { return came() && greeted_ == sizeof(Greeting); }
    // Connects, accepts and hears notices, without waiting. `calls`: this rank has made so many.
    void move(uint32_t calls);

    // Bytes that went to the rank after, or came from the one before; 0: none now, or none any more.
    std::size_t send(std::span<const std::byte> bytes);
    std::size_t receive(std::span<std::byte> bytes);
    // Nothing goes on without more bytes. The rank before may have sent all it had to, and left.
    void starve();
    // What a sleeper waits for, of connections that are not up.
    void poll_for(std::vector<pollfd> &polled) const;
    int before() const { return before_.get(); }
    int after() const { return after_.get(); }

    // Ask all how far they have come.
    void ask();
    // Bitmap of the ranks that have said nothing since `since_ns`. If there are none, of those that have made the fewest
    // calls and not so many: the others that have not may wait for them themselves.
    uint64_t missing(uint32_t calls, uint64_t since_ns) const;
    // What it is that no rank is missing for, and that does not come all the same.
    std::string trouble() const;
    // Why there is no ring any more.
    const std::optional<Error> &lost() const { return lost_; }
    // This rank has found an error of another's: tell all.
    void break_off();

private:
    struct Greeting {              // the first bytes of a connection
        uint64_t to = 0, from = 0; // nonces
        bool operator==(const Greeting &) const = default;
    };
    struct Notice {
        uint64_t to, from;
        uint32_t calls;
        uint16_t gone; // a rank, or nobody; the sender: it has found an error
        uint16_t asks;
    };
    struct Stranger {
        Fd socket;
        Greeting greeting{};
        std::size_t got = 0;
    };
    struct Presence {
        uint32_t calls = 0;
        uint64_t heard_ns = 0;
    };

    bool came() const { return before_ || ended_; }
    uint16_t neighbour(int step) const;
    sockaddr_storage address_of(uint16_t rank, uint16_t port) const;
    void connect();
    void greet();
    void accept();
    bool admit(Stranger &stranger);
    void hear();
    void tell(uint16_t rank, uint16_t gone, bool asks) const;
    void tell_all(uint16_t gone, bool asks) const;
    void miss(uint16_t rank, std::string_view why);
    void lose(uint16_t rank, const std::string &why);

    const uint16_t job_, rank_, size_;
    sockaddr_storage local_{};
    socklen_t length_ = 0;
    RingEntry own_{};
    std::vector<RingEntry> entries_; // empty before meet()
    std::vector<Presence> presences_;
    Fd listener_, notices_, before_, after_;
    std::size_t greeted_ = 0;          // bytes of the greeting that have gone out
    std::optional<std::string> ended_; // why nothing comes from the rank before any more
    std::vector<Stranger> strangers_;
    std::optional<Error> lost_;
};

} // namespace inagg
