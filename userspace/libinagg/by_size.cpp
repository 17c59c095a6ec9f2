// SPDX-License-Identifier: BSD-2-Clause
#include "by_size.hpp"

#include "errors.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

namespace inagg {

using namespace std::chrono_literals;

namespace {

constexpr std::string_view first_calls = "the first call of all ranks tells where their hosts are: is INAGG_AGGREGATE_FROM "
                                         "the same everywhere?";
constexpr std::size_t entry_words = sizeof(RingEntry) / sizeof(int32_t);

} // namespace

BySize::BySize(const inagg_options &options, std::unique_ptr<Ring> ring, std::unique_ptr<Carrier> aggregated)
    : options_(options), aggregated_(std::move(aggregated)), ring_(std::move(ring)) {}

bool BySize::is_small(const Call &call) const {
    if (call.kind != Call::Kind::reduction && call.kind != Call::Kind::broadcast)
        return false;
    return call.count * inagg_memory_bytes(call.dtype) < options_.aggregate_from;
}

Handle BySize::prepare(const Call &call) { return is_small(call) ? ring_->prepare(call) : aggregated_->prepare(call); }

void BySize::start(const Handle &operation) {
    if (!introduction_)
        introduce();
    operations_.push_back(operation);
    if (is_small(operation->call))
        ring_->start(operation);
    else
        aggregated_->start(operation);
}

// Each rank has a place in the vector, the smallest of each word is its rank's: nobody else has one there. As a first
// call of a rank that has no ring, a minimum is less likely than a sum.
void BySize::introduce() {
    words_.assign(options_.size * entry_words, INT32_MAX);
    std::memcpy(&words_[options_.rank * entry_words], &ring_->own(), sizeof(RingEntry));
    Call call;
    call.kind = Call::Kind::reduction;
    call.send = call.recv = words_.data();
    call.count = words_.size();
    call.op = INAGG_MIN;
    introduction_ = aggregated_->prepare(call);
    aggregated_->start(introduction_);
}

void BySize::meet() {
    met_ = true;
    introduction_->check();
    std::vector<RingEntry> entries(options_.size);
    std::memcpy(entries.data(), words_.data(), words_.size() * sizeof(words_[0]));
    if (entries[options_.rank] != ring_->own())
        throw Error(INAGG_EINVAL, "job {}: the ranks' calls differ ({})", options_.job, first_calls);
    for (uint16_t rank = 0; rank < options_.size; rank++)
        if (entries[rank].aggregate_from != options_.aggregate_from)
            throw Error(INAGG_EINVAL,
                        "job {}: INAGG_AGGREGATE_FROM is {} bytes on rank {} and {} on rank {}: give it the same value on "
                        "all ranks",
                        options_.job, options_.aggregate_from, options_.rank, entries[rank].aggregate_from, rank);
    ring_->meet(entries);
}

bool BySize::progress(std::chrono::nanoseconds wait) {
    if (move())
        return true;
    if (wait <= 0ns)
        return false;
    if (ring_->idle())
        return aggregated_->progress(wait);
    sleep(wait);
    return move();
}

bool BySize::move() {
    bool came = aggregated_->progress(0ns);
    if (introduction_ && introduction_->done() && !met_)
        meet();
    came |= ring_->move();
    while (!operations_.empty() && operations_.front()->done())
        operations_.pop_front();
    return came;
}

// As Forest::sleep(): timers are looked at each millisecond, and a carrier that cannot tell when something has come more
// often.
void BySize::sleep(std::chrono::nanoseconds wait) const {
    const bool tells = aggregated_->descriptor() >= 0;
    const auto longest = std::min<std::chrono::nanoseconds>(wait, tells ? 1ms : 100us);
    const timespec timeout{0, static_cast<long>(longest.count())};
    std::vector<pollfd> polled = {{aggregated_->descriptor(), POLLIN, 0}};
    ring_->poll_for(polled);
    ppoll(polled.data(), polled.size(), &timeout, nullptr);
}

std::optional<std::string> BySize::stall() const {
    if (met_ && !operations_.empty() && is_small(operations_.front()->call))
        return ring_->stall();
    std::optional<std::string> why = aggregated_->stall();
    if (why && !met_)
        *why += fmt::format(" ({})", first_calls);
    return why;
}

} // namespace inagg
