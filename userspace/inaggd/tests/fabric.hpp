// SPDX-License-Identifier: BSD-2-Clause
// Books of several switches that talk to each other.
#pragma once

#include "job_book.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>

using namespace inaggd;
using namespace std::chrono_literals;
using Kind = Outcome::Change::Kind;
using Verdict = Outcome::Verdict;

inline constexpr uint16_t job = 6; // even: of two roots, the first has it

// Leaves and roots, each leaf with a link to each root, and a rank behind each leaf.
class Fabric : public ::testing::Test {
protected:
    struct Switch {
        std::string name;
        Address address;
        std::unique_ptr<JobBook> book;
        bool dead = false;                        // its agent
        bool off = false;                         // all of it, though its links seem well
        bool busy = false;                        // it does nothing now
        std::deque<std::function<void()>> held{}; // what it has to do then
    };

    static Address address_of(const char *kind, size_t i) {
        return *Address::parse(fmt::format("10.77.{}.{}", *kind == 'r' ? 1 : 2, i + 1));
    }
    static uint32_t port_to_root(size_t root) { return static_cast<uint32_t>(100 + root); }
    static uint32_t port_to_leaf(size_t leaf) { return static_cast<uint32_t>(200 + leaf); }

    void build(size_t leaf_count, size_t root_count, uint32_t slots = INAGG_DEFAULT_SLOTS) {
        Policy leaf, root;
        for (size_t i = 0; i < root_count; i++)
            leaf.parents.push_back({port_to_root(i), address_of("root", i)});
        for (size_t i = 0; i < leaf_count; i++)
            root.children.insert({port_to_leaf(i), address_of("leaf", i)});
        root.slots = slots;
        for (size_t i = 0; i < leaf_count; i++)
            leaves.push_back({fmt::format("leaf{}", i), address_of("leaf", i), make_book(leaf)});
        for (size_t i = 0; i < root_count; i++)
            roots.push_back({fmt::format("root{}", i), address_of("root", i), make_book(root)});
        pass(0ms);
    }
    static std::unique_ptr<JobBook> make_book(const Policy &policy) {
        return std::make_unique<JobBook>(policy, [] { return uint16_t{500}; });
    }

    inagg_event from_host(size_t leaf, uint64_t nonce, uint16_t size, uint16_t number, uint8_t flags = 0) const {
        inagg_event e{};
        e.ifindex = 1;
        e.family = 4;
        e.type = INAGG_JOIN;
        e.job = number;
        e.rank = static_cast<uint16_t>(leaf);
        e.mac[5] = 1;
        const uint8_t address[4] = {10, 77, 0, static_cast<uint8_t>(leaf + 1)};
        std::copy_n(address, 4, e.address);
        e.join.nonce = nonce;
        e.join.size = htobe16(size);
        e.join.elements = htobe16(352);
        e.join.receive_port = htons(5000);
        e.join.algorithm = algorithm;
        e.join.flags = flags;
        return e;
    }
    // The rank behind each of the first `size` leaves joins, and repeats that until it has.
    void join(uint16_t size, uint16_t number = job, uint64_t run = 1) {
        for (int i = 0; i < 3 || (i < 200 && !joined(size, number, run)); i++) {
            for (uint16_t leaf = 0; leaf < size; leaf++)
                act(leaves[leaf], leaves[leaf].book->join(from_host(leaf, nonce_of(leaf, run), size, number), now));
            pass(50ms);
        }
        EXPECT_TRUE(joined(size, number, run));
    }
    // Two ranks of a run of their own, of the same number, at the leaves 2 and 3 ask once.
    void join_another_run() {
        for (size_t leaf : {2, 3}) {
            inagg_event event = from_host(leaf, nonce_of(leaf, 9), 2, job);
            event.rank = static_cast<uint16_t>(leaf - 2);
            act(leaves[leaf], leaves[leaf].book->join(event, now));
        }
    }
    static uint64_t nonce_of(size_t leaf, uint64_t run) { return 1000 * run + leaf; }
    bool joined(uint16_t size, uint16_t number, uint64_t run) {
        for (uint16_t leaf = 0; leaf < size; leaf++)
            if (!has(leaves[leaf], number) || state(leaves[leaf], number).members[leaf].nonce != nonce_of(leaf, run))
                return false;
        return true;
    }

    // Both ends see that the link is gone, or back.
    void cut(size_t leaf, size_t root) { set_link(leaf, root, false); }
    void mend(size_t leaf, size_t root) { set_link(leaf, root, true); }
    void set_link(size_t leaf, size_t root, bool up) {
        if (up)
            down.erase({leaf, root});
        else
            down.insert({leaf, root});
        see(leaves[leaf], [=, this](JobBook &book) { return book.link(port_to_root(root), up, now); });
        see(roots[root], [=, this](JobBook &book) { return book.link(port_to_leaf(leaf), up, now); });
        deliver();
    }

    // What the agents and the data path do in this time.
    void pass(std::chrono::milliseconds time) {
        const Time end = now + time;
        do {
            for (auto *side : {&leaves, &roots})
                for (Switch &at : *side)
                    if (!at.dead && !at.busy && !at.off) {
                        act(at, at.book->tend(now));
                        act(at, at.book->expire(now));
                    }
            deliver();
            now += 20ms;
        } while (now < end);
    }

    // The agent takes notice of something, as soon as it can.
    void see(Switch &at, const std::function<Outcome(JobBook &)> &what) {
        if (at.busy)
            at.held.push_back([this, &at, what] { act(at, what(*at.book)); });
        else if (!at.dead)
            act(at, what(*at.book));
    }
    void set_busy(Switch &at, bool busy) {
        at.busy = busy;
        for (auto work = std::exchange(at.held, {}); !work.empty(); work.pop_front())
            work.front()();
    }
    void act(Switch &at, const Outcome &outcome) {
        for (const Message &message : outcome.messages)
            wire.push_back({&at, message});
        for (const Displaced &gone : outcome.displaced)
            if (&at >= leaves.data() && &at < leaves.data() + leaves.size())
                told.push_back(gone.reason);
            else
                wire.push_back({&at, refusal(gone)});
        for (const std::string &note : outcome.notes)
            notes.push_back(at.name + ": " + note);
    }
    static Message refusal(const Displaced &gone) {
        inagg_join join{};
        join.nonce = gone.member.nonce;
        return {Address::of(gone.member), INAGG_REFUSED, gone.job, gone.rank, gone.generation, gone.reason, join};
    }

    void deliver() {
        for (int i = 0; !wire.empty(); i++) {
            ASSERT_LT(i, 100000) << "they never stop talking";
            const size_t next = next_of(wire.size());
            auto [from, message] = wire[next];
            wire.erase(wire.begin() + static_cast<ptrdiff_t>(next));
            if (!loses(message))
                carry(*from, message);
        }
    }
    void carry(Switch &from, const Message &message) {
        for (size_t leaf = 0; leaf < leaves.size(); leaf++)
            for (size_t root = 0; root < roots.size(); root++) {
                if (down.contains({leaf, root}) || roots[root].off)
                    continue;
                if (&from == &leaves[leaf] && message.to == roots[root].address)
                    at_root(leaf, root, message);
                if (&from == &roots[root] && message.to == leaves[leaf].address)
                    at_leaf(leaf, root, message);
            }
    }
    static inagg_event event_of(const Message &message, uint32_t port, const Address &from) {
        inagg_event e{};
        e.ifindex = port;
        e.family = 4;
        e.type = message.type;
        e.job = message.job;
        e.rank = message.rank;
        e.generation = message.generation;
        e.mac[5] = from.bytes[3];
        std::copy_n(from.bytes.begin(), 4, e.address);
        e.join = message.join;
        e.reason = message.reason;
        return e;
    }
    // The data path answers JOINs of members, if it can; the agent the others, if it lives.
    void at_root(size_t leaf, size_t root, const Message &message) {
        Switch &here = roots[root];
        const inagg_event event = event_of(message, port_to_leaf(leaf), leaves[leaf].address);
        if (has(here, event.job) && event.type == INAGG_JOIN) {
            const JobState &s = state(here, event.job);
            const inagg_member &member = s.members[event.rank];
            if (member.nonce == event.join.nonce && member.ifindex == event.ifindex) {
                if (const uint64_t ranks = subtree_of(s, event.rank))
                    configure(leaf, root, s, event, ranks);
                if (!(event.join.flags & INAGG_JOIN_MOVED))
                    return;
            }
        }
        see(here, [=, this, &here](JobBook &book) {
            Outcome outcome = event.type == INAGG_JOIN ? book.join(event, now) : book.leave(event, now);
            if (outcome.reason)
                wire.push_back(
                    {&here,
                     {leaves[leaf].address, INAGG_REFUSED, event.job, event.rank, event.generation, outcome.reason, event.join}});
            return outcome;
        });
    }
    void configure(size_t leaf, size_t root, const JobState &s, const inagg_event &join, uint64_t ranks) {
        roots[root].book->announced(join.job, now);
        inagg_config config{};
        config.nonce = join.join.nonce;
        config.size = htobe16(s.record.size);
        config.elements = htobe16(s.record.elements);
        config.slots = htobe32(s.record.slots);
        config.control_slots = htobe32(s.record.control_slots);
        config.algorithm = s.record.algorithm;
        config.flags = s.record.flags;
        Message message{{}, INAGG_CONFIG, join.job, join.rank, s.record.generation, INAGG_R_NONE, {}};
        memcpy(&message.join, &config, sizeof config);
        inagg_event event = event_of(message, port_to_root(root), roots[root].address);
        event.ranks = ranks;
        see(leaves[leaf], [=, this](JobBook &book) { return book.configured(event, now); });
    }
    void at_leaf(size_t leaf, size_t root, const Message &message) {
        const inagg_event event = event_of(message, port_to_root(root), roots[root].address);
        see(leaves[leaf], [=, this](JobBook &book) { return book.refused_above(event, now); });
    }

    static bool has(const Switch &at, uint16_t number = job) { return at.book->jobs().contains(number); }
    static const JobState &state(const Switch &at, uint16_t number = job) { return at.book->jobs().at(number); }
    // The root that sums what the leaf has summed.
    size_t root_of(size_t leaf, uint16_t number = job) {
        return has(leaves[leaf], number) ? state(leaves[leaf], number).uplink.ifindex - port_to_root(0) : SIZE_MAX;
    }
    void expect_all_at(size_t root, uint16_t size, uint16_t number = job) {
        for (size_t leaf = 0; leaf < size; leaf++)
            EXPECT_EQ(root_of(leaf, number), root) << "leaf " << leaf << said();
        for (size_t i = 0; i < roots.size(); i++)
            EXPECT_EQ(has(roots[i], number), i == root) << "root " << i << said();
        if (has(roots[root], number)) {
            EXPECT_EQ(joined_count(state(roots[root], number).members), size) << said();
        }
    }
    std::string said() const { return "\n" + fmt::format("{}", fmt::join(notes, "\n")); }

    std::vector<Switch> leaves, roots;
    std::set<std::pair<size_t, size_t>> down;
    std::deque<std::pair<Switch *, Message>> wire;
    std::function<size_t(size_t)> next_of = [](size_t) { return size_t{0}; }; // so that messages overtake each other
    std::function<bool(const Message &)> loses = [](const Message &) { return false; };
    std::vector<inagg_reason> told; // to ranks
    std::vector<std::string> notes;
    uint8_t algorithm = INAGG_SWITCHML;
    Time now = Time{} + 1h;
};
