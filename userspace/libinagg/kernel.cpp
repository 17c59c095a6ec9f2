// SPDX-License-Identifier: BSD-2-Clause
// The transport `kernel`: an AF_INAGG socket takes tensors and returns their sums; see inagg(7).
#include "convert.hpp"
#include "errors.hpp"
#include "linear_check.hpp"
#include "options.hpp"
#include "transports.hpp"

#include <inagg/core/tensor.h>
#include <inagg/uapi.h>

#include "common/fd.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <deque>
#include <fstream>
#include <span>
#include <vector>

namespace inagg {

namespace {

constexpr std::size_t most_bytes = INT_MAX & ~4095; // that Linux takes in one call
constexpr std::size_t discard_bytes = 256 << 10;

// Joining

// The number of the address family, which whoever loads the module may choose.
std::optional<int> loaded_family() {
    std::ifstream file("/proc/net/inagg");
    std::string name, version, family;
    int number;
    if (file >> name >> version >> family >> number && family == "family")
        return number;
    return std::nullopt;
}

int family_number() {
    std::optional<int> family = loaded_family();
    if (!family) {
        const Fd loads_module(::socket(AF_INAGG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); // where it is installed
        family = loaded_family();
    }
    if (!family)
        throw Error(INAGG_EPRIVILEGE, "this machine has no AF_INAGG: load the module af_inagg");
    return *family;
}

sockaddr_inagg address_of(const sockaddr_storage &address) {
    constexpr uint8_t ipv4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    sockaddr_inagg result{};
    if (address.ss_family == AF_INET) {
        const auto &in = reinterpret_cast<const sockaddr_in &>(address);
        std::memcpy(result.sinagg_addr, ipv4_mapped, sizeof(ipv4_mapped));
        std::memcpy(result.sinagg_addr + sizeof(ipv4_mapped), &in.sin_addr, sizeof(in.sin_addr));
        result.sinagg_port = in.sin_port;
    } else {
        const auto &in6 = reinterpret_cast<const sockaddr_in6 &>(address);
        std::memcpy(result.sinagg_addr, &in6.sin6_addr, sizeof(in6.sin6_addr));
        result.sinagg_scope_id = in6.sin6_scope_id;
        result.sinagg_port = in6.sin6_port;
    }
    return result;
}

// What the kernel knows about why the socket failed.
std::optional<inagg_fault> last_fault(int fd) {
    inagg_fault fault;
    iovec part{&fault, sizeof(fault)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) != sizeof(fault))
        return std::nullopt;
    return fault;
}

Refusal refusal_of(const inagg_fault &fault) {
    constexpr uint8_t none[sizeof(fault.above)] = {};
    const bool is_above = std::memcmp(fault.above, none, sizeof(none)) != 0;
    return {static_cast<int>(fault.reason), is_above ? address_text(fault.above) : ""};
}

// Memory that reads as zeros, however much: all of it is one page.
class Zeros {
public:
    explicit Zeros(std::size_t bytes) : bytes_(bytes) {
        at_ = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at_ == MAP_FAILED)
            throw system_error("mapping zeros");
    }
    Zeros(const Zeros &) = delete;
    Zeros &operator=(const Zeros &) = delete;
    ~Zeros() { munmap(at_, bytes_); }
    void *data() const { return at_; }

private:
    void *at_;
    std::size_t bytes_;
};

class KernelCarrier final : public Carrier {
public:
    explicit KernelCarrier(const inagg_options &options);

    std::string_view name() const override { return "kernel"; }
    Handle prepare(const Call &call) override;
    void start(const Handle &operation) override;
    bool progress(std::chrono::nanoseconds wait) override;
    int descriptor() const override { return socket_.get(); }
    std::optional<std::string> stall() const override { return std::nullopt; }
    uint16_t elements() const override { return elements_; }
    // A linear check adds 32-bit elements up.
    uint32_t floats() const override { return verifies() ? INAGG_FLOATS_WIDENED : INAGG_FLOATS_FIXED; }
    uint32_t blocks_ahead() const override;
    Stragglers stragglers() const override {
        const inagg_info now = info();
        return {now.excluded, now.temporary, now.permanent};
    }
    inagg_stats_t stats() const override;
    void leave() override;

private:
    // A tensor: `bytes` of the caller's memory and, in a broadcast, up to 3 more that fill the last int32.
    struct Tensor : Operation {
        Tensor(const Call &call, std::size_t element_bytes) : Operation(call), bytes(call.count * element_bytes) {}
        std::size_t total() const { return bytes + padding; }

        std::size_t bytes, padding = 0;
        inagg_tensor_type type{};
        const void *send = nullptr;
        void *recv = nullptr; // null: thrown away
        std::size_t sent = 0, received = 0;
        std::optional<Zeros> zeros; // what others than the root send
    };

    inagg_info info() const;
    void set_option(int name, int value, const char *text);
    void set_key(int name, std::string_view hex, const char *text);
    void set_deadline(uint32_t ms);
    void join(int family, const sockaddr_storage &peer);
    Error join_failure(int error) const;
    Error failure(const char *what, int error) const;
    bool send();
    bool receive();
    ssize_t send_more(const Tensor &tensor);
    ssize_t receive_more(Tensor &tensor, int &flags);
    bool verifies() const { return options_.key[0]; }
    bool trio() const { return algorithm_number(options_.algorithm) == INAGG_TRIO; }
    void finish_oldest();
    bool wait_for_socket(std::chrono::nanoseconds wait) const;

    const inagg_options options_;
    Fd socket_;
    uint16_t elements_ = 0;                       // 32-bit elements in a packet that are the tensor's
    std::deque<std::shared_ptr<Tensor>> tensors_; // not finished, in call order
    std::size_t sent_ = 0;                        // so many of them have been taken whole
    std::vector<std::byte> discarded_;
    // For what comes with a result: who is in it, and in each block.
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(inagg_result_info)) + CMSG_SPACE(INAGG_MOST_BLOCKS * 8)> control_;
};

KernelCarrier::KernelCarrier(const inagg_options &options) : options_(options) {
    const sockaddr_storage peer = switch_address(options_);
    const int family = family_number();
    socket_ = Fd(::socket(family, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket_)
        throw system_error(fmt::format("socket of address family {}", family));
    if (setsockopt(socket_.get(), SOL_INAGG, INAGG_ALGORITHM, options_.algorithm, std::strlen(options_.algorithm)))
        throw Error(INAGG_EREFUSED, "algorithm '{}': the module af_inagg does not have it", options_.algorithm);
    if (trio()) {
        set_option(INAGG_EXPIRY, static_cast<int>(std::min<uint32_t>(options_.expiry_us, INT_MAX)), "INAGG_EXPIRY");
        set_option(INAGG_QUORUM, options_.quorum, "INAGG_QUORUM");
        set_option(INAGG_EXCLUDE, static_cast<int>(std::min<uint32_t>(options_.exclude_ms, INT_MAX)), "INAGG_EXCLUDE");
        set_option(INAGG_HISTORY, static_cast<int>(std::min<uint64_t>(uint64_t{options_.history_mib} << 20, INT_MAX)),
                   "INAGG_HISTORY");
    }
    set_option(INAGG_CHECKED, options_.checked != 0, "INAGG_CHECKED");
    set_deadline(join_timeout_ms(options_));
    if (options_.join_key[0])
        set_key(INAGG_KEY, options_.join_key, "INAGG_KEY: the module af_inagg");
    if (verifies())
        set_key(INAGG_VERIFY, options_.key, "INAGG_VERIFY: the module af_inagg");
    join(family, peer);
    set_deadline(options_.timeout_ms);
    elements_ = std::max<uint16_t>(info().elements, INAGG_CHUNK) - (verifies() ? INAGG_CHECK_ELEMENTS : 0);
}

void KernelCarrier::set_option(int name, int value, const char *text) {
    if (setsockopt(socket_.get(), SOL_INAGG, name, &value, sizeof(value)))
        throw system_error(text);
}

void KernelCarrier::set_key(int name, std::string_view hex, const char *text) {
    LinearCheck::Key key = LinearCheck::parse_key(hex);
    const bool failed = setsockopt(socket_.get(), SOL_INAGG, name, key.data(), key.size());
    const int error = errno;
    sodium_memzero(key.data(), key.size());
    if (failed)
        throw system_error(text, error);
}

void KernelCarrier::set_deadline(uint32_t ms) {
    set_option(INAGG_DEADLINE, static_cast<int>(std::min<uint32_t>(ms, INT_MAX)), "INAGG_DEADLINE");
}

void KernelCarrier::join(int family, const sockaddr_storage &peer) {
    sockaddr_inagg here{}, there = address_of(peer);
    here.sinagg_family = there.sinagg_family = static_cast<sa_family_t>(family);
    here.sinagg_rank = options_.rank;
    there.sinagg_job = options_.job;
    there.sinagg_size = options_.size;
    if (bind(socket_.get(), reinterpret_cast<sockaddr *>(&here), sizeof(here)))
        throw system_error("bind");
    while (connect(socket_.get(), reinterpret_cast<sockaddr *>(&there), sizeof(there)))
        if (errno != EINTR) // else it goes on
            throw join_failure(errno);
}

Error KernelCarrier::join_failure(int error) const {
    const std::optional<inagg_fault> fault = last_fault(socket_.get());
    if (fault && fault->reason == INAGG_R_EXCLUDED)
        return not_taken_back(options_);
    if (fault && fault->reason)
        return join_refused(options_, refusal_of(*fault));
    if (error == ETIMEDOUT)
        return no_switch(options_);
    if (error == EMSGSIZE)
        return {INAGG_EINVAL, "the path to {} carries no packet of {} elements: raise the MTU", options_.switch_address,
                INAGG_CHUNK};
    if (error == ENETUNREACH || error == EHOSTUNREACH)
        return no_route(options_, error);
    return system_error(fmt::format("joining job {} at {}", options_.job, options_.switch_address), error);
}

// The membership is over.
Error KernelCarrier::failure(const char *what, int error) const {
    const inagg_fault fault = last_fault(socket_.get()).value_or(inagg_fault{});
    switch (error) {
    case ETIMEDOUT: {
        if (!tensors_.empty() && tensors_.front()->call.kind == Call::Kind::renewal && !fault.control)
            return deadline_passed(options_, "the next generation does not begin");
        const uint64_t contributors = inagg_all_ranks(options_.size) & ~uint64_t{fault.missing};
        return deadline_passed(options_, describe({fault.control ? Stream::control : Stream::data, fault.block, fault.heard != 0,
                                                   fault.tree != 0, contributors, 0},
                                                  options_));
    }
    case ECONNRESET:
        if (fault.reason == INAGG_R_EXCLUDED)
            return inagg::excluded(options_.rank, options_.job);
        return job_ended(options_.job, options_.switch_address, refusal_of(fault));
    case EKEYREJECTED:
        return no_sum(options_.job, options_.switch_address, fault.control ? Stream::control : Stream::data, fault.block,
                      fault.heard != 0);
    case EDOM:
        return {INAGG_ESYSTEM,
                "job {}: a float sum has an infinity or a NaN on some rank and is larger than this socket's "
                "buffer: "
                "raise net.inagg.buffer_default above its size, or use another transport",
                options_.job};
    case ENOBUFS:
        return {INAGG_ESYSTEM, "job {}: the machine's AF_INAGG sockets have reached net.inagg.memory_limit: raise it",
                options_.job};
    default:
        return system_error(fmt::format("job {}: {} on an AF_INAGG socket", options_.job, what), error);
    }
}

// Calls

Handle KernelCarrier::prepare(const Call &call) {
    check_verifiable(call, options_, floats());
    auto tensor = std::make_shared<Tensor>(call, inagg_memory_bytes(call.dtype));
    tensor->type.dtype = static_cast<uint8_t>(call.dtype);
    tensor->type.op = static_cast<uint8_t>(call.op);
    tensor->block_elements = block_elements(elements_, call.dtype, call.op, floats());
    tensor->blocks = inagg_blocks_of(call.count, tensor->block_elements);
    tensor->type.scale = options_.scale;
    tensor->send = call.send;
    tensor->recv = call.recv;
    if (call.kind == Call::Kind::renewal)
        tensor->type.flags = INAGG_TENSOR_RENEW;
    if (call.is_agreement && verifies())
        tensor->type.flags = INAGG_TENSOR_UNVERIFIED;
    if (call.kind == Call::Kind::broadcast) { // an int32 sum to which only the root contributes
        tensor->type.dtype = INAGG_INT32;
        tensor->type.flags = INAGG_TENSOR_WHOLE;
        tensor->padding = -tensor->bytes % 4;
        tensor->block_elements = elements_;
        tensor->blocks = inagg_blocks_of(tensor->total() / 4, elements_);
        if (call.root)
            tensor->recv = nullptr;
        else
            tensor->send = tensor->zeros.emplace(tensor->bytes).data();
    }
    if (tensor->total() > most_bytes)
        throw Error(INAGG_EINVAL, "a tensor of {} bytes: the transport kernel takes at most {} in one call", tensor->total(),
                    most_bytes);
    return tensor;
}

void KernelCarrier::start(const Handle &operation) {
    tensors_.push_back(std::static_pointer_cast<Tensor>(operation));
    send();
}

// What is left behind `done` bytes of memory with padding behind it.
static std::array<iovec, 2> rest_of(void *memory, std::size_t bytes, std::span<std::byte> padding, std::size_t done) {
    const std::size_t first = std::min(done, bytes), second = done - first;
    return {iovec{static_cast<std::byte *>(memory) + first, bytes - first},
            iovec{padding.data() + second, padding.size() - second}};
}

// A control message, at `header`.
template <typename T> static void say(cmsghdr &header, int type, const T &value) {
    header.cmsg_level = SOL_INAGG;
    header.cmsg_type = type;
    header.cmsg_len = CMSG_LEN(sizeof(value));
    std::memcpy(CMSG_DATA(&header), &value, sizeof(value));
}

ssize_t KernelCarrier::send_more(const Tensor &tensor) {
    std::byte zeros[4] = {};
    auto parts = rest_of(const_cast<void *>(tensor.send), tensor.bytes, std::span(zeros, tensor.padding), tensor.sent);
    constexpr std::size_t of_type = CMSG_SPACE(sizeof(tensor.type)), of_context = CMSG_SPACE(sizeof(tensor.call.context));
    alignas(cmsghdr) char control[of_type + of_context] = {};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    message.msg_control = control;
    message.msg_controllen = verifies() ? sizeof(control) : of_type;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    say(*header, INAGG_CMSG_TENSOR, tensor.type);
    if (verifies())
        say(*CMSG_NXTHDR(&message, header), INAGG_CMSG_AGREED, tensor.call.context);
    return sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Who is in the blocks whose results have just come.
static void note_contributors(const cmsghdr &message, std::vector<uint64_t> &contributors) {
    const std::size_t before = contributors.size(), bytes = message.cmsg_len - CMSG_LEN(0);
    contributors.resize(before + bytes / sizeof(uint64_t));
    std::memcpy(&contributors[before], CMSG_DATA(&message), bytes);
}

// What comes with a result.
static void note_result(msghdr &message, Operation &operation) {
    for (cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == SOL_INAGG && c->cmsg_type == INAGG_CMSG_BLOCKS)
            note_contributors(*c, operation.contributors);
        if (c->cmsg_level == SOL_INAGG && c->cmsg_type == INAGG_CMSG_RESULT) {
            inagg_result_info info;
            std::memcpy(&info, CMSG_DATA(c), sizeof(info));
            operation.renews = info.flags & INAGG_RESULT_RENEWED;
            operation.blocks = info.blocks; // in a tree those of 16-bit floats are smaller
            operation.block_elements = info.block_elements;
        }
    }
}

// No more than `bytes` of them.
static void cut(std::span<iovec> parts, std::size_t bytes) {
    for (iovec &part : parts) {
        part.iov_len = std::min(part.iov_len, bytes);
        bytes -= part.iov_len;
    }
}

ssize_t KernelCarrier::receive_more(Tensor &tensor, int &flags) {
    std::byte padding[4];
    std::array<iovec, 2> parts{};
    if (tensor.recv) {
        parts = rest_of(tensor.recv, tensor.bytes, std::span(padding, tensor.padding), tensor.received);
    } else {
        discarded_.resize(discard_bytes);
        parts[0] = {discarded_.data(), discarded_.size()};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    message.msg_control = control_.data();
    message.msg_controllen = control_.size();
    if (trio()) // of so many blocks the kernel tells who is in them; some are as small as this
        cut(parts, (INAGG_MOST_BLOCKS - 1) * std::size_t{elements_} * inagg_memory_bytes(tensor.type.dtype));
    const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    flags = message.msg_flags;
    if (bytes < 0)
        return bytes;
    note_result(message, tensor);
    if (flags & MSG_CTRUNC)
        throw Error(INAGG_ESYSTEM,
                    "job {}: the module af_inagg tells more of a result than this libinagg knows: use those of one "
                    "version",
                    options_.job);
    return bytes;
}

// Give the kernel what it takes; true if it took something.
bool KernelCarrier::send() {
    bool moved = false;
    while (sent_ < tensors_.size()) {
        Tensor &tensor = *tensors_[sent_];
        const ssize_t bytes = send_more(tensor);
        if (bytes < 0 && errno == EAGAIN)
            break;
        if (bytes < 0 && errno != EINTR)
            throw failure("send", errno);
        if (bytes < 0)
            continue;
        moved = true;
        tensor.sent += static_cast<std::size_t>(bytes);
        if (tensor.sent == tensor.total())
            sent_++;
    }
    return moved;
}

// Take the results that are there; true if there were any.
bool KernelCarrier::receive() {
    bool moved = false;
    while (sent_ || (!tensors_.empty() && tensors_.front()->sent)) {
        Tensor &oldest = *tensors_.front();
        int flags = 0;
        const ssize_t bytes = receive_more(oldest, flags);
        if (bytes < 0 && errno == EAGAIN)
            break;
        if (bytes < 0 && errno == EINTR)
            continue;
        moved = true;
        if (bytes < 0 && errno == ERANGE)
            oldest.set_error(out_of_scale(oldest.call, options_));
        else if (bytes < 0 && errno == EBADMSG)
            oldest.set_error(calls_differ(options_.job));
        else if (bytes < 0)
            throw failure("receive", errno);
        else
            oldest.received += static_cast<std::size_t>(bytes);
        if (bytes < 0 || flags & MSG_EOR)
            finish_oldest();
    }
    return moved;
}

void KernelCarrier::finish_oldest() {
    Tensor &oldest = *tensors_.front();
    const auto lacks = [&](uint64_t contributors) { return lacks_root(oldest.call, contributors); };
    if (std::any_of(oldest.contributors.begin(), oldest.contributors.end(), lacks))
        oldest.set_error(broadcast_without_root(oldest.call, options_.job));
    oldest.finish();
    tensors_.pop_front();
    sent_--;
}

bool KernelCarrier::wait_for_socket(std::chrono::nanoseconds wait) const {
    pollfd socket{socket_.get(), POLLIN, 0};
    if (sent_ < tensors_.size())
        socket.events |= POLLOUT;
    const timespec timeout{static_cast<time_t>(wait.count() / 1'000'000'000), static_cast<long>(wait.count() % 1'000'000'000)};
    return ppoll(&socket, 1, &timeout, nullptr) > 0;
}

bool KernelCarrier::progress(std::chrono::nanoseconds wait) {
    const bool moved = receive() | send();
    if (moved || tensors_.empty() || wait.count() <= 0 || !wait_for_socket(wait))
        return moved;
    return receive() | send();
}

// The kernel does not know of those that it has not taken.
uint32_t KernelCarrier::blocks_ahead() const {
    if (!trio())
        return 0;
    uint64_t ahead = info().ahead;
    for (std::size_t i = sent_; i < tensors_.size(); i++)
        if (!tensors_[i]->sent)
            ahead -= std::min(ahead, tensors_[i]->blocks);
    return static_cast<uint32_t>(ahead);
}

inagg_info KernelCarrier::info() const {
    inagg_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(socket_.get(), SOL_INAGG, INAGG_INFO, &info, &length))
        return {};
    return info;
}

void KernelCarrier::leave() {
    // A goodbye, here a barrier like any other, that nobody has answered must not keep the seat: close() would wait for it in the
    // background.
    if (!tensors_.empty() && tensors_.front()->call.kind == Call::Kind::leaving) {
        const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
        setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    socket_.reset();
}

inagg_stats_t KernelCarrier::stats() const {
    const inagg_info info = this->info();
    inagg_stats_t stats{};
    stats.blocks = info.blocks;
    stats.contributions = info.contributions;
    stats.retransmissions = info.retransmissions;
    stats.requests = info.requests;
    stats.restores = info.restores;
    stats.duplicates = info.duplicates;
    stats.rejected = info.rejected;
    stats.reboots = info.reboots;
    stats.srtt_ns = info.srtt_ns;
    stats.degraded = info.degraded;
    stats.skipped = info.skipped;
    stats.abstained = info.abstained;
    stats.refused = info.refused;
    stats.mismatches = info.mismatches;
    return stats;
}

} // namespace

std::unique_ptr<Carrier> make_kernel(const inagg_options &options) { return std::make_unique<KernelCarrier>(options); }

} // namespace inagg
