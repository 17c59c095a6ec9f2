// SPDX-License-Identifier: BSD-2-Clause
// The xdp transport: blocks move in BPF (bpf/stream.bpf.c), through memory that this process maps. User
// space fills cells with packets, opens the window, starts idle slots and serves timers, by live frames or, where there are few,
// through a packet socket, and sleeps until a batch of results is stored.
#include "engine.hpp"
#include "errors.hpp"
#include "join.hpp"
#include "transports.hpp"
#include "xdp_device.hpp"
#include "xdp_frames.hpp"
#include "xdp_sender.hpp"

#include "stream.skel.h"

#include <inagg/core/checksum.h>
#include <inagg/core/worker.h>

#include <bpf/bpf.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace inagg {

using namespace std::chrono_literals;

namespace {

constexpr uint32_t windows_in_ring = 4;   // cells for each slot; what is in more does not stay in a cache
constexpr uint32_t fewest_cells = 256;    // in a ring: user space wakes up seldom, and late
constexpr uint32_t publish_every = 32;    // cells filled before the window opens further
constexpr uint32_t worth_live_frames = 4; // packets: to have the program run takes 10 us, to send one 3
constexpr int probes = 20;
constexpr int frame_probes = 3;
// Then datagrams repeat: they have another way out, and nobody tells of frames that are dropped there.
constexpr int frame_tries = 2;
constexpr auto probe_wait = 20ms;
// Higher than the core's: a rank whose thread waits for a CPU lets its slots rest, which is no loss.
constexpr uint64_t timer_floor_ns = 3'000'000;
constexpr uint64_t poll_timers_ns = 50'000; // each look at all slots costs a third of a microsecond
constexpr uint64_t poll_results_ns = 1'000'000;
constexpr uint64_t socket_check_ns = 50'000'000;

struct StreamDeleter {
    void operator()(stream_bpf *skeleton) const { stream_bpf__destroy(skeleton); }
};
struct RingDeleter {
    void operator()(ring_buffer *ring) const { ring_buffer__free(ring); }
};

uint32_t cells_for(uint32_t slots) { return std::max(slots * windows_in_ring, fewest_cells); }

// A value that BPF programs read or write at the same time.
template <typename T> std::atomic_ref<T> shared_word(T &value) { return std::atomic_ref<T>(value); }

// An mmapable BPF map.
template <typename T> class MappedMap {
public:
    MappedMap() = default;
    explicit MappedMap(const bpf_map *map) : bytes_(bpf_map__max_entries(map) * sizeof(T)) {
        void *memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
        if (memory == MAP_FAILED)
            throw system_error("mapping a BPF map");
        data_ = static_cast<T *>(memory);
    }
    MappedMap(const MappedMap &) = delete;
    MappedMap &operator=(MappedMap &&other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~MappedMap() {
        if (data_)
            munmap(data_, bytes_);
    }
    T &operator[](std::size_t index) const { return data_[index]; }

private:
    T *data_ = nullptr;
    std::size_t bytes_ = 0;
};

// The root program sends packets of one UDP port to our programs as long as this lives.
class Registration {
public:
    Registration(const XdpDevice &device, uint16_t port, int program) : device_(device), port_(port) {
        if (bpf_map_update_elem(device_.streams(), &port_, &program, BPF_ANY))
            throw system_error("installing the stream program");
    }
    Registration(const Registration &) = delete;
    ~Registration() { bpf_map_delete_elem(device_.streams(), &port_); }

private:
    const XdpDevice &device_;
    uint32_t port_;
};

class XdpTransport final : public Transport, private PacketReceiver {
public:
    // Takes `io` only if it succeeds.
    XdpTransport(std::unique_ptr<XdpDevice> device, std::unique_ptr<PacketIo> &io, const Membership &membership,
                 BlockClient &client);

    std::string_view name() const override { return "xdp"; }
    const JobConfig &config() const override { return membership_.config; }
    void extend(Stream stream, uint32_t limit) override;
    bool progress(std::chrono::nanoseconds wait) override;
    bool stalled(Stalled &out) const override;
    inagg_stats_t stats() const override;
    void leave() override { inagg::leave(*io_, membership_); }

private:
    // A stream as user space sees it: ... tail <= blocks in cells < loaded <= wanted
    struct Ring {
        Stream stream;
        uint32_t window, first_slot, cells, first_cell;
        uint32_t tail = 0;              // next block to hand to the client
        uint32_t loaded = 0;            // next block to put into a cell
        uint32_t wanted = 0;            // blocks before this one may be sent
        uint64_t stored = 0;            // blocks handed to the client
        std::deque<uint32_t> ends = {}; // of wanted blocks that were wanted together
        uint64_t seen = 0;              // blocks done when it was looked at last
        uint64_t look_at = 0;           // it is worth looking when so many blocks are done
    };

    void load_programs();
    void map_memory();
    void prove_path();
    void prove_frames();
    void prove_live_frames();
    bool is_proven() const;
    bool is_answered(const std::function<bool()> &ask) const;
    inagg_cell &cell(const Ring &ring, uint32_t block) const;
    inagg_stream_state &state(const Ring &ring) const;
    inagg_wslot slot(uint32_t index) const;
    uint64_t done(const Ring &ring) const;
    void fill_cell(const Ring &ring, uint32_t block);
    void fill(Ring &ring);
    void publish(const Ring &ring);
    bool collect(Ring &ring);
    void serve();
    void serve(const Ring &ring, uint32_t index, uint64_t now);
    void start(const Ring &ring, uint32_t from);
    bool may_need(const Ring &ring, const inagg_wslot &slot, uint64_t now) const;
    int decide(const Ring &ring, inagg_worker_slot &slot, uint64_t now, uint32_t &block);
    void send_orders(bool more);
    void send(PacketSender &out, const Ring &ring, const inagg_worker_slot &slot, int action, uint32_t block);
    void send_restore(uint32_t index);
    void send_probe(PacketSender &out) const;
    void choose_look_at(Ring &ring) const;
    bool is_worth_looking() const;
    void sleep(std::chrono::nanoseconds wait);
    void await_doorbell(std::chrono::nanoseconds wait);
    bool is_waiting() const;
    bool stuck(uint64_t now) const;
    void check_socket();
    void hear();
    void packet(std::span<const std::byte> payload, bool congested) noexcept override;

    std::unique_ptr<XdpDevice> device_;
    std::unique_ptr<PacketIo> io_;
    PacketIo *out_; // io_, also before it is ours
    Membership membership_;
    BlockClient &client_;
    uint16_t port_;
    FrameHeader header_;

    std::unique_ptr<stream_bpf, StreamDeleter> bpf_;
    std::unique_ptr<ring_buffer, RingDeleter> doorbell_;
    MappedMap<inagg_worker_slot> slots_;
    MappedMap<inagg_cell> cells_;
    MappedMap<inagg_order> order_ring_;
    inagg_stream_shared *shared_ = nullptr;
    std::unique_ptr<Registration> registration_;
    std::optional<FrameSender> frames_; // if they get through
    std::optional<LiveFrames> live_;    // likewise
    std::vector<inagg_order> orders_;   // not sent yet

    Ring rings_[stream_count];
    uint64_t reboots_seen_ = 0;
    bool rebooted_ = false; // of this round of serve()
    uint64_t earliest_due_ = UINT64_MAX;
    uint64_t served_ns_ = 0, looked_ns_ = 0;
    uint64_t socket_checked_ns_ = 0;
    uint64_t waiting_since_ = 0; // for the result of a block
    std::optional<Error> ended_; // by a REFUSED
};

XdpTransport::XdpTransport(std::unique_ptr<XdpDevice> device, std::unique_ptr<PacketIo> &io, const Membership &membership,
                           BlockClient &client)
    : device_(std::move(device)), out_(io.get()), membership_(membership), client_(client), port_(io->receive_port()),
      header_(device_->frame_header(port_)) {
    const JobConfig &job = membership_.config;
    const uint32_t data_cells = cells_for(job.slots), control_cells = cells_for(job.control_slots);
    rings_[0] = {.stream = Stream::data, .window = job.slots, .first_slot = 0, .cells = data_cells, .first_cell = 0};
    rings_[1] = {.stream = Stream::control,
                 .window = job.control_slots,
                 .first_slot = job.slots,
                 .cells = control_cells,
                 .first_cell = data_cells};
    load_programs();
    map_memory();
    registration_ = std::make_unique<Registration>(*device_, port_, bpf_program__fd(bpf_->progs.inagg_stream));
    prove_path();
    prove_frames();
    prove_live_frames();
    io_ = std::move(io);
}

void XdpTransport::load_programs() {
    const JobConfig &job = membership_.config;
    bpf_.reset(stream_bpf__open());
    if (!bpf_)
        throw system_error("opening the stream program");
    inagg_stream_settings settings{};
    settings.all = inagg_all_ranks(job.size);
    settings.token = random_nonce();
    settings.orders = std::bit_ceil(2 * (job.slots + job.control_slots)); // one batch may wait for the helper, another be added
    settings.device = device_->index();
    settings.longest = static_cast<uint32_t>(header_.size + sizeof(inagg_hdr)) + job.elements * 4U;
    std::memcpy(settings.remote, device_->switch_address().data(), sizeof(settings.remote));
    settings.header_bytes = static_cast<uint32_t>(header_.size);
    settings.family = static_cast<uint32_t>(device_->family());
    settings.slots = job.slots;
    settings.control_slots = job.control_slots;
    settings.cells = rings_[0].cells;
    settings.control_cells = rings_[1].cells;
    settings.checked = job.checked;
    settings.job = inagg_swap16(job.job);
    settings.generation = inagg_swap16(job.generation);
    settings.rank = job.rank;
    settings.size = job.size;
    std::memcpy(const_cast<inagg_stream_settings *>(&bpf_->rodata->settings), &settings, sizeof(settings));
    if (bpf_map__set_max_entries(bpf_->maps.slots, job.slots + job.control_slots) ||
        bpf_map__set_max_entries(bpf_->maps.cells, rings_[0].cells + rings_[1].cells) ||
        bpf_map__set_max_entries(bpf_->maps.owed, job.slots) || bpf_map__set_max_entries(bpf_->maps.orders, settings.orders))
        throw system_error("sizing the stream program's maps");
    if (const int error = without_signals([&] { return stream_bpf__load(bpf_.get()); }))
        throw system_error("loading the stream program", -error);
}

void XdpTransport::map_memory() {
    slots_ = MappedMap<inagg_worker_slot>(bpf_->maps.slots);
    cells_ = MappedMap<inagg_cell>(bpf_->maps.cells);
    order_ring_ = MappedMap<inagg_order>(bpf_->maps.orders);
    shared_ = &bpf_->bss->shared;
    shared_->boots.latest = inagg_swap16(membership_.config.boot);
    for (const Ring &ring : rings_) {
        inagg_worker_init(&state(ring).worker, ring.window, timer_floor_ns);
        for (uint32_t i = 0; i < ring.window; i++)
            inagg_wslot_init(&slots_[ring.first_slot + i].state, i);
    }
    const auto ignore = [](void *, void *, std::size_t) { return 0; };
    doorbell_.reset(ring_buffer__new(bpf_map__fd(bpf_->maps.doorbell), ignore, nullptr, nullptr));
    if (!doorbell_)
        throw system_error("doorbell");
}

void XdpTransport::send_probe(PacketSender &out) const {
    std::memcpy(out.reserve(), &cells_[0].hdr, sizeof(inagg_hdr));
    out.commit(sizeof(inagg_hdr));
    out.flush();
}

bool XdpTransport::is_proven() const {
    const uint64_t until = monotonic_ns() + std::chrono::nanoseconds(probe_wait).count();
    while (monotonic_ns() < until) {
        if (shared_word(shared_->probe).load() == INAGG_PROBE_PROVEN)
            return true;
        std::this_thread::sleep_for(200us);
    }
    return false;
}

// Ask for the first block: the switch answers WAIT, the program asks again in the way that
// all blocks will go, and the switch must answer once more. XDP_TX is tried once: frames that it leaves at
// the other end of a veth without XDP would arrive with the next try. Then redirection; a veth whose other
// end takes no frames from XDP loses those, too, without a word, and now is the time to find out.
void XdpTransport::prove_path() {
    inagg_cell &first = cells_[0];
    first.hdr = header_for(membership_.config, INAGG_REQUEST);
    seal(first.hdr, membership_.config, 0);
    header_.write_before(first.frame + INAGG_FRAME_ROOM, sizeof(inagg_hdr));
    first.bytes = 0;
    for (int i = 0; i < probes; i++) {
        shared_word(shared_->redirect).store(i > 0);
        shared_word(shared_->probe).store(INAGG_PROBE_ASKED);
        send_probe(*out_);
        if (is_proven())
            return;
        hear();
    }
    throw Error(INAGG_ESYSTEM,
                "device {}: the switch does not answer frames sent by XDP; if this is a veth, its other end needs "
                "an XDP program or `ethtool -K DEVICE gro on`",
                device_->name());
}

// Does the switch answer a probe that goes another way?
bool XdpTransport::is_answered(const std::function<bool()> &ask) const {
    bool proven = false;
    for (int i = 0; i < frame_probes && !proven; i++) {
        shared_word(shared_->probe).store(INAGG_PROBE_ANSWERED);
        proven = ask() && is_proven();
    }
    shared_word(shared_->probe).store(INAGG_PROBE_PROVEN);
    return proven;
}

// What does without them, for want of CAP_NET_RAW or because the way from below IP is another, sends datagrams.
void XdpTransport::prove_frames() {
    try {
        frames_.emplace(header_, *device_);
    } catch (const Error &) {
        return;
    }
    const auto ask = [&] {
        send_probe(*frames_);
        return true;
    };
    if (!is_answered(ask))
        frames_.reset();
}

// A driver may have XDP_TX and no redirection, or a page no room for a whole block: then a socket sends what live frames would.
void XdpTransport::prove_live_frames() {
    live_.emplace(*device_, header_, bpf_->rodata->settings, &order_ring_[0], *shared_);
    if (!is_answered([&] { return live_->probe(); }))
        live_.reset();
}

// Memory shared with BPF.

inagg_cell &XdpTransport::cell(const Ring &ring, uint32_t block) const {
    return cells_[ring.first_cell + (block & (ring.cells - 1))];
}

inagg_stream_state &XdpTransport::state(const Ring &ring) const { return shared_->streams[static_cast<int>(ring.stream)]; }

uint64_t XdpTransport::done(const Ring &ring) const { return shared_word(state(ring).done).load(std::memory_order_acquire); }

// Write the whole frame of a contribution.
void XdpTransport::fill_cell(const Ring &ring, uint32_t block) {
    inagg_cell &at = cell(ring, block);
    at.done = 0;
    at.heard = 0;
    const BlockMeta meta = client_.load(ring.stream, block, reinterpret_cast<std::byte *>(at.payload));
    const uint32_t bytes = inagg_block_bytes(&meta);
    inagg_hdr h = header_for(membership_.config, INAGG_CONTRIBUTION);
    inagg_hdr_set_block(&h, &state(ring).worker, ring.first_slot, block);
    inagg_hdr_set_meta(&h, &meta);
    seal(h, membership_.config, membership_.config.checked ? inagg_payload_checksum(at.payload, bytes) : 0);
    at.hdr = h;
    header_.write_before(at.frame + INAGG_FRAME_ROOM, sizeof(h) + bytes);
    at.bytes = bytes;
}

void XdpTransport::publish(const Ring &ring) {
    shared_word(state(ring).worker.limit).store(ring.loaded, std::memory_order_release);
}

// Fill cells as far as their former blocks are finished and no rank can ask for them any more: a block is
// kept until the next one of its slot is done.
void XdpTransport::fill(Ring &ring) {
    const uint32_t room = ring.tail + ring.cells - ring.window;
    const uint32_t end = inagg_before(ring.wanted, room) ? ring.wanted : room;
    if (!inagg_before(ring.loaded, end))
        return;
    while (inagg_before(ring.loaded, end)) {
        const uint32_t from = ring.loaded;
        const uint32_t to = std::min(end - from, publish_every) + from;
        while (ring.loaded != to)
            fill_cell(ring, ring.loaded++);
        publish(ring);
        start(ring, from);
    }
}

// Start the blocks from `from` on whose slots are idle, before the program goes on to later ones: who does without an earlier
// block for long takes it for lost.
void XdpTransport::start(const Ring &ring, uint32_t from) {
    std::atomic_thread_fence(std::memory_order_seq_cst); // first the limit, then the slots' states
    const uint64_t now = monotonic_ns();
    for (uint32_t block = from; block != ring.loaded; block++)
        serve(ring, ring.first_slot + (block & (ring.window - 1)), now);
    send_orders(ring.wanted - ring.loaded >= ring.window);
}

// Hand finished blocks to the client, in order.
bool XdpTransport::collect(Ring &ring) {
    const uint32_t from = ring.tail;
    ring.seen = done(ring); // first: what is done from now on may be missed, and is new next time
    while (inagg_before(ring.tail, ring.loaded)) {
        inagg_cell &at = cell(ring, ring.tail);
        if (!shared_word(at.done).load(std::memory_order_acquire))
            break;
        const BlockMeta meta = inagg_hdr_meta(&at.hdr);
        client_.store(ring.stream, ring.tail, meta, reinterpret_cast<const std::byte *>(at.payload));
        ring.tail++;
        ring.stored++;
    }
    while (!ring.ends.empty() && !inagg_before(ring.tail, ring.ends.front()))
        ring.ends.pop_front();
    return ring.tail != from;
}

// Sending from here: BPF answers packets, but starts nothing by itself and has no timers that could send. What is
// decided is decided under the slot's lock, by the same functions.

inagg_wslot XdpTransport::slot(uint32_t index) const {
    std::atomic_signal_fence(std::memory_order_seq_cst); // read it anew each time
    return slots_[index].state;
}

// A glance without the lock; decide() has the last word.
bool XdpTransport::may_need(const Ring &ring, const inagg_wslot &slot, uint64_t now) const {
    if (slot.state == INAGG_WSLOT_IDLE)
        return inagg_before(slot.block, ring.loaded);
    return rebooted_ || now >= slot.due_ns || inagg_wslot_awaited(&state(ring).worker, &slot, now);
}

int XdpTransport::decide(const Ring &ring, inagg_worker_slot &slot, uint64_t now, uint32_t &block) {
    inagg_worker *worker = &state(ring).worker;
    uint32_t free = 0;
    // BPF holds it for nanoseconds. Should we lose the CPU while we do, BPF drops a packet, as a network may.
    while (!shared_word(slot.busy).compare_exchange_weak(free, 1))
        free = 0;
    if (rebooted_)
        inagg_worker_rebooted(&slot.state);
    inagg_wslot_hurry(worker, &slot.state, now);
    int action = inagg_worker_timeout(worker, &slot.state, now);
    if (action == INAGG_W_NOTHING)
        action = inagg_worker_open(worker, &slot.state, now);
    block = slot.state.block;
    if (slot.state.state == INAGG_WSLOT_SENT)
        earliest_due_ = std::min<uint64_t>(earliest_due_, slot.state.due_ns);
    shared_word(slot.busy).store(0);
    return action;
}

// `more` is about to come.
void XdpTransport::send_orders(bool more) {
    const bool live = live_ && orders_.size() >= worth_live_frames;
    if (!live || !live_->send(orders_, more)) {
        if (live)
            live_.reset();
        PacketSender &out = frames_ ? static_cast<PacketSender &>(*frames_) : *out_;
        for (const inagg_order &o : orders_)
            send(out, rings_[o.slot >= rings_[1].first_slot], slots_[o.slot], static_cast<int>(o.action), o.block);
    }
    orders_.clear();
}

void XdpTransport::send(PacketSender &out, const Ring &ring, const inagg_worker_slot &slot, int action, uint32_t block) {
    const inagg_cell &from = cell(ring, block);
    // A bare REQUEST would do for one answer, but a switch may lack room in its frame for the result: what
    // a socket sends has none behind it. So the elements go again, unless everyone is asked.
    const bool whole = action != INAGG_W_REQUEST_ALL;
    const std::size_t bytes = whole ? from.bytes : 0;
    std::byte *to = out.reserve();
    inagg_hdr h = from.hdr;
    std::memcpy(to + sizeof(h), from.payload, bytes);
    // A result that came meanwhile has overwritten what we have read.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (shared_word(const_cast<uint32_t &>(slot.state.block)).load() != block)
        return;
    inagg_stream_counters &counters = shared_->counters;
    if (action == INAGG_W_SEND) {
        shared_word(counters.contributions).fetch_add(1);
    } else {
        unsigned flags = inagg_swap16(h.level_flags);
        const uint32_t payload = whole ? inagg_hdr_payload_part(&h) : 0;
        if (whole) {
            flags |= INAGG_F_RESEND;
            shared_word(counters.retransmissions).fetch_add(1);
        } else {
            const inagg_hdr contribution = h;
            h = header_for(membership_.config, INAGG_REQUEST);
            h.block = contribution.block;
            h.slot = contribution.slot;
            flags = (flags & INAGG_F_VERSION) | INAGG_F_RESEND | INAGG_F_MULTICAST;
            shared_word(counters.requests).fetch_add(1);
        }
        h.level_flags = inagg_swap16(static_cast<uint16_t>(flags));
        h.boot = shared_word(shared_->boots.latest).load();
        seal(h, membership_.config, payload);
    }
    std::memcpy(to, &h, sizeof(h));
    out.commit(sizeof(h) + bytes);
}

// Give the slot's last result back to a switch that lost it.
void XdpTransport::send_restore(uint32_t index) {
    const Ring &ring = rings_[index >= rings_[1].first_slot];
    const uint32_t next = slot(index).block;
    inagg_cell &from = cell(ring, next - ring.window);
    if (!shared_word(from.done).load(std::memory_order_acquire))
        return;
    inagg_hdr h = from.hdr;
    const BlockMeta meta = inagg_hdr_meta(&h);
    const std::size_t bytes = inagg_block_bytes(&meta);
    std::byte *to = out_->reserve();
    std::memcpy(to + sizeof(h), from.payload, std::min<std::size_t>(bytes, INAGG_MAX_PAYLOAD));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot(index).block != next)
        return; // nobody can wait for it any more
    h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_RESTORE;
    h.source = inagg_swap16(membership_.config.rank);
    h.level_flags &= inagg_swap16(INAGG_F_VERSION | INAGG_F_SATURATED | INAGG_F_CHECKED);
    h.level_flags |= inagg_swap16(INAGG_F_RESEND);
    h.boot = shared_word(shared_->boots.latest).load();
    seal(h, membership_.config, inagg_hdr_payload_part(&from.hdr));
    std::memcpy(to, &h, sizeof(h));
    out_->commit(sizeof(h) + bytes);
    shared_word(shared_->counters.restores).fetch_add(1);
}

void XdpTransport::serve(const Ring &ring, uint32_t index, uint64_t now) {
    const inagg_wslot seen = slot(index);
    if (!may_need(ring, seen, now)) {
        if (seen.state == INAGG_WSLOT_SENT)
            earliest_due_ = std::min<uint64_t>(earliest_due_, seen.due_ns);
        return;
    }
    uint32_t block = 0;
    const int action = decide(ring, slots_[index], now, block);
    if (action == INAGG_W_NOTHING)
        return;
    if (action == INAGG_W_SEND || (action == INAGG_W_RESEND && slot(index).tries < frame_tries)) {
        orders_.push_back({index, block, static_cast<uint32_t>(action), 0});
        return;
    }
    send(*out_, ring, slots_[index], action, block);
    if (action == INAGG_W_RESEND_ASK_ALL)
        send(*out_, ring, slots_[index], INAGG_W_REQUEST_ALL, block);
}

// Start every slot that may go, and those whose timers are due.
void XdpTransport::serve() {
    std::atomic_thread_fence(std::memory_order_seq_cst); // first the limits, then the slots' states
    const uint64_t reboots = shared_word(shared_->counters.reboots).load();
    rebooted_ = std::exchange(reboots_seen_, reboots) != reboots;
    earliest_due_ = UINT64_MAX;
    const uint64_t now = served_ns_ = monotonic_ns();
    for (const Ring &ring : rings_)
        if (ring.tail != ring.loaded)
            // In the order of blocks, oldest first: others would take an old block after a new one for a loss.
            for (uint32_t i = 0; i < ring.window; i++)
                serve(ring, ring.first_slot + ((ring.tail + i) & (ring.window - 1)), now);
    send_orders(false);
    rebooted_ = false;
    if (const uint32_t wanted = shared_word(shared_->restore).exchange(0))
        send_restore(wanted - 1);
    if (frames_)
        frames_->flush();
    out_->flush();
}

// Sleeping.

void XdpTransport::choose_look_at(Ring &ring) const {
    const uint64_t loaded = ring.stored + (ring.loaded - ring.tail);
    // More than has been looked at: a late block at the head of the ring must not keep us awake.
    const uint64_t worthwhile = std::max<uint64_t>(ring.stored + ring.cells / 2, ring.seen + ring.window / 4);
    // What somebody may wait for: one that tells scales, or the rest of the oldest tensor; unless that is late.
    uint64_t awaited = ring.seen + 1;
    if (ring.stream == Stream::data && !ring.ends.empty())
        awaited = ring.stored + (ring.ends.front() - ring.tail);
    ring.look_at = std::min({loaded, worthwhile, awaited > ring.seen ? awaited : worthwhile});
}

bool XdpTransport::is_worth_looking() const {
    return std::ranges::any_of(rings_, [&](const Ring &ring) { return ring.tail != ring.loaded && done(ring) >= ring.look_at; });
}

void XdpTransport::sleep(std::chrono::nanoseconds wait) {
    for (const Ring &ring : rings_)
        shared_word(state(ring).wake_at).store(ring.look_at); // sequentially consistent: set, then look
    if (!is_worth_looking())
        await_doorbell(wait);
    for (const Ring &ring : rings_)
        shared_word(state(ring).wake_at).store(0); // never: who polls needs no doorbell
}

void XdpTransport::await_doorbell(std::chrono::nanoseconds wait) {
    const uint64_t now = monotonic_ns();
    const uint64_t until_due = earliest_due_ > now ? earliest_due_ - now : 0;
    const uint64_t longest = std::min({static_cast<uint64_t>(wait.count()), until_due, socket_check_ns});
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(longest / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(longest % 1'000'000'000);
    pollfd doorbell{bpf_map__fd(bpf_->maps.doorbell), POLLIN, 0};
    if (ppoll(&doorbell, 1, &timeout, nullptr) > 0)
        ring_buffer__consume(doorbell_.get());
}

bool XdpTransport::is_waiting() const {
    return std::ranges::any_of(rings_, [](const Ring &ring) { return ring.tail != ring.wanted; });
}

bool XdpTransport::stuck(uint64_t now) const {
    const auto is_stuck = [&](const Ring &ring) { return inagg_worker_stuck(&state(ring).worker, now); };
    return is_waiting() && now >= waiting_since_ + INAGG_RTO_CEILING_NS && std::ranges::all_of(rings_, is_stuck);
}

// The kernel's socket gets what is not a block: REFUSED, repeated CONFIGs. Who hears that the switch has lost the job asks.
void XdpTransport::check_socket() {
    const uint64_t now = monotonic_ns();
    if (now - socket_checked_ns_ < socket_check_ns)
        return;
    socket_checked_ns_ = now;
    hear();
    if (stuck(now))
        inagg_membership_doubt(&membership_, now);
    say_present(*io_, membership_, now);
}

void XdpTransport::hear() {
    out_->receive(*this, 0ns);
    if (ended_)
        throw *ended_;
}

void XdpTransport::packet(std::span<const std::byte> payload, bool) noexcept {
    inagg_hdr header;
    inagg_refusal refusal;
    if (payload.size() != sizeof(header) + sizeof(refusal))
        return;
    std::memcpy(&header, payload.data(), sizeof(header));
    const auto body = payload.subspan(sizeof(header));
    std::memcpy(&refusal, body.data(), sizeof(refusal));
    if (inagg_answer_admits(&membership_.config, &header) || inagg_hdr_type(&header) != INAGG_REFUSED ||
        !is_believed(membership_, header, body))
        return;
    membership_.config.boot = inagg_swap16(shared_word(shared_->boots.latest).load());
    if (const auto error = ended_by(membership_, header, refusal))
        ended_ = error;
}

// Transport.

void XdpTransport::extend(Stream stream, uint32_t limit) {
    Ring &ring = rings_[static_cast<int>(stream)];
    if (ring.tail == ring.wanted) {
        inagg_worker_restart(&state(ring).worker);
        if (!is_waiting())
            waiting_since_ = monotonic_ns();
    }
    ring.wanted = limit;
    ring.ends.push_back(limit);
    fill(ring);
    serve();
    choose_look_at(ring);
}

// Results are left alone until they are worth it, also by who polls: many blocks are started at once for less than a few.
bool XdpTransport::progress(std::chrono::nanoseconds wait) {
    bool any = false;
    const uint64_t now = monotonic_ns();
    if (wait.count() <= 0 && !is_worth_looking() && now - looked_ns_ < poll_results_ns) {
        if (now - served_ns_ > poll_timers_ns) {
            serve();
            check_socket();
        }
        return false;
    }
    looked_ns_ = now;
    for (int round = 0; round < 2; round++) {
        for (Ring &ring : rings_)
            any |= collect(ring);
        for (Ring &ring : rings_)
            fill(ring);
        serve();
        for (Ring &ring : rings_)
            choose_look_at(ring);
        if (any || round || wait.count() <= 0)
            break;
        sleep(wait);
    }
    check_socket();
    return any;
}

bool XdpTransport::stalled(Stalled &out) const {
    for (const Ring &ring : rings_) {
        if (ring.tail == ring.loaded)
            continue;
        const inagg_cell &at = cell(ring, ring.tail);
        out = {ring.stream, ring.tail, at.heard != 0, membership_.config.tree != 0, at.heard ? at.contributors : 0, 0};
        return true;
    }
    return false;
}

inagg_stats_t XdpTransport::stats() const {
    const inagg_stream_counters &counters = shared_->counters;
    const inagg_stream_state *states = shared_->streams;
    inagg_stats_t stats{};
    stats.blocks = states[0].accepted + states[1].accepted;
    stats.contributions = counters.contributions;
    stats.retransmissions = counters.retransmissions;
    stats.requests = counters.requests;
    stats.restores = counters.restores;
    stats.duplicates = counters.duplicates;
    stats.rejected = counters.rejected;
    stats.reboots = counters.reboots;
    stats.srtt_ns = states[states[0].worker.srtt_ns ? 0 : 1].worker.srtt_ns;
    return stats;
}

// Remembers that the job's results come to a group, which a stream program is not steered by.
class UnicastOnly final : public PacketIo {
public:
    explicit UnicastOnly(std::unique_ptr<PacketIo> io) : io_(std::move(io)) {}
    std::byte *reserve() noexcept override { return io_->reserve(); }
    void commit(std::size_t bytes) noexcept override { io_->commit(bytes); }
    void join_blocks(const inagg_job_config &job) override { io_->join_blocks(job); }
    void flush() override { io_->flush(); }
    void receive(PacketReceiver &receiver, std::chrono::nanoseconds wait) override { io_->receive(receiver, wait); }
    void join_group(std::span<const uint8_t, 16> group, uint16_t port) override {
        grouped = true;
        io_->join_group(group, port);
    }
    uint16_t receive_port() const override { return io_->receive_port(); }
    std::size_t path_payload() const override { return io_->path_payload(); }

    bool grouped = false;

private:
    std::unique_ptr<PacketIo> io_;
};

} // namespace

std::unique_ptr<Transport> make_xdp(const inagg_options &options, BlockClient &client) {
    auto device = std::make_unique<XdpDevice>("xdp", options.switch_address, true);
    auto unicast = std::make_unique<UnicastOnly>(make_udp_io(options));
    const UnicastOnly &watched = *unicast;
    std::unique_ptr<PacketIo> io = std::move(unicast);
    device->expect_config(io->receive_port());
    const Membership membership = join(*io, options);
    try {
        if (watched.grouped)
            throw results_to_group(options.job);
        return std::make_unique<XdpTransport>(std::move(device), io, membership, client);
    } catch (const Error &) {
        need_auto(*io, membership, options);
        return std::make_unique<Engine>("udp", std::move(io), membership, client, options);
    } catch (...) { // no memory
        leave(*io, membership);
        throw;
    }
}

} // namespace inagg
