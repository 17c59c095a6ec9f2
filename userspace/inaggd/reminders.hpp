// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

namespace inaggd {

// What is not answered, and should not be lost with its packet: it is said a few times again. A rank that does not hear that it
// is out of its job waits for its deadline, and all that are to run with it again wait for it.
class Reminders {
public:
    using Time = std::chrono::steady_clock::time_point;
    using Say = std::function<void()>;

    static constexpr std::array<std::chrono::milliseconds, 3> pauses{
        std::chrono::milliseconds(50), std::chrono::milliseconds(200), std::chrono::milliseconds(800)};
    static constexpr size_t capacity = 4096; // of the ranks of all jobs: more would be said than heard

    // It has been said once.
    void add(Say say, Time now) { put(std::move(say), 0, now); }

    // To be called in each wait().
    void say_due(Time now) {
        while (!waiting_.empty() && waiting_.begin()->first <= now) {
            auto [say, times] = std::move(waiting_.extract(waiting_.begin()).mapped());
            say();
            put(std::move(say), times + 1, now);
        }
    }

    // Until the next is due; at most `most`.
    std::chrono::milliseconds wait(Time now, std::chrono::milliseconds most) const {
        if (waiting_.empty())
            return most;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(waiting_.begin()->first - now);
        return std::clamp(left, std::chrono::milliseconds(0), most);
    }

private:
    void put(Say say, size_t times, Time now) {
        if (times < pauses.size() && waiting_.size() < capacity)
            waiting_.emplace(now + pauses[times], std::pair(std::move(say), times));
    }

    std::multimap<Time, std::pair<Say, size_t>> waiting_;
};

} // namespace inaggd
