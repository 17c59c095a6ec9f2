// SPDX-License-Identifier: BSD-2-Clause
#include "error.hpp"
#include "gate.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

using namespace inaggd;
using namespace std::chrono_literals;
using Verdict = Outcome::Verdict;

namespace {

constexpr const char *digits = "000102030405060708090a0b0c0d0e0f", *other_digits = "ffeeddccbbaa99887766554433221100";

inagg_mac_key key_from(const std::string &hex) {
    std::array<uint8_t, INAGG_KEY_BYTES> bytes;
    for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    return inagg_mac_key_of(bytes.data());
}

class KeyFile : public ::testing::Test {
protected:
    std::string path = testing::TempDir() + "keys-" + std::to_string(getpid());

    void TearDown() override { std::filesystem::remove(path); }
    void write(const std::string &text, mode_t mode = 0600) {
        std::filesystem::remove(path);
        std::ofstream(path) << text;
        ASSERT_EQ(chmod(path.c_str(), mode), 0);
    }
    Keys read() const {
        Keys keys;
        keys.read(path);
        return keys;
    }
    // Of the message; it must not tell what is in the file.
    std::string error_of(const std::string &text, mode_t mode = 0600) {
        write(text, mode);
        try {
            read();
        } catch (const Error &error) {
            const std::string said = error.what();
            EXPECT_EQ(said.find(std::string(digits).substr(0, 8)), std::string::npos) << said;
            return said;
        }
        return "";
    }
};

bool same(const std::optional<inagg_mac_key> &a, const inagg_mac_key &b) {
    return a && a->word[0] == b.word[0] && a->word[1] == b.word[1];
}

} // namespace

TEST_F(KeyFile, NamesJobsAndRanges) {
    write(fmt::format("# run 12\n7 {}\n\n 8-10\t{} # a tree each\n", digits, other_digits));
    const Keys keys = read();
    EXPECT_TRUE(same(keys.find(7), key_from(digits)));
    EXPECT_TRUE(same(keys.find(8), key_from(other_digits)));
    EXPECT_TRUE(same(keys.find(10), key_from(other_digits)));
    EXPECT_FALSE(keys.find(6));
    EXPECT_FALSE(keys.find(11));
}

TEST_F(KeyFile, ALineWithoutAJobIsForAll) {
    write(fmt::format("7 {}\n{}\n", digits, other_digits));
    const Keys keys = read();
    EXPECT_TRUE(same(keys.find(7), key_from(digits))) << "the first line that names it";
    EXPECT_TRUE(same(keys.find(0), key_from(other_digits)));
    EXPECT_TRUE(same(keys.find(65535), key_from(other_digits)));
}

TEST_F(KeyFile, IsForNobodyElse) {
    for (const mode_t mode : {0640, 0604, 0620, 0602, 0610})
        EXPECT_NE(error_of(digits, mode).find("others than its owner may use it"), std::string::npos) << std::oct << mode;
    EXPECT_EQ(error_of(digits, 0400), "");
    EXPECT_EQ(error_of(digits, 0600), "");
}

TEST_F(KeyFile, SaysWhatIsWrong) {
    const std::string good = digits;
    EXPECT_NE(error_of("").find("it has no key"), std::string::npos);
    EXPECT_NE(error_of("# nothing\n").find("it has no key"), std::string::npos);
    EXPECT_NE(error_of("7 " + good.substr(2)).find("line 1: the key has 30 characters"), std::string::npos);
    EXPECT_NE(error_of("\n7 " + good.substr(1) + "g").find("line 2: write JOB KEY"), std::string::npos);
    EXPECT_NE(error_of("9-7 " + good).find("the first is above the last"), std::string::npos);
    EXPECT_NE(error_of("65536 " + good).find("write JOB KEY"), std::string::npos);
    EXPECT_NE(error_of("7 " + good + " more").find("more than a job and its key"), std::string::npos);
    EXPECT_NE(error_of("7 " + std::string(32, '0')).find("all zeros"), std::string::npos);
    std::filesystem::remove(path);
    EXPECT_THROW(read(), Error);
}

TEST_F(KeyFile, OfASpecificationHasAKeyForTheJob) {
    write(fmt::format("7 {}\n", digits));
    EXPECT_TRUE(same(key_of(parse_job_spec("7:size=2,key-file=" + path)), key_from(digits)));
    EXPECT_FALSE(key_of(parse_job_spec("7:size=2")));
    EXPECT_THROW(key_of(parse_job_spec("8:size=2,key-file=" + path)), Error);
}

namespace {

constexpr uint16_t keyed = 7, open_job = 8;

// Asks from port 100, 10.77.0.10.
class GateTest : public ::testing::Test {
protected:
    const inagg_mac_key key = key_from(digits), other = key_from(other_digits);
    Gate gate{Keys{}, key_from("0123456789abcdef0123456789abcdef")};
    Time now = Time{} + 1h;

    void SetUp() override { gate.set_key(keyed, key); }

    static inagg_event event(uint8_t type = INAGG_JOIN, uint16_t job = keyed, uint64_t nonce = 1000) {
        inagg_event e{};
        const uint8_t address[4] = {10, 77, 0, 10};
        e.ifindex = 100;
        e.family = 4;
        e.type = type;
        e.job = job;
        std::copy_n(address, 4, e.address);
        e.join.nonce = nonce;
        e.join.size = htons(2);
        e.join.receive_port = htons(5000);
        e.hdr.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type);
        e.hdr.job = htons(job);
        return e;
    }
    static inagg_event proven(inagg_event e, const inagg_mac_key &by) {
        inagg_hdr_prove(&e.hdr, &e.join, &by);
        return e;
    }
    // As a rank's second JOIN is.
    inagg_event answer(inagg_event e) const {
        inagg_hdr_set_challenge(&e.hdr, gate.challenge(e, now));
        return proven(e, key);
    }
    bool passes(const inagg_event &e) { return !gate.objection(e, now); }
    void expect_reason(const inagg_event &e, inagg_reason reason) {
        const auto objection = gate.objection(e, now);
        ASSERT_TRUE(objection);
        EXPECT_EQ(objection->reason, reason) << reason_name(objection->reason);
        EXPECT_TRUE(objection->changes.empty());
    }
};

} // namespace

TEST_F(GateTest, JobsWithoutAKeyAreOpen) {
    EXPECT_TRUE(passes(event(INAGG_JOIN, open_job)));
    EXPECT_TRUE(passes(event(INAGG_LEAVE, open_job)));
    EXPECT_TRUE(passes(event(INAGG_CONFIG, open_job)));
}

TEST_F(GateTest, WhoHasAKeyIsToldIfTheSwitchHasNone) { expect_reason(proven(event(INAGG_JOIN, open_job), key), INAGG_R_KEY); }

TEST_F(GateTest, WithoutTheKeyNobodyJoinsOrLeaves) {
    expect_reason(event(), INAGG_R_KEY);
    expect_reason(proven(event(), other), INAGG_R_KEY);
    expect_reason(event(INAGG_LEAVE), INAGG_R_NONE); // which is not answered
    expect_reason(proven(event(INAGG_LEAVE), other), INAGG_R_NONE);
}

TEST_F(GateTest, AChallengeIsAnsweredOnce) {
    expect_reason(proven(event(), key), INAGG_R_CHALLENGE);
    EXPECT_TRUE(passes(answer(event())));
    EXPECT_TRUE(passes(proven(event(INAGG_LEAVE), key))) << "whose nonce leaves once";
}

TEST_F(GateTest, WhatIsAlteredIsNotProven) {
    const std::function<void(inagg_event &)> changes[] = {
        [](inagg_event &e) { e.join.nonce++; },
        [](inagg_event &e) { e.join.receive_port++; },
        [](inagg_event &e) { e.join.size = htons(3); },
        [](inagg_event &e) { e.join.flags |= INAGG_JOIN_TREE; },
        [](inagg_event &e) { e.join.algorithm = INAGG_TRIO; },
        [](inagg_event &e) { e.hdr.source = htons(1); },
        [](inagg_event &e) { e.hdr.generation++; },
        [](inagg_event &e) { e.hdr.version_type = INAGG_WIRE_VERSION << 4 | INAGG_LEAVE; },
        [](inagg_event &e) { inagg_hdr_set_challenge(&e.hdr, inagg_hdr_challenge(&e.hdr) ^ 1); },
        [](inagg_event &e) { e.hdr.check[3] ^= 1; },
    };
    for (const auto &change : changes) {
        inagg_event e = answer(event());
        change(e);
        expect_reason(e, INAGG_R_KEY);
    }
}

TEST_F(GateTest, ACopyFromElsewhereIsNotNew) {
    const std::function<void(inagg_event &)> changes[] = {
        [](inagg_event &e) { e.ifindex = 101; }, // with the rank's own address, behind another port
        [](inagg_event &e) { e.address[3] = 66; },
        [](inagg_event &e) { e.family = 6; },
    };
    for (const auto &change : changes) {
        inagg_event e = answer(event());
        change(e);
        expect_reason(e, INAGG_R_CHALLENGE);
    }
}

TEST_F(GateTest, ACopyOfAnotherJobIsNotProven) {
    gate.set_key(9, key);
    inagg_event e = answer(event());
    e.job = 9; // as the switch never says: it is the header's
    expect_reason(e, INAGG_R_CHALLENGE);
    e.hdr.job = htons(9);
    expect_reason(e, INAGG_R_KEY);
}

TEST_F(GateTest, ACopyIsOldAfterAWhile) {
    const inagg_event e = answer(event());
    now += challenge_period;
    EXPECT_TRUE(passes(e));
    now += challenge_period;
    expect_reason(e, INAGG_R_CHALLENGE);
    EXPECT_TRUE(passes(answer(event())));
}

TEST_F(GateTest, ACopyIsOldForAnotherIncarnationOfTheAgent) {
    const inagg_event e = answer(event());
    Gate restarted{Keys{}, key_from("fedcba9876543210fedcba9876543210")};
    restarted.set_key(keyed, key);
    EXPECT_EQ(restarted.objection(e, now).value().reason, INAGG_R_CHALLENGE);
}

TEST_F(GateTest, OnlyAProvenParentIsBelieved) {
    for (const uint8_t type : {INAGG_CONFIG, INAGG_REFUSED}) {
        expect_reason(event(type), INAGG_R_NONE);
        expect_reason(proven(event(type), other), INAGG_R_NONE);
        EXPECT_TRUE(passes(proven(event(type), key)));
    }
}

TEST_F(GateTest, AParentsChallengeIsForWhatIsSentToIt) {
    inagg_event asked = event(INAGG_REFUSED);
    asked.reason = INAGG_R_CHALLENGE;
    inagg_hdr_set_challenge(&asked.hdr, 4711);
    expect_reason(proven(asked, key), INAGG_R_NONE); // it is for the gate alone

    const Address parent = *Address::parse("10.77.0.10");
    const auto challenge_to = [&](const Address &to, uint16_t job = keyed) {
        inagg_event e = event(INAGG_JOIN, job);
        gate.prove(e.hdr, e.join, to);
        EXPECT_EQ(inagg_hdr_is_proven(&e.hdr, &e.join, &key), job == keyed);
        return inagg_hdr_challenge(&e.hdr);
    };
    EXPECT_EQ(challenge_to(parent), 4711u);
    EXPECT_EQ(challenge_to(*Address::parse("10.77.0.11")), 0u);
    EXPECT_EQ(challenge_to(parent, open_job), 0u);

    asked = event(INAGG_REFUSED);
    asked.reason = INAGG_R_CHALLENGE;
    inagg_hdr_set_challenge(&asked.hdr, 666);
    expect_reason(asked, INAGG_R_NONE);
    EXPECT_EQ(challenge_to(parent), 4711u) << "anybody's is not heard";
}

TEST_F(GateTest, NothingIsProvenToStrangers) {
    for (const inagg_reason reason : {INAGG_R_KEY, INAGG_R_TAKEN}) {
        inagg_event e = event(INAGG_REFUSED);
        e.hdr.slot = htonl(reason);
        gate.prove(e.hdr, e.join, {});
        EXPECT_EQ(inagg_hdr_is_proven(&e.hdr, &e.join, &key), reason != INAGG_R_KEY);
    }
}

TEST_F(GateTest, AJobThatIsHereKeepsItsKey) {
    EXPECT_NO_THROW(gate.need_key(keyed, key));
    EXPECT_THROW(gate.need_key(keyed, other), Error);
    EXPECT_THROW(gate.need_key(open_job, key), Error);
    gate.set_key(keyed, {});
    EXPECT_FALSE(gate.key(keyed)) << "it had none when it began";
}

TEST_F(GateTest, AJobsKeyGoesWithIt) {
    JobBook book{Policy{}, [] { return uint16_t{1}; }};
    const auto nowhere = [](const std::string &) { return 0u; };
    gate.forget_gone(book.add(parse_job_spec("7:size=2"), nowhere, now), book);
    EXPECT_TRUE(gate.key(keyed));
    gate.forget_gone(book.remove(keyed), book);
    EXPECT_FALSE(gate.key(keyed));
}
