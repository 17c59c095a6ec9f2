// SPDX-License-Identifier: BSD-2-Clause
// bpf/stream.bpf.c: a result in gives the next contribution out; what is not right changes nothing.
#include "worker_maps.h"

#include "stream.skel.h"

#include <inagg/core/checksum.h>

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr uint32_t slots = 4, cells = 16, header_bytes = 42, elements = 64, bytes = elements * 4;
constexpr uint16_t job = 7, generation = 9, boot = 3;
constexpr uint8_t remote[4] = {10, 0, 0, 1};
constexpr uint64_t all = 0x3;

class StreamTest : public testing::Test {
protected:
    void SetUp() override {
        bpf_ = stream_bpf__open();
        ASSERT_TRUE(bpf_);
        inagg_stream_settings settings{};
        settings.all = all;
        std::memcpy(settings.remote, remote, sizeof(remote));
        settings.header_bytes = header_bytes;
        settings.family = 4;
        settings.slots = settings.control_slots = slots;
        settings.cells = settings.control_cells = cells;
        settings.checked = 1;
        settings.job = inagg_swap16(job);
        settings.generation = inagg_swap16(generation);
        settings.rank = 1;
        settings.size = 2;
        std::memcpy(const_cast<inagg_stream_settings *>(&bpf_->rodata->settings), &settings, sizeof(settings));
        bpf_map__set_max_entries(bpf_->maps.slots, 2 * slots);
        bpf_map__set_max_entries(bpf_->maps.cells, 2 * cells);
        ASSERT_EQ(stream_bpf__load(bpf_), 0);
        slot_ = map<inagg_worker_slot>(bpf_->maps.slots, 2 * slots);
        cell_ = map<inagg_cell>(bpf_->maps.cells, 2 * cells);
        shared().boots.latest = inagg_swap16(boot);
        worker().floor_ns = INAGG_RTO_FLOOR_NS;
        inagg_worker_init(&worker(), slots, 0);
        worker().limit = 100;
        for (uint32_t i = 0; i < slots; i++)
            inagg_wslot_init(&slot_[i].state, i);
        for (uint32_t block = 0; block < cells; block++)
            load(block);
        ASSERT_EQ(inagg_worker_open(&worker(), &slot_[1].state, 1), INAGG_W_SEND); // block 1 is in flight
    }
    void TearDown() override { stream_bpf__destroy(bpf_); }

    template <typename T> T *map(bpf_map *from, size_t count) {
        void *memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(from), 0);
        EXPECT_NE(memory, MAP_FAILED);
        return static_cast<T *>(memory);
    }
    inagg_stream_shared &shared() { return bpf_->bss->shared; }
    inagg_worker &worker() { return shared().streams[0].worker; }

    static inagg_hdr header(inagg_type type, uint32_t block) {
        inagg_hdr h{};
        h.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type);
        h.level_flags = inagg_swap16(static_cast<uint16_t>((block & slots ? INAGG_F_VERSION : 0)));
        h.job = inagg_swap16(job);
        h.generation = inagg_swap16(generation);
        h.block = inagg_swap32(block);
        h.slot = inagg_swap32(block % slots);
        h.boot = inagg_swap16(boot);
        h.contributors = inagg_swap64(all);
        return h;
    }
    // What user space puts into a cell: the elements are the block's number.
    void load(uint32_t block) {
        inagg_cell &at = cell_[block % cells];
        at.hdr = header(INAGG_CONTRIBUTION, block);
        at.hdr.elements = inagg_swap16(elements);
        at.hdr.dtype_op = INAGG_WIRE_INT32 << 4;
        inagg_hdr_seal(&at.hdr);
        std::memset(at.payload, static_cast<int>(block), bytes);
        at.bytes = bytes;
        at.done = 0;
    }
    static std::vector<uint8_t> frame(inagg_hdr h, const std::vector<uint8_t> &payload) {
        std::vector<uint8_t> f(header_bytes + sizeof(h) + payload.size());
        iphdr ip{};
        ip.version = 4;
        ip.ihl = 5;
        std::memcpy(&ip.saddr, remote, 4);
        udphdr udp{};
        udp.len = inagg_swap16(static_cast<uint16_t>(sizeof(udp) + sizeof(h) + payload.size()));
        inagg_hdr_seal_checked(&h, h.payload_checksum);
        std::memcpy(&f[14], &ip, sizeof(ip));
        std::memcpy(&f[34], &udp, sizeof(udp));
        std::memcpy(&f[header_bytes], &h, sizeof(h));
        if (!payload.empty())
            std::memcpy(&f[header_bytes + sizeof(h)], payload.data(), payload.size());
        return f;
    }
    static std::pair<inagg_hdr, std::vector<uint8_t>> result(uint32_t block) {
        inagg_hdr h = header(INAGG_RESULT, block);
        std::vector<uint8_t> payload(bytes, 0xaa);
        h.elements = inagg_swap16(elements);
        h.dtype_op = INAGG_WIRE_INT32 << 4;
        h.payload_checksum = inagg_payload_checksum(payload.data(), bytes); // frame() adds the header's part
        return {h, payload};
    }
    uint32_t run(const std::vector<uint8_t> &in) {
        out_.assign(4096, 0);
        LIBBPF_OPTS(bpf_test_run_opts, options);
        options.data_in = in.data();
        options.data_size_in = static_cast<uint32_t>(in.size());
        options.data_out = out_.data();
        options.data_size_out = static_cast<uint32_t>(out_.size());
        options.repeat = 1;
        EXPECT_EQ(bpf_prog_test_run_opts(bpf_program__fd(bpf_->progs.inagg_stream), &options), 0);
        out_.resize(options.data_size_out);
        return options.retval;
    }
    inagg_hdr sent() const {
        inagg_hdr h;
        std::memcpy(&h, &out_[header_bytes], sizeof(h));
        EXPECT_TRUE(inagg_hdr_intact(&h));
        return h;
    }
    void expect_rejected(const std::vector<uint8_t> &in, uint32_t verdict = XDP_DROP) {
        EXPECT_EQ(run(in), verdict);
        EXPECT_EQ(shared().counters.rejected, 1u);
        EXPECT_EQ(slot_[1].state.block, 1u);
        EXPECT_EQ(slot_[1].state.state, INAGG_WSLOT_SENT);
        EXPECT_EQ(cell_[1].done, 0u);
        EXPECT_EQ(cell_[1].payload[0], 1);
    }

    stream_bpf *bpf_ = nullptr;
    inagg_worker_slot *slot_ = nullptr;
    inagg_cell *cell_ = nullptr;
    std::vector<uint8_t> out_;
};

TEST_F(StreamTest, ResultIsStoredAndTheNextContributionLeaves) {
    const auto [h, payload] = result(1);
    EXPECT_EQ(run(frame(h, payload)), XDP_TX);
    EXPECT_EQ(cell_[1].done, 1u);
    EXPECT_EQ(std::memcmp(cell_[1].payload, payload.data(), bytes), 0);
    EXPECT_EQ(inagg_hdr_type(&cell_[1].hdr), INAGG_RESULT);
    const inagg_hdr next = sent();
    EXPECT_EQ(inagg_hdr_type(&next), INAGG_CONTRIBUTION);
    EXPECT_EQ(inagg_swap32(next.block), 1 + slots);
    EXPECT_EQ(out_[header_bytes + sizeof(next)], 1 + slots);
    EXPECT_EQ(shared().streams[0].done, 1u);
    EXPECT_EQ(run(frame(h, payload)), XDP_DROP); // again
    EXPECT_EQ(shared().counters.duplicates, 1u);
}

TEST_F(StreamTest, NothingLeavesAtTheLimit) {
    worker().limit = 2;
    const auto [h, payload] = result(1);
    EXPECT_EQ(run(frame(h, payload)), XDP_DROP);
    EXPECT_EQ(cell_[1].done, 1u);
}

TEST_F(StreamTest, DamageChangesNothing) {
    auto [h, payload] = result(1);
    payload[5] ^= 1;
    expect_rejected(frame(h, payload));
}

TEST_F(StreamTest, WrongHeaderChecksumChangesNothing) {
    const auto [h, payload] = result(1);
    auto in = frame(h, payload);
    in[header_bytes + 40] ^= 1;
    expect_rejected(in);
}

TEST_F(StreamTest, WrongLengthChangesNothing) {
    auto [h, payload] = result(1);
    payload.resize(bytes - 64);
    expect_rejected(frame(h, payload));
}

// The port's owner was killed, perhaps, and another has it by now.
TEST_F(StreamTest, OtherJobChangesNothingAndPasses) {
    auto [h, payload] = result(1);
    h.job = inagg_swap16(job + 1);
    expect_rejected(frame(h, payload), XDP_PASS);
}

TEST_F(StreamTest, OtherGenerationChangesNothingAndPasses) {
    auto [h, payload] = result(1);
    h.generation = inagg_swap16(generation + 1);
    expect_rejected(frame(h, payload), XDP_PASS);
}

// One that the switch had and has no more is sent again, and all are asked: two packets, so it is user space's.
TEST_F(StreamTest, AForgottenBlockIsLeftToUserSpace) {
    ASSERT_EQ(inagg_worker_open(&worker(), &slot_[2].state, 1), INAGG_W_SEND);
    worker().srtt_ns = 1000;
    inagg_wslot &forgotten = slot_[1].state;
    forgotten.forgotten = forgotten.overtaken = 1;
    forgotten.due_ns = 1;
    const auto [h, payload] = result(2);
    EXPECT_EQ(run(frame(h, payload)), XDP_TX);
    const inagg_hdr next = sent();
    EXPECT_EQ(inagg_hdr_type(&next), INAGG_CONTRIBUTION);
    EXPECT_EQ(inagg_swap32(next.block), 2 + slots);
    EXPECT_EQ(shared().counters.restores, 0u);
    EXPECT_TRUE(forgotten.forgotten);
    EXPECT_EQ(forgotten.due_ns, 0u);
}

TEST_F(StreamTest, ABusySlotsResultIsLostButNotItsFrame) {
    ASSERT_EQ(inagg_worker_open(&worker(), &slot_[2].state, 1), INAGG_W_SEND);
    worker().srtt_ns = 1000;
    slot_[1].state.overtaken = 1;
    slot_[1].state.due_ns = 1;
    slot_[2].busy = 1; // by user space
    const auto [h, payload] = result(2);
    EXPECT_EQ(run(frame(h, payload)), XDP_TX);
    const inagg_hdr again = sent();
    EXPECT_EQ(inagg_swap32(again.block), 1u);
    EXPECT_TRUE(inagg_swap16(again.level_flags) & INAGG_F_RESEND);
    EXPECT_EQ(cell_[2].done, 0u);
    EXPECT_EQ(slot_[2].state.state, INAGG_WSLOT_SENT);
    EXPECT_EQ(shared().counters.duplicates, 0u);
}

TEST_F(StreamTest, WaitWithoutUsGivesAResend) {
    inagg_hdr h = header(INAGG_WAIT, 1);
    h.contributors = inagg_swap64(1);
    EXPECT_EQ(run(frame(h, {})), XDP_TX);
    const inagg_hdr again = sent();
    EXPECT_EQ(inagg_swap32(again.block), 1u);
    EXPECT_TRUE(inagg_swap16(again.level_flags) & INAGG_F_RESEND);
    EXPECT_EQ(out_.size(), header_bytes + sizeof(h) + bytes);
    EXPECT_EQ(shared().counters.retransmissions, 1u);
}

TEST_F(StreamTest, WaitForAnEarlierBlockGivesItsResultBack) {
    const auto [r, payload] = result(1);
    ASSERT_EQ(run(frame(r, payload)), XDP_TX);
    inagg_hdr h = header(INAGG_WAIT, 1);
    h.contributors = inagg_swap64(1);
    EXPECT_EQ(run(frame(h, {})), XDP_TX);
    const inagg_hdr restored = sent();
    EXPECT_EQ(inagg_hdr_type(&restored), INAGG_RESTORE);
    EXPECT_EQ(inagg_swap16(restored.source), 1);
    EXPECT_EQ(std::memcmp(&out_[header_bytes + sizeof(h)], payload.data(), bytes), 0);
}

TEST_F(StreamTest, OtherSendersPass) {
    const auto [h, payload] = result(1);
    auto in = frame(h, payload);
    in[14 + 12] ^= 1; // source address
    EXPECT_EQ(run(in), XDP_PASS);
    EXPECT_EQ(shared().counters.rejected, 0u);
}

} // namespace

int main(int argc, char **argv) {
    uint32_t any = 0;
    if (bpf_prog_get_next_id(0, &any) && errno == EPERM) {
        std::puts("SKIP: needs CAP_BPF and CAP_SYS_ADMIN to load XDP programs");
        return 77;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
