// SPDX-License-Identifier: BSD-2-Clause
#include "event_limit.hpp"
#include "refusal_log.hpp"
#include "refusals.hpp"
#include "reminders.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <string>

using namespace std::chrono_literals;

namespace inaggd {
namespace {

TEST(EventLimit, CountsEventsOfEachPort) {
    EventLimit limit;
    const Time now = Time{} + 1h;
    for (int i = 0; i < 4000; i++)
        ASSERT_TRUE(limit.take(1, now)) << i;
    EXPECT_FALSE(limit.take(1, now));
    EXPECT_TRUE(limit.take(2, now));
    EXPECT_TRUE(limit.take(1, now + 1ms));
}

TEST(EventLimit, WhoTakesMuchTimeWaitsAndTheOthersDoNot) {
    EventLimit limit;
    Time now = Time{} + 1h;
    int taken = 0;
    for (; limit.take(1, now); taken++)
        limit.charge(1, taken % 2 ? 100ms : 10s);
    EXPECT_EQ(taken, 20); // two seconds' work at once
    EXPECT_TRUE(limit.take(2, now));
    taken = 0;
    for (int i = 0; i < 10'000; i++, now += 1ms)
        if (limit.take(1, now)) {
            taken++;
            limit.charge(1, 100ms);
        }
    EXPECT_NEAR(taken, 25, 1); // then a quarter of the time
}

TEST(EventLimit, AForgerIsRefusedNowAndThen) {
    EventLimit limit;
    Time now = Time{} + 1h;
    int refused = 0;
    for (int i = 0; i < 10'000; i++, now += 1ms)
        refused += limit.take_refusal(1, now, false);
    EXPECT_NEAR(refused, 200 + 10 * 200, 1);
    EXPECT_TRUE(limit.take_refusal(2, now, false));
    EXPECT_TRUE(limit.take_refusal(1, now, true)) << "who knows the key is challenged";
    EXPECT_TRUE(limit.take(1, now)) << "which is looked at nevertheless";
}

TEST(RefusalLog, TellsOfAFloodAFewTimesASecond) {
    RefusalLog log;
    Time now = Time{} + 1h;
    int told = 0;
    for (int i = 0; i < 10'000; i++, now += 1ms)
        told += log.next(now) == spdlog::level::info;
    EXPECT_NEAR(told, 200, 1);
}

TEST(Refusals, AreJoinsByReasonAndHaveTheLast) {
    Refusals refusals;
    inagg_event event{};
    event.type = INAGG_JOIN;
    event.family = 4;
    std::ranges::copy(std::array{10, 77, 0, 11}, event.address);
    event.job = 7;
    event.rank = 1;
    event.join.size = htons(2);
    const Outcome taken{.verdict = Outcome::Verdict::refused, .reason = INAGG_R_TAKEN, .detail = "rank is held"};
    refusals.note(event, taken, "p1", Time{} + 1h);
    event.rank = 0;
    refusals.note(event, taken, "p2", Time{} + 2h);
    refusals.note(event, {.verdict = Outcome::Verdict::put_off, .reason = INAGG_R_CHALLENGE}, "p2", Time{} + 2h);
    event.join.size = htons(INAGG_MAX_RANKS + 1); // inaggctl doctor asks so whether the switch answers
    refusals.note(event, {.verdict = Outcome::Verdict::refused, .reason = INAGG_R_SIZE}, "p2", Time{} + 2h);
    event.join.size = htons(2);
    event.type = INAGG_LEAVE;
    refusals.note(event, taken, "p2", Time{} + 2h);
    EXPECT_EQ(refusals.rows(Time{} + 2h + 5ms).dump(),
              R"([{"reason":"TAKEN","joins":2,"ms_ago":5,"last":"job 7, rank 0 from p2/10.77.0.11: rank is held"}])");
}

class Reminded : public ::testing::Test {
protected:
    Reminders reminders;
    Time now = Time{} + 1h;
    std::string said;

    void pass(std::chrono::milliseconds time) {
        now += time;
        reminders.say_due(now);
    }
};

TEST_F(Reminded, SaysItThreeTimesMore) {
    reminders.add([this] { said += 'a'; }, now);
    EXPECT_EQ(reminders.wait(now, 1h), 50ms);
    pass(49ms);
    EXPECT_EQ(said, "");
    pass(1ms);
    EXPECT_EQ(said, "a");
    EXPECT_EQ(reminders.wait(now, 100ms), 100ms);
    pass(200ms);
    pass(800ms);
    EXPECT_EQ(said, "aaa");
    pass(1h);
    EXPECT_EQ(said, "aaa");
    EXPECT_EQ(reminders.wait(now, 1h), 1h);
}

TEST_F(Reminded, SaysWhatIsLateOnce) {
    reminders.add([this] { said += 'a'; }, now);
    reminders.add([this] { said += 'b'; }, now + 1ms);
    pass(1h);
    EXPECT_EQ(said, "ab");
}

TEST_F(Reminded, KeepsNoMoreThanRanksOfAllJobs) {
    for (size_t i = 0; i < 2 * Reminders::capacity; i++)
        reminders.add([this] { said += 'a'; }, now);
    pass(50ms);
    EXPECT_EQ(said.size(), Reminders::capacity);
}

} // namespace
} // namespace inaggd
