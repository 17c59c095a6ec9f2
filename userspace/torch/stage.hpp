// SPDX-License-Identifier: BSD-2-Clause
// A step of a pipeline: a thread that takes items in the order in which they were pushed, or as many as it takes that no
// item waits for another to be done.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace inagg {

template <typename Item> class Stage {
public:
    // `is_wide`: items may wait for what others do, so each finds a thread that is free.
    explicit Stage(std::function<void(const Item &)> work, bool is_wide = false) : work_(std::move(work)), is_wide_(is_wide) {
        threads_.emplace_back(&Stage::run, this);
    }
    ~Stage() { close(); }

    void push(Item item) {
        {
            const std::lock_guard lock(mutex_);
            if (closed_)
                throw std::runtime_error("inagg: this process group has left its job");
            items_.push_back(std::move(item));
            if (is_wide_ && items_.size() > idle_)
                threads_.emplace_back(&Stage::run, this);
        }
        wake_.notify_one();
    }

    // Do what is there, then take no more.
    void close() {
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
        }
        wake_.notify_all();
        for (std::thread &thread : threads_)
            if (thread.joinable())
                thread.join();
    }

private:
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            idle_++;
            wake_.wait(lock, [this] { return closed_ || !items_.empty(); });
            idle_--;
            if (items_.empty())
                return;
            {
                const Item item = std::move(items_.front());
                items_.pop_front();
                lock.unlock();
                work_(item);
            }
            lock.lock();
        }
    }

    const std::function<void(const Item &)> work_;
    const bool is_wide_;
    std::mutex mutex_; // over what follows; threads_ grow until it is closed
    std::condition_variable wake_;
    std::deque<Item> items_;
    std::size_t idle_ = 0;
    bool closed_ = false;
    std::vector<std::thread> threads_;
};

} // namespace inagg
