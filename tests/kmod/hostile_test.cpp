// SPDX-License-Identifier: BSD-2-Clause
// Packets that no sane switch sends: counted under their reason, and nothing else happens.
#include "world.hpp"

#include <inagg/core/mac.h>
#include <inagg/core/packet.h>
#include <inagg/core/tensor.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

namespace kmod {

struct HostileTest : KmodTest {
    // Two ranks that have sent some elements, whose answers are missing: the switch is deaf to rank 0.
    void begin(inagg_dtype dtype, bool checked = false, int count = 256) {
        start();
        join(2, [&](Rank &rank) { rank.set(INAGG_CHECKED, checked); });
        input = inputs_of(dtype, 2, count);
        world->filter = [&](const mock_packet &packet) {
            if (packet.from_port == ranks[0].port)
                std::memcpy(&sent, packet.data, sizeof(sent));
            return packet.from_port == ranks[0].port && deaf;
        };
        for (size_t i = 0; i < 2; i++)
            ASSERT_EQ(ranks[i].send(input[i], {static_cast<uint8_t>(dtype), INAGG_SUM, 0, INAGG_SCALE_AUTO}),
                      count * bytes(dtype));
        type = dtype;
    }
    static int bytes(inagg_dtype dtype) { return static_cast<int>(inagg_memory_bytes(dtype)); }

    // The answer of the switch to what rank 0 has sent last.
    inagg_hdr answer(inagg_type kind) const {
        inagg_hdr h = sent;
        h.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | kind);
        h.contributors = inagg_swap64(3);
        h.count = inagg_swap16(2);
        h.boot = inagg_swap16(1);
        h.level_flags &= inagg_swap16(INAGG_F_VERSION);
        return h;
    }
    static Bytes packet(inagg_hdr h, size_t payload, bool checked = false, uint8_t fill = 0x55) {
        Bytes out(sizeof(h) + payload, std::byte{fill});
        if (checked)
            inagg_hdr_seal_checked(&h, inagg_payload_checksum(out.data() + sizeof(h), static_cast<uint32_t>(payload)));
        else
            inagg_hdr_seal(&h);
        std::memcpy(out.data(), &h, sizeof(h));
        return out;
    }
    // Delivered, and counted as `reason` and as nothing else.
    void expect_drop(const Bytes &data, inagg_reason reason, const char *from = "10.0.0.254", uint16_t port = INAGG_PORT) {
        const uint64_t rejected = ranks[0].info().rejected, blocks = ranks[0].info().blocks;
        const uint64_t before = drops(reason);
        EXPECT_TRUE(world->deliver(data, ranks[0].port, from, port));
        EXPECT_EQ(ranks[0].info().rejected, rejected + 1) << reason;
        EXPECT_EQ(ranks[0].info().blocks, blocks);
        EXPECT_EQ(drops(reason), before + 1) << mock_read_proc(0);
        EXPECT_EQ(drops_of_rank_0(reason), before + 1) << mock_read_proc(0);
    }
    // The same in the line of the job's rank.
    static uint64_t drops_of_rank_0(inagg_reason reason) {
        static const char *const names[INAGG_R_CAPACITY] = {
#define NAME(number, name, text) #name,
            INAGG_REASONS(NAME)
#undef NAME
        };
        const std::string proc = mock_read_proc(0);
        const size_t line = proc.find(" job 7 rank 0 "), end = proc.find('\n', line);
        const std::string key = std::string(" dropped_") + names[reason] + " ";
        const size_t at = proc.find(key, line);
        return at < end ? std::stoull(proc.substr(at + key.size())) : 0;
    }
    // What /proc/net/inagg says.
    static uint64_t drops(inagg_reason reason) {
        static const char *const texts[INAGG_R_CAPACITY] = {
#define TEXT(number, name, text) text,
            INAGG_REASONS(TEXT)
#undef TEXT
        };
        const std::string proc = mock_read_proc(0);
        const size_t at = proc.find(std::string(": ") + texts[reason] + "\n");
        if (at == std::string::npos)
            return 0;
        const size_t line = proc.rfind("dropped ", at) + 8;
        return std::stoull(proc.substr(line, at - line));
    }
    void expect_sum() {
        deaf = false;
        std::vector<Transfer> transfers;
        for (size_t i = 0; i < 2; i++)
            transfers.push_back({ranks[i], input[i], {}, input[i].size(), true});
        pump(transfers);
        for (const Transfer &t : transfers) {
            EXPECT_EQ(t.error, 0);
            EXPECT_TRUE(t.output == expected(type, INAGG_SUM, input));
        }
    }

    std::vector<Bytes> input;
    inagg_hdr sent{};
    inagg_dtype type = INAGG_INT32;
    bool deaf = true;
};

using Change = void (*)(inagg_hdr &);

TEST_F(HostileTest, WrongResultsChangeNothing) {
    begin(INAGG_INT32);
    const inagg_hdr good = answer(INAGG_RESULT);
    const struct {
        inagg_reason reason;
        Change change;
        size_t payload = 256;
    } cases[] = {
        {INAGG_R_VERSION, [](inagg_hdr &h) { h.version_type = 2 << 4 | INAGG_RESULT; }},
        {INAGG_R_JOB, [](inagg_hdr &h) { h.job ^= inagg_swap16(1); }},
        {INAGG_R_GENERATION, [](inagg_hdr &h) { h.generation ^= inagg_swap16(1); }},
        {INAGG_R_TYPE, [](inagg_hdr &h) { h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_CONTRIBUTION; }},
        {INAGG_R_TYPE, [](inagg_hdr &h) { h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_TICK; }},
        {INAGG_R_TYPE, [](inagg_hdr &h) { h.version_type = INAGG_WIRE_VERSION << 4; }},
        {INAGG_R_SLOT, [](inagg_hdr &h) { h.slot = inagg_swap32(10); }},
        {INAGG_R_SLOT, [](inagg_hdr &h) { h.slot = 0xffffffff; }},
        {INAGG_R_SLOT, [](inagg_hdr &h) { h.slot = inagg_swap32(8); }}, // a control slot
        {INAGG_R_SLOT, [](inagg_hdr &h) { h.slot ^= inagg_swap32(1); }},
        {INAGG_R_SLOT, [](inagg_hdr &h) { h.level_flags ^= inagg_swap16(INAGG_F_VERSION); }},
        {INAGG_R_ELEMENTS, [](inagg_hdr &h) { h.elements = inagg_swap16(33); }, 132},
        {INAGG_R_ELEMENTS, [](inagg_hdr &h) { h.elements = inagg_swap16(96); }, 384},
        {INAGG_R_LENGTH, [](inagg_hdr &) {}, 252},
        {INAGG_R_LENGTH, [](inagg_hdr &) {}, 0},
        {INAGG_R_LENGTH, [](inagg_hdr &h) { h.elements = 0; }},
        {INAGG_R_LENGTH, [](inagg_hdr &h) { h.dtype_op = 0xf << 4; }},
        {INAGG_R_RANK, [](inagg_hdr &h) { h.contributors = inagg_swap64(1); }},
        {INAGG_R_RANK, [](inagg_hdr &h) { h.contributors = inagg_swap64(7); }},
        {INAGG_R_LENGTH, [](inagg_hdr &h) { h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_WAIT; }},
    };
    for (const auto &[reason, change, payload] : cases) {
        inagg_hdr h = good;
        change(h);
        expect_drop(packet(h, payload), reason);
    }
    Bytes damaged = packet(good, 256);
    damaged[20] ^= std::byte{1};
    expect_drop(damaged, INAGG_R_HEADER_CHECKSUM);
    expect_drop(packet(good, 256), INAGG_R_ADDRESS, "10.0.0.253");
    expect_drop(packet(good, 256), INAGG_R_ADDRESS, "10.0.0.254", 12001);
    for (const size_t bytes : {0, 1, 63})
        EXPECT_TRUE(world->deliver(Bytes(bytes), ranks[0].port)) << "too short to count";
    expect_sum();
}

TEST_F(HostileTest, PayloadChecksumsAreVerified) {
    begin(INAGG_INT32, true);
    const inagg_hdr good = answer(INAGG_RESULT);
    expect_drop(packet(good, 256, false), INAGG_R_PAYLOAD_CHECKSUM);
    Bytes damaged = packet(good, 256, true);
    damaged.back() ^= std::byte{1};
    expect_drop(damaged, INAGG_R_PAYLOAD_CHECKSUM);
    expect_sum();
}

TEST_F(HostileTest, ResultsOfOtherBlocksAreDuplicates) {
    begin(INAGG_INT32);
    for (const uint32_t block : {8U, 16U, 0x80000000U, 0xfffffff8U}) {
        inagg_hdr h = answer(INAGG_RESULT);
        h.block = inagg_swap32(block);
        h.slot = inagg_swap32(block % 8);
        h.level_flags = inagg_swap16(block & 8 ? INAGG_F_VERSION : 0);
        const uint64_t before = ranks[0].info().duplicates;
        world->deliver(packet(h, 256), ranks[0].port);
        EXPECT_EQ(ranks[0].info().duplicates, before + 1) << block;
    }
    EXPECT_EQ(ranks[0].info().blocks, 0U);
    expect_sum();
}

// A switch that answers with other elements than it was given.
TEST_F(HostileTest, ResultsOfAnotherShapeFailTheTensor) {
    const struct {
        Change change;
        size_t payload = 256;
    } cases[] = {
        {[](inagg_hdr &h) { h.dtype_op = INAGG_WIRE_FIXED32 << 4; }},
        {[](inagg_hdr &h) { h.dtype_op = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX; }},
        {[](inagg_hdr &h) { h.dtype_op = 0xf << 4, h.elements = 0; }, 0},
        {[](inagg_hdr &h) { h.scale = 1; }},
        {[](inagg_hdr &h) { h.elements = inagg_swap16(32); }, 128},
        {[](inagg_hdr &h) { h.elements = 0; }, 0},
        {[](inagg_hdr &h) { h.dtype_op = INAGG_WIRE_FLOAT16 << 4, h.elements = inagg_swap16(128); }},
    };
    for (const auto &[change, payload] : cases) {
        begin(INAGG_INT32, false, 64);
        inagg_hdr h = answer(INAGG_RESULT);
        change(h);
        EXPECT_TRUE(world->deliver(packet(h, payload), ranks[0].port));
        EXPECT_EQ(ranks[0].info().blocks, 1U);
        Bytes got(256);
        EXPECT_EQ(ranks[0].recv(got), -EBADMSG);
        EXPECT_EQ(ranks[0].recv_nowait(got), -EAGAIN) << "the tensor is gone";
        TearDown();
    }
    world.reset();
}

// From the first wrong block on nothing of the tensor is handed out, and it does not keep its sender waiting.
TEST_F(HostileTest, BrokenTensorsHandOutNoBlocks) {
    start();
    join(1, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); }); // four blocks
    world->filter = [&](const mock_packet &packet) {
        std::memcpy(&sent, packet.data, sizeof(sent));
        return true;
    };
    const Bytes data = integers(1, 64 * 20)[0];
    size_t taken = 0;
    const auto send_more = [&] {
        const int more = ranks[0].send(std::span(data).subspan(taken), MSG_DONTWAIT);
        taken += static_cast<size_t>(std::max(more, 0));
    };
    ranks[0].set(INAGG_DTYPE, INAGG_INT32);
    send_more();
    for (uint32_t block = 0; block < 20; block++) {
        inagg_hdr h = answer(INAGG_RESULT);
        h.contributors = inagg_swap64(1);
        h.count = inagg_swap16(1);
        h.block = inagg_swap32(block);
        h.slot = inagg_swap32(block % 8);
        h.level_flags = inagg_swap16(block & 8 ? INAGG_F_VERSION : 0);
        h.scale = block == 2;
        EXPECT_TRUE(world->deliver(packet(h, 256), ranks[0].port));
        int unread = -1;
        EXPECT_EQ(mock_ioctl(ranks[0].sock, SIOCINQ, &unread), 0);
        EXPECT_EQ(unread, block < 2 ? 256 : 0);
        Bytes got(2000);
        EXPECT_EQ(ranks[0].recv_nowait(got), block < 2 ? 256 : block < 19 ? -EAGAIN : -EBADMSG) << block;
        EXPECT_TRUE(block < 2 || got == Bytes(2000)) << block;
        if (taken < data.size())
            send_more();
    }
    EXPECT_EQ(taken, data.size());
    world->filter = {};
}

// The counts of infinities and NaN are a part of their sum that the user does not see.
TEST_F(HostileTest, CountsOfAnotherShapeFailTheSum) {
    for (const bool wrong : {false, true}) {
        begin(INAGG_FLOAT32, false, 64);
        std::map<uint32_t, inagg_hdr> contributions; // by slot
        world->filter = [&](const mock_packet &packet) {
            std::memcpy(&sent, packet.data, sizeof(sent));
            if (packet.from_port == ranks[0].port)
                contributions[inagg_swap32(sent.slot)] = sent;
            return packet.from_port == ranks[0].port;
        };
        const auto reply = [&](uint32_t slot, const std::function<void(inagg_hdr &)> &change = {}) {
            ASSERT_TRUE(contributions.contains(slot));
            sent = contributions[slot];
            inagg_hdr h = answer(INAGG_RESULT);
            if (change)
                change(h);
            EXPECT_TRUE(world->deliver(packet(h, inagg_swap16(h.elements) * 4UL), ranks[0].port));
            world->run(ms); // a work splits the sum
        };
        inagg_hdr h = answer(INAGG_RESULT);
        h.next_scale = INAGG_SCALE_NONFINITE;
        EXPECT_TRUE(world->deliver(packet(h, 256), ranks[0].port));
        world->run(ms);
        reply(0); // the exponent of the rest
        reply(1); // the sum
        reply(2, [&](inagg_hdr &counts) { counts.scale = wrong; });
        Bytes got(256);
        EXPECT_EQ(ranks[0].recv_nowait(got), wrong ? -EBADMSG : 256);
        EXPECT_EQ(got == Bytes(256), wrong);
        TearDown();
    }
    world.reset();
}

// The same of a small sum's control block, when the switch says that the guess was right.
TEST_F(HostileTest, ControlResultsOfAnotherShapeFailTheSum) {
    const struct {
        int length;
        Change change;
        size_t payload = 256;
    } cases[] = {
        {256, [](inagg_hdr &) {}},
        {-EBADMSG, [](inagg_hdr &h) { h.dtype_op = INAGG_WIRE_INT32 << 4; }},
        {-EBADMSG, [](inagg_hdr &h) { h.dtype_op = INAGG_WIRE_NONE << 4, h.elements = 0; }, 0},
        {-EBADMSG, [](inagg_hdr &h) { h.scale = 1; }},
        {-EBADMSG, [](inagg_hdr &h) { h.elements = inagg_swap16(32); }, 128},
        {-EBADMSG, [](inagg_hdr &h) { h.dtype_op = INAGG_WIRE_FLOAT16 << 4, h.elements = inagg_swap16(128); }},
    };
    for (const auto &[length, change, payload] : cases) {
        begin(INAGG_FLOAT32, false, 64);
        inagg_hdr h = answer(INAGG_RESULT);
        h.next_scale = h.scale; // the first guess
        change(h);
        EXPECT_TRUE(world->deliver(packet(h, payload), ranks[0].port));
        Bytes got(256);
        EXPECT_EQ(ranks[0].recv_nowait(got), length);
        EXPECT_EQ(ranks[0].recv_nowait(got), -EAGAIN) << "the tensor is gone";
        TearDown();
    }
    world.reset();
}

// A large sum's control block asks for the scale only.
TEST_F(HostileTest, ControlResultsWithElementsThatNobodySentOverwriteNothing) {
    begin(INAGG_FLOAT32);
    inagg_hdr h = answer(INAGG_RESULT);
    h.dtype_op = INAGG_WIRE_FIXED32 << 4;
    h.elements = inagg_swap16(64);
    std::vector<Bytes> contributions;
    world->filter = [&](const mock_packet &packet) {
        const auto *data = static_cast<const std::byte *>(packet.data);
        if (packet.from_port == ranks[0].port)
            contributions.emplace_back(data, data + packet.bytes);
        return packet.from_port == ranks[0].port;
    };
    EXPECT_TRUE(world->deliver(packet(h, 256), ranks[0].port));
    world->filter = nullptr;
    ASSERT_EQ(contributions.size(), 4U);
    for (size_t block = 0; block < 4; block++) {
        inagg_coding coding;
        inagg_coding_init(&coding, INAGG_FLOAT32, INAGG_SUM, 2, h.next_scale, 0);
        Bytes want(256);
        inagg_encode_block(&coding, input[0].data() + 256 * block, want.data(), 64);
        contributions[block].erase(contributions[block].begin(), contributions[block].begin() + sizeof(h));
        EXPECT_TRUE(contributions[block] == want);
    }
}

// Any header with a right checksum: what comes of it may be wrong sums, but nothing worse.
TEST_F(HostileTest, MutatedAnswersBreakNothing) {
    for (const inagg_dtype dtype : {INAGG_INT32, INAGG_FLOAT32, INAGG_FLOAT16}) {
        begin(dtype, false, 300);
        std::mt19937 random(dtype);
        for (int i = 0; i < 5000; i++) {
            inagg_hdr h = answer(random() % 3 ? INAGG_RESULT : INAGG_WAIT);
            for (unsigned changes = random() % 3; changes; changes--) {
                const unsigned at = random() % offsetof(inagg_hdr, checksum);
                reinterpret_cast<uint8_t *>(&h)[at] ^= static_cast<uint8_t>(1U << random() % 8);
            }
            const size_t fitting = inagg_swap16(h.elements) * inagg_element_bytes(inagg_hdr_dtype(&h));
            world->deliver(packet(h, random() % 4 ? std::min<size_t>(fitting, 4000) : random() % 400), ranks[0].port);
            Bytes got(100);
            (void)ranks[0].recv_nowait(got);
        }
        TearDown();
    }
    world.reset();
}

TEST_F(HostileTest, WaitsForNothingAreIgnored) {
    begin(INAGG_INT32);
    const uint64_t contributions = ranks[0].info().retransmissions;
    for (const uint32_t block : {0U, 5U, 8U, 0xfffffff8U}) {
        inagg_hdr h = answer(INAGG_WAIT);
        h.block = inagg_swap32(block);
        h.slot = inagg_swap32(block % 8);
        h.level_flags = inagg_swap16(block & 8 ? INAGG_F_VERSION : 0);
        h.contributors = inagg_swap64(~0ULL);
        world->deliver(packet(h, 0), ranks[0].port);
    }
    EXPECT_EQ(ranks[0].info().retransmissions, contributions);
    EXPECT_EQ(ranks[0].info().restores, 0U);
    expect_sum();
}

TEST_F(HostileTest, ManyRestartsAtOnceAreBelievedOnce) {
    begin(INAGG_INT32);
    for (uint16_t boot = 1; boot <= 100; boot++) {
        inagg_hdr h = answer(INAGG_WAIT);
        h.block = h.slot = h.level_flags = 0;
        h.contributors = 0;
        h.boot = inagg_swap16(boot % 3 + 100);
        world->deliver(packet(h, 0), ranks[0].port);
        world->run(20 * us);
    }
    EXPECT_EQ(ranks[0].info().reboots, 1U);
    EXPECT_LT(ranks[0].info().retransmissions, 4U * 8) << "a window and what its timers repeat";
    expect_sum();
}

// Membership.

struct MembershipTest : HostileTest {
    // What a rank has sent, with the body that it has if it is about its membership.
    void note(const mock_packet &packet) {
        std::memcpy(&sent, packet.data, sizeof(sent));
        if (packet.bytes == sizeof(sent) + sizeof(asked))
            std::memcpy(&asked, static_cast<const char *>(packet.data) + sizeof(sent), sizeof(asked));
    }
    template <typename Body> static Bytes with(inagg_hdr h, const Body &body, bool checked = true) {
        Bytes out(sizeof(h) + sizeof(body));
        std::memcpy(out.data() + sizeof(h), &body, sizeof(body));
        if (checked)
            inagg_hdr_seal_checked(&h, inagg_body_checksum(out.data() + sizeof(h)));
        else
            inagg_hdr_seal(&h);
        std::memcpy(out.data(), &h, sizeof(h));
        return out;
    }

    struct inagg_join asked {};
};

// PROTOCOL §9: a switch that has lost its jobs says so without a nonce.
struct LostJobTest : MembershipTest {
    void SetUp() override {
        begin(INAGG_INT32);
        world->filter = [&](const mock_packet &packet) {
            note(packet);
            if (packet.from_port != ranks[0].port || inagg_hdr_type(&sent) != INAGG_JOIN)
                return false;
            joins++;
            EXPECT_EQ(inagg_swap16(sent.boot), 1) << "of who had joined already";
            return deaf;
        };
        lost = answer(INAGG_REFUSED);
        lost.slot = inagg_swap32(INAGG_R_JOB);
        lost.count = 0;
        lost.contributors = 0;
    }
    static Bytes refusal(const inagg_hdr &header, uint64_t nonce) {
        struct inagg_join body {};
        body.nonce = nonce;
        return with(header, body);
    }

    inagg_hdr lost{};
    unsigned joins = 0;
};

TEST_F(LostJobTest, OneThatKnowsTheRankConfirmsIt) {
    deaf = false;
    world->deliver(refusal(lost, 0), ranks[0].port);
    world->run(100 * ms);
    EXPECT_EQ(joins, 1U);
    expect_sum();
}

TEST_F(LostJobTest, OneThatDoesNotEndsTheJob) {
    world->deliver(refusal(lost, 0), ranks[0].port);
    world->run(100 * ms);
    ASSERT_EQ(joins, 1U);
    world->deliver(refusal(lost, asked.nonce), ranks[0].port);
    Bytes got(256);
    EXPECT_EQ(ranks[0].recv_nowait(got), -ECONNRESET);
}

TEST_F(LostJobTest, WhatIsSaidOfAnotherGenerationIsNotAboutUs) {
    inagg_hdr other = lost;
    other.generation = inagg_swap16(static_cast<uint16_t>(inagg_swap16(lost.generation) + 1));
    world->deliver(refusal(other, 0), ranks[0].port);
    world->run(100 * ms);
    EXPECT_EQ(joins, 0U);
}

struct JoinTest : MembershipTest {
    void SetUp() override {
        start();
        world->filter = [&](const mock_packet &packet) {
            note(packet);
            return deaf;
        };
        ranks.emplace_back();
        ASSERT_EQ(ranks[0].bind(0), 0);
        prepare(ranks[0]);
        ASSERT_EQ(ranks[0].connect(2, true), -EINPROGRESS);
        ASSERT_TRUE(mock_step()); // the first JOIN
    }
    virtual void prepare(Rank &) {}
    Bytes reply(inagg_type kind, const inagg_config &body, uint32_t reason = 0, bool checked = true) const {
        inagg_hdr h = answer(kind);
        h.slot = inagg_swap32(reason);
        h.generation = inagg_swap16(5);
        prove(h, body);
        return with(h, body, checked);
    }
    virtual void prove(inagg_hdr &, const inagg_config &) const {}
    inagg_config config() const {
        inagg_config c{};
        c.nonce = asked.nonce;
        c.size = asked.size;
        c.elements = asked.elements;
        c.slots = inagg_swap32(8);
        c.control_slots = inagg_swap32(2);
        return c;
    }
    void answer_with(const std::function<void(inagg_config &)> &change) {
        inagg_config c = config();
        change(c);
        world->deliver(reply(INAGG_CONFIG, c), ranks[0].port);
    }
};

TEST_F(JoinTest, AnswersToOthersAreCounted) {
    inagg_config other = config();
    other.nonce++;
    expect_drop(reply(INAGG_CONFIG, other), INAGG_R_TYPE);
    expect_drop(reply(INAGG_REFUSED, other), INAGG_R_TYPE);
    other.nonce = 0; // about a job that we are not in
    expect_drop(reply(INAGG_REFUSED, other, INAGG_R_JOB), INAGG_R_TYPE);
    Bytes longer = reply(INAGG_CONFIG, config());
    longer.resize(longer.size() + 1);
    expect_drop(longer, INAGG_R_TYPE);
    Bytes damaged = reply(INAGG_CONFIG, config());
    damaged.back() ^= std::byte{1};
    expect_drop(damaged, INAGG_R_TYPE);
    expect_drop(reply(INAGG_CONFIG, config(), 0, false), INAGG_R_TYPE); // its checksum is not optional
    deaf = false;
    EXPECT_EQ(ranks[0].connect(2), 0);
}

TEST_F(JoinTest, SenselessConfigsFailTheJoin) {
    const struct {
        int error;
        std::function<void(inagg_config &)> change;
    } cases[] = {
        {EINVAL, [](auto &c) { c.size = inagg_swap16(3); }},
        {EPROTONOSUPPORT, [](auto &c) { c.algorithm = INAGG_TRIO; }},
        {EMSGSIZE, [](auto &c) { c.elements = 0; }},
        {EMSGSIZE, [](auto &c) { c.elements = inagg_swap16(33); }},
        {EMSGSIZE, [](auto &c) { c.elements = inagg_swap16(832); }},
        {EPROTO, [](auto &c) { c.slots = 0; }},
        {EPROTO, [](auto &c) { c.slots = inagg_swap32(3); }},
        {EPROTO, [](auto &c) { c.slots = inagg_swap32(1U << 31); }},
        {EPROTO, [](auto &c) { c.control_slots = 0; }},
        {EADDRNOTAVAIL, [](auto &c) { c.group_port = inagg_swap16(12001); }}, // 0.0.0.0 is no group
        {EADDRNOTAVAIL,
         [](auto &c) {
             c.group_port = inagg_swap16(12001);
             c.group[0] = 10;
         }},
        {EACCES,
         [](auto &c) {
             c.group_port = inagg_swap16(1023);
             c.group[0] = 239;
         }},
    };
    for (const auto &[error, change] : cases) {
        answer_with(change);
        EXPECT_EQ(ranks[0].connect(2), -error);
        EXPECT_EQ(ranks[0].info().slots, 0U);
        while (ranks[0].fault())
            ;
        ASSERT_EQ(ranks[0].connect(2, true), -EINPROGRESS);
        mock_step();
    }
    deaf = false;
    EXPECT_EQ(ranks[0].connect(2), 0);
}

TEST_F(JoinTest, AGroupsPortMayBeTaken) {
    Rank other;
    ASSERT_EQ(other.bind(1, "::", 12001), 0);
    ASSERT_EQ(other.connect(2, true), -EINPROGRESS);
    answer_with([](auto &c) {
        c.group_port = inagg_swap16(12001);
        c.group[0] = 239;
    });
    world->run(ms);
    EXPECT_EQ(ranks[0].connect(2), -EADDRINUSE);
    deaf = false;
}

TEST_F(JoinTest, RefusalsHaveTheirErrors) {
    const std::pair<inagg_reason, int> cases[] = {
        {INAGG_R_TAKEN, EADDRINUSE},          {INAGG_R_MTU, EMSGSIZE},      {INAGG_R_FULL, ENOBUFS},
        {INAGG_R_ALGORITHM, EPROTONOSUPPORT}, {INAGG_R_SIZE, EINVAL},       {INAGG_R_RANK, EINVAL},
        {INAGG_R_POLICY, ECONNREFUSED},       {INAGG_R_PORT, ECONNREFUSED}, {INAGG_R_ADDRESS, ECONNREFUSED},
        {INAGG_R_REPLACED, ECONNREFUSED},
    };
    for (const auto &[reason, error] : cases) {
        world->deliver(reply(INAGG_REFUSED, config(), reason), ranks[0].port);
        const auto fault = ranks[0].fault();
        ASSERT_TRUE(fault);
        EXPECT_EQ(fault->error, static_cast<unsigned>(error));
        EXPECT_EQ(fault->reason, reason);
        EXPECT_EQ(ranks[0].connect(2, true), -error) << reason;
        ASSERT_EQ(ranks[0].connect(2, true), -EINPROGRESS);
        mock_step();
    }
    world->deliver(reply(INAGG_REFUSED, config(), 0xffffffff), ranks[0].port);
    EXPECT_EQ(ranks[0].connect(2, true), -ECONNREFUSED) << "a reason of a later version";
}

TEST_F(JoinTest, RefusalsThatMayPassAreWaitedOut) {
    world->deliver(reply(INAGG_REFUSED, config(), INAGG_R_FORMING), ranks[0].port);
    EXPECT_FALSE(ranks[0].fault());
    answer_with([](auto &) {});
    EXPECT_EQ(ranks[0].connect(2), 0);
}

TEST_F(JoinTest, ARefusalThatDoesNotPassIsTold) {
    world->deliver(reply(INAGG_REFUSED, config(), INAGG_R_FORMING), ranks[0].port);
    world->run(60 * s);
    const auto fault = ranks[0].fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error, static_cast<unsigned>(ETIMEDOUT));
    EXPECT_EQ(fault->reason, static_cast<unsigned>(INAGG_R_FORMING));
    EXPECT_EQ(ranks[0].connect(2, true), -ETIMEDOUT);
}

// Of a job with a key.
struct KeyedJoinTest : JoinTest {
    void prepare(Rank &rank) override {
        ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_KEY, bytes.data(), static_cast<int>(bytes.size())), 0);
    }
    void prove(inagg_hdr &h, const inagg_config &body) const override {
        inagg_hdr_set_challenge(&h, challenge);
        if (by)
            inagg_hdr_prove(&h, &body, by);
    }

    std::array<uint8_t, INAGG_KEY_BYTES> bytes = {1, 2, 3};
    const inagg_mac_key key = inagg_mac_key_of(bytes.data()), other = {{3, 2}};
    const inagg_mac_key *by = &key; // whoever answers
    uint64_t challenge = 0;
};

TEST_F(KeyedJoinTest, ItsJoinIsProven) {
    EXPECT_TRUE(inagg_hdr_is_proven(&sent, &asked, &key));
    EXPECT_FALSE(inagg_hdr_is_proven(&sent, &asked, &other));
    EXPECT_EQ(inagg_hdr_challenge(&sent), 0u);
}

TEST_F(KeyedJoinTest, AChallengeIsAnsweredAtOnce) {
    challenge = 4711;
    world->deliver(reply(INAGG_REFUSED, config(), INAGG_R_CHALLENGE), ranks[0].port);
    EXPECT_EQ(inagg_hdr_challenge(&sent), 4711u) << "no timer has run";
    EXPECT_TRUE(inagg_hdr_is_proven(&sent, &asked, &key));
    answer_with([](auto &) {});
    EXPECT_EQ(ranks[0].connect(2), 0);
    ranks[0].close();
    EXPECT_EQ(inagg_hdr_type(&sent), INAGG_LEAVE);
    EXPECT_TRUE(inagg_hdr_is_proven(&sent, &asked, &key));
}

TEST_F(KeyedJoinTest, WhoDoesNotKnowTheKeyIsNotBelieved) {
    for (const inagg_mac_key *forger : {static_cast<const inagg_mac_key *>(nullptr), &other}) {
        by = forger;
        expect_drop(reply(INAGG_CONFIG, config()), INAGG_R_TYPE);
        expect_drop(reply(INAGG_REFUSED, config(), INAGG_R_TAKEN), INAGG_R_TYPE);
        challenge = 666;
        expect_drop(reply(INAGG_REFUSED, config(), INAGG_R_CHALLENGE), INAGG_R_TYPE);
        EXPECT_EQ(inagg_hdr_challenge(&sent), 0u);
    }
    EXPECT_FALSE(ranks[0].fault());
    by = &key;
    answer_with([](auto &) {});
    ASSERT_EQ(ranks[0].connect(2), 0);
    by = nullptr;
    expect_drop(reply(INAGG_REFUSED, config(), INAGG_R_REPLACED), INAGG_R_TYPE);
    EXPECT_FALSE(ranks[0].fault());
    by = &key;
    world->deliver(reply(INAGG_REFUSED, config(), INAGG_R_REPLACED), ranks[0].port);
    EXPECT_TRUE(ranks[0].fault());
}

TEST_F(KeyedJoinTest, AlteredAnswersAreNotBelieved) {
    Bytes altered = reply(INAGG_CONFIG, config());
    inagg_hdr h;
    std::memcpy(&h, altered.data(), sizeof(h));
    h.generation = inagg_swap16(6);
    inagg_hdr_seal_checked(&h, inagg_body_checksum(altered.data() + sizeof(h)));
    std::memcpy(altered.data(), &h, sizeof(h));
    expect_drop(altered, INAGG_R_TYPE);
}

TEST_F(KeyedJoinTest, ASwitchWithoutTheKeyIsToldOf) {
    by = nullptr;
    expect_drop(reply(INAGG_REFUSED, config(), INAGG_R_KEY), INAGG_R_TYPE);
    world->run(60 * s);
    const auto fault = ranks[0].fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error, static_cast<unsigned>(ETIMEDOUT));
    EXPECT_EQ(fault->reason, static_cast<unsigned>(INAGG_R_KEY));
}

struct TakenBackKeyTest : JoinTest {
    void prepare(Rank &rank) override {
        const std::array<uint8_t, INAGG_KEY_BYTES> bytes = {1, 2, 3};
        ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_KEY, bytes.data(), static_cast<int>(bytes.size())), 0);
        ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_KEY, bytes.data(), 0), 0);
    }
};

TEST_F(TakenBackKeyTest, ProvesNothingAndAsksForNoProof) {
    EXPECT_EQ(inagg_hdr_proof(&sent), 0U);
    answer_with([](auto &) {});
    EXPECT_EQ(ranks[0].connect(2), 0);
}

TEST_F(JoinTest, EndedJobsResetTheSocket) {
    answer_with([](auto &) {});
    ASSERT_EQ(ranks[0].connect(2), 0);
    world->deliver(reply(INAGG_CONFIG, config()), ranks[0].port);
    EXPECT_EQ(ranks[0].info().rejected, 0U) << "the answer to a repeated JOIN";
    ASSERT_EQ(ranks[0].send(Bytes(64)), 64);
    world->deliver(reply(INAGG_REFUSED, config(), INAGG_R_REPLACED), ranks[0].port);
    Bytes got(64);
    EXPECT_EQ(ranks[0].recv(got), -ECONNRESET);
    EXPECT_EQ(ranks[0].recv(got), -ENOTCONN);
    EXPECT_EQ(ranks[0].send(got), -ENOTCONN);
    EXPECT_EQ(ranks[0].connect(2), -EISCONN) << "a socket joins one job in its life";
    const inagg_fault fault = ranks[0].fault().value_or(inagg_fault{});
    EXPECT_EQ(fault.reason, static_cast<unsigned>(INAGG_R_REPLACED));
    EXPECT_EQ(std::ranges::count(fault.above, 0), 16);
}

TEST_F(JoinTest, WhoEndsAJobAboveItsSwitchIsNamed) {
    answer_with([](auto &) {});
    ASSERT_EQ(ranks[0].connect(2), 0);
    inagg_hdr h = answer(INAGG_REFUSED);
    h.slot = inagg_swap32(INAGG_R_JOB);
    inagg_refusal refusal{};
    refusal.nonce = asked.nonce;
    const uint8_t above[16] = {0xfd, 0x77, 9};
    inagg_refuse_for(&h, &refusal, above);
    world->deliver(with(h, refusal), ranks[0].port);
    Bytes got(64);
    EXPECT_EQ(ranks[0].recv(got), -ECONNRESET);
    EXPECT_TRUE(std::ranges::equal(ranks[0].fault().value_or(inagg_fault{}).above, above));
}

static std::function<void()> reset;

// While a tensor is copied the switch ends the job: that is what send() says, not that somebody shut it down.
TEST_F(JoinTest, SendTellsWhatHappenedWhileItCopied) {
    answer_with([](auto &) {});
    ASSERT_EQ(ranks[0].connect(2), 0);
    reset = [&] { world->deliver(reply(INAGG_REFUSED, config(), INAGG_R_REPLACED), ranks[0].port); };
    mock_set_preemption([] {
        if (const auto now = std::exchange(reset, nullptr))
            now();
    });
    EXPECT_EQ(ranks[0].send(Bytes(64)), -ECONNRESET);
    mock_set_preemption(nullptr);
    EXPECT_EQ(mock_sigpipes(), 0);
    EXPECT_EQ(ranks[0].send(Bytes(64)), -ENOTCONN);
}

TEST_F(JoinTest, ErrorsComeBeforeTheLengthOfARest) {
    answer_with([](auto &) {});
    ASSERT_EQ(ranks[0].connect(2), 0);
    ASSERT_EQ(ranks[0].set(INAGG_BUFFER, 1), 0);
    const int part = ranks[0].send(Bytes(1 << 16), MSG_DONTWAIT);
    ASSERT_GT(part, 0);
    ASSERT_LT(part, 1 << 16);
    EXPECT_EQ(ranks[0].send(Bytes(4), MSG_DONTWAIT), -EMSGSIZE) << "while it lives";
    world->deliver(reply(INAGG_REFUSED, config(), INAGG_R_REPLACED), ranks[0].port);
    EXPECT_EQ(ranks[0].send(Bytes(4), MSG_DONTWAIT), -ECONNRESET);
    EXPECT_EQ(ranks[0].send(Bytes(4), MSG_DONTWAIT), -ENOTCONN);
    ASSERT_EQ(mock_shutdown(ranks[0].sock, SHUT_WR), 0);
    EXPECT_EQ(ranks[0].send(Bytes(4), MSG_DONTWAIT), -EPIPE);
}

TEST_F(JoinTest, CloseWhileTheGroupIsBeingJoined) {
    answer_with([](auto &c) {
        c.group_port = inagg_swap16(12001);
        c.group[0] = 239;
    });
    EXPECT_EQ(ranks[0].connect(2, true), -EALREADY);
    EXPECT_EQ(ranks[0].close(), 0);
}

TEST_F(JoinTest, ShutdownWhileTheGroupIsBeingJoined) {
    answer_with([](auto &c) {
        c.group_port = inagg_swap16(12001);
        c.group[0] = 239;
    });
    EXPECT_EQ(mock_shutdown(ranks[0].sock, SHUT_RDWR), 0);
    EXPECT_EQ(mock_so_error(ranks[0].sock), ECONNRESET);
    world->run(1 * s);
    EXPECT_EQ(mock_so_error(ranks[0].sock), 0);
    EXPECT_EQ(ranks[0].send(Bytes(64)), -ENOTCONN) << "the group comes too late";
    deaf = false;
    EXPECT_EQ(ranks[0].connect(2), 0);
}

TEST_F(JoinTest, SlotsBeyondTheMemoryLimitAreRefused) {
    answer_with([](auto &c) { c.slots = c.control_slots = inagg_swap32(INAGG_MAX_SLOTS); });
    ASSERT_EQ(ranks[0].connect(2), 0);
    mock_set_memory_limit(32 << 20);
    EXPECT_EQ(ranks[0].send(Bytes(64)), -ENOBUFS);
    EXPECT_EQ(mock_charged(), 0);
}

} // namespace kmod
