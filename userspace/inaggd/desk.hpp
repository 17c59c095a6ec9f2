// SPDX-License-Identifier: BSD-2-Clause
// Where threads that serve others leave word, and wait for the one that knows: its data needs no locks then.
#pragma once

#include "common/fd.hpp"
#include "error.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace inaggd {

template <typename Answer> class Desk {
public:
    // An answer serves all that ask within `fresh_for`, however many do.
    explicit Desk(std::chrono::milliseconds fresh_for) : fresh_for_(fresh_for), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (!bell_)
            throw Error("eventfd: {}", system_text(errno));
    }

    // From any thread: an empty answer if nobody answers in time, or the desk is closed.
    Answer ask(std::chrono::milliseconds limit) const {
        std::unique_lock lock(mutex_);
        const uint64_t ticket = ++asked_;
        if (eventfd_write(bell_.get(), 1))
            return {};
        changed_.wait_for(lock, limit, [&] { return closed_ || answered_ >= ticket; });
        return answered_ >= ticket ? latest_ : Answer{};
    }

    // When the bell can be read. All that wait get the same.
    void answer(const std::function<Answer()> &make) {
        eventfd_t rung;
        if (eventfd_read(bell_.get(), &rung))
            return;
        std::unique_lock lock(mutex_);
        const uint64_t ticket = asked_;
        if (Clock::now() >= fresh_until_) {
            lock.unlock();
            Answer made = make();
            fresh_until_ = Clock::now() + fresh_for_;
            lock.lock();
            latest_ = std::move(made);
        }
        answered_ = ticket;
        changed_.notify_all();
    }

    // Nobody waits any longer.
    void close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        changed_.notify_all();
    }

    int bell() const { return bell_.get(); }

private:
    using Clock = std::chrono::steady_clock;

    const std::chrono::milliseconds fresh_for_;
    inagg::Fd bell_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    mutable uint64_t asked_ = 0;
    uint64_t answered_ = 0;
    Answer latest_;
    Clock::time_point fresh_until_{};
    bool closed_ = false;
};

} // namespace inaggd
