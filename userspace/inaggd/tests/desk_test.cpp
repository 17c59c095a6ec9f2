// SPDX-License-Identifier: BSD-2-Clause
#include "desk.hpp"

#include <gtest/gtest.h>

#include <poll.h>

#include <atomic>
#include <thread>

using namespace std::chrono_literals;

namespace inaggd {
namespace {

// Answers with how often it had to think.
class Clerk {
public:
    explicit Clerk(Desk<int> &at) : desk_(at) {}
    ~Clerk() {
        gone_ = true;
        thread_.join();
    }

private:
    void work() {
        while (!gone_) {
            pollfd bell{.fd = desk_.bell(), .events = POLLIN, .revents = 0};
            if (poll(&bell, 1, 10) == 1)
                desk_.answer([this] { return ++thoughts_; });
        }
    }

    Desk<int> &desk_;
    int thoughts_ = 0;
    std::atomic<bool> gone_ = false;
    std::thread thread_{[this] { work(); }};
};

TEST(Desk, AnswersAllThatAskSoonWithWhatItKnows) {
    Desk<int> desk(1h);
    Clerk clerk(desk);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(desk.ask(10s), 1);
}

TEST(Desk, ThinksAnewLater) {
    Desk<int> desk(0ms);
    Clerk clerk(desk);
    for (int i = 1; i <= 3; i++)
        EXPECT_EQ(desk.ask(10s), i);
}

TEST(Desk, HasNoAnswerIfNobodyIsThere) {
    Desk<int> desk(0ms);
    EXPECT_EQ(desk.ask(1ms), 0);
    std::thread closes([&] {
        std::this_thread::sleep_for(20ms);
        desk.close();
    });
    EXPECT_EQ(desk.ask(1h), 0); // which the test does not outlast
    closes.join();
}

} // namespace
} // namespace inaggd
