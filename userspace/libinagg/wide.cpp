// SPDX-License-Identifier: BSD-2-Clause
#include "wide.hpp"

#include "limbs.hpp"
#include "options.hpp"

#include <algorithm>
#include <limits>
#include <span>

namespace inagg {

// A call that is made of others, one after the other.
class WideOperation : public Operation {
public:
    using Operation::Operation;

    virtual Call first() = 0;
    // What comes after a step that is done; nothing if that was the last one. Throws what all ranks find wrong with it.
    virtual std::optional<Call> next() { return std::nullopt; }
    virtual bool has_next() const { return false; }
    // The result, from that of the last step. Only where it is wanted.
    virtual void conclude() {}

    Handle step;
};

namespace {

template <Wide64 T> std::span<const T> sent(const Call &call) { return {static_cast<const T *>(call.send), call.count}; }
template <Wide64 T> std::span<T> received(const Call &call) { return {static_cast<T *>(call.recv), call.count}; }

// In place. `wanted`: by this rank.
Call int32_call(int32_t *data, std::size_t count, inagg_op op, bool wanted = true) {
    Call call;
    call.kind = Call::Kind::reduction;
    call.send = data;
    call.recv = wanted ? data : nullptr;
    call.count = count;
    call.op = op;
    return call;
}

// The second one of the call `whole`: only its root wants the result.
Call int32_call(std::vector<int32_t> &data, inagg_op op, const Call &whole) {
    Call call = int32_call(data.data(), data.size(), op, whole.recv);
    call.root = whole.root;
    call.root_rank = whole.root_rank;
    return call;
}

// An average is a sum, divided.
void divide(const Call &call, uint32_t ranks) {
    if (call.op == INAGG_AVG)
        for (double &sum : received<double>(call))
            sum /= ranks;
}

// A reduction of two steps.
class TwoSteps : public WideOperation {
public:
    using WideOperation::WideOperation;

    std::optional<Call> next() final {
        if (is_second_)
            return std::nullopt;
        is_second_ = true;
        return second();
    }
    bool has_next() const final { return !is_second_; }

private:
    virtual Call second() = 0;
    bool is_second_ = false;
};

// First what powers of two all ranks' elements reach, then their limbs.
template <Wide64 T> class WideSum final : public TwoSteps {
public:
    WideSum(const Call &call, const inagg_options &options) : TwoSteps(call), options_(options) {}

    Call first() override {
        reach_ = own_ = reach_of(sent<T>(call));
        Call agreement = int32_call(&reach_.finest, sizeof(reach_) / sizeof(int32_t), INAGG_MAX);
        agreement.is_agreement = true;
        return agreement;
    }

    Call second() override {
        if (!reach_.covers(own_) || !is_possible<T>(reach_)) // who adds the limbs could not know
            throw Error(INAGG_EVERIFY,
                        "job {}: what all ranks' elements reach is less than what this rank's do: the switch is wrong",
                        options_.job);
        const std::optional<Limbs> how = Limbs::of(reach_, options_.size);
        if (!how)
            throw Error(INAGG_ERANGE,
                        "job {}: a float64 sum of elements up to 2^{} that are multiples of 2^{}, at the finest: that is more "
                        "than the {} bits of an exact sum of {} ranks; scale the elements, or give large and small ones in "
                        "different calls",
                        options_.job, reach_.top, -reach_.finest, Limbs::bits(options_.size), options_.size);
        how_ = *how;
        // A call of no elements would be none: at least one limb goes, if only to say that all are 0.
        how_.count = std::max(how_.count, 1U);
        limbs_.resize(call.count * (how_.count + reach_.nonfinite));
        to_limbs(sent<T>(call), how_, limbs_.data());
        if constexpr (std::is_same_v<T, double>)
            if (reach_.nonfinite)
                to_classes(sent<T>(call), classes());
        Call sums = int32_call(limbs_, INAGG_SUM, call);
        sums.context = reach_.packed(); // the ranks must have been told the same
        return sums;
    }

    void conclude() override {
        from_limbs(limbs_.data(), how_, received<T>(call));
        if constexpr (std::is_same_v<T, double>)
            if (reach_.nonfinite)
                apply_classes(classes(), received<T>(call));
        divide(call, options_.size);
    }

private:
    int32_t *classes() { return &limbs_[call.count * how_.count]; }

    const inagg_options &options_; // of the carrier, which makes the steps
    Reach reach_, own_;            // of all ranks, of this one
    Limbs how_{};
    std::vector<int32_t> limbs_;
};

// All limbs that elements may need, of so few that they fit one packet.
template <Wide64 T> class SmallSum final : public WideOperation {
public:
    SmallSum(const Call &call, uint32_t ranks) : WideOperation(call), ranks_(ranks), limbs_(call.count * full_limbs<T>(ranks)) {}

    Call first() override {
        to_full_limbs(sent<T>(call), ranks_, limbs_.data());
        return int32_call(limbs_, INAGG_SUM, call);
    }

    void conclude() override {
        from_full_limbs(limbs_.data(), ranks_, received<T>(call));
        divide(call, ranks_);
    }

private:
    const uint32_t ranks_;
    std::vector<int32_t> limbs_;
};

// First the upper halves of integers of the same order, then the lower halves of those that have the best upper one.
template <Wide64 T> class WideExtreme final : public TwoSteps {
public:
    explicit WideExtreme(const Call &call) : TwoSteps(call), upper_(call.count), lower_(call.count) {}

    Call first() override {
        const std::span<const T> elements = sent<T>(call);
        for (std::size_t i = 0; i < call.count; i++)
            upper_[i] = upper(ordered(elements[i]));
        return int32_call(upper_.data(), upper_.size(), call.op);
    }

    Call second() override {
        const std::span<const T> elements = sent<T>(call);
        for (std::size_t i = 0; i < call.count; i++) {
            const int64_t own = ordered(elements[i]);
            lower_[i] = upper(own) == upper_[i] ? lower(own) : worst();
        }
        return int32_call(lower_, call.op, call);
    }

    void conclude() override {
        const std::span<T> out = received<T>(call);
        for (std::size_t i = 0; i < call.count; i++)
            out[i] = from_ordered64<T>(int64_t{upper_[i]} * (int64_t{1} << 32) + (int64_t{lower_[i]} - bias));
    }

private:
    static constexpr int64_t bias = std::numeric_limits<int32_t>::min();
    static int32_t upper(int64_t value) { return static_cast<int32_t>(value >> 32); }
    static int32_t lower(int64_t value) { return static_cast<int32_t>((value & UINT32_MAX) + bias); }

    int64_t ordered(T element) const {
        using Range = std::numeric_limits<int64_t>;
        return to_ordered64(element, call.op == INAGG_MAX ? Range::max() : Range::min());
    }
    int32_t worst() const {
        using Range = std::numeric_limits<int32_t>;
        return call.op == INAGG_MAX ? Range::min() : Range::max();
    }

    std::vector<int32_t> upper_, lower_;
};

// What came while the next step of another was not known yet. Carriers share calls out as they prepare them: that has to
// keep their order, too.
class Postponed final : public WideOperation {
public:
    using WideOperation::WideOperation;
    Call first() override { return call; }
};

template <Wide64 T>
std::shared_ptr<WideOperation> make(const Call &call, const inagg_options &options, uint32_t packet_elements) {
    if (call.op == INAGG_MIN || call.op == INAGG_MAX)
        return std::make_shared<WideExtreme<T>>(call);
    if (call.count <= packet_elements / full_limbs<T>(options.size))
        return std::make_shared<SmallSum<T>>(call, options.size);
    return std::make_shared<WideSum<T>>(call, options);
}

} // namespace

bool is_wide(inagg_dtype dtype) { return dtype == INAGG_INT64 || dtype == INAGG_FLOAT64; }

Wide::Wide(const inagg_options &options, std::unique_ptr<Carrier> carrier)
    : options_(options), trio_(algorithm_number(options.algorithm) == INAGG_TRIO), carrier_(std::move(carrier)) {}

Handle Wide::prepare(const Call &call) {
    if (is_wide(call.dtype) && call.kind == Call::Kind::reduction)
        return prepare_wide(call);
    Call narrow = call;
    if (is_wide(call.dtype)) { // a broadcast's elements are bytes
        narrow.count *= 2;
        narrow.dtype = INAGG_INT32;
    }
    return is_waiting() ? std::make_shared<Postponed>(narrow) : carrier_->prepare(narrow);
}

Handle Wide::prepare_wide(const Call &call) const {
    if (trio_)
        throw Error(INAGG_EINVAL, "64-bit elements with algorithm 'trio': parts of one may be sums of different ranks; use "
                                  "32-bit ones, or another algorithm");
    return call.dtype == INAGG_INT64 ? make<int64_t>(call, options_, elements()) : make<double>(call, options_, elements());
}

// The operation that was begun last has a step to come.
bool Wide::is_waiting() const { return !under_way_.empty() && under_way_.back()->has_next(); }

void Wide::start(const Handle &operation) {
    const auto wide = std::dynamic_pointer_cast<WideOperation>(operation);
    if (!wide)
        carrier_->start(operation);
    else if (is_waiting())
        waiting_.push_back(wide);
    else
        begin(wide);
}

void Wide::begin(const std::shared_ptr<WideOperation> &operation) {
    under_way_.push_back(operation);
    start_step(*operation, operation->first());
}

// An error of the call, on all ranks: none takes its next step. With any other, which may be this rank's alone, the others would
// go on and find the elements of its next call: it is the end of the membership.
void Wide::fail(WideOperation &operation, const Error &error) {
    if (error.code() != INAGG_EINVAL && error.code() != INAGG_ERANGE && error.code() != INAGG_ECLOSED)
        throw error;
    operation.set_error(error);
    operation.finish();
}

void Wide::start_step(WideOperation &operation, const Call &step) {
    try {
        operation.step = carrier_->prepare(step);
    } catch (const Error &error) {
        return fail(operation, error);
    }
    carrier_->start(operation.step);
}

bool Wide::progress(std::chrono::nanoseconds wait) {
    const bool came = carrier_->progress(wait);
    return advance() || came;
}

// True if there is something new for the carrier to do, or for the callers.
bool Wide::advance() {
    bool moved = false;
    for (const auto &operation : under_way_) {
        if (operation->done())
            continue;
        operation->progress_ns = std::max(operation->progress_ns, operation->step->progress_ns);
        if (!operation->step->done())
            continue;
        advance(*operation);
        moved = true;
    }
    std::erase_if(under_way_, [](const auto &operation) { return operation->done(); });
    while (!waiting_.empty() && !is_waiting()) {
        const auto next = std::move(waiting_.front());
        waiting_.pop_front();
        begin(next);
        moved = true;
    }
    return moved;
}

void Wide::advance(WideOperation &operation) {
    std::optional<Call> next;
    try {
        operation.step->check();
        next = operation.next();
    } catch (const Error &error) {
        return fail(operation, error);
    }
    if (next)
        start_step(operation, *next);
    else
        finish(operation);
}

void Wide::finish(WideOperation &operation) {
    if (operation.call.recv)
        operation.conclude();
    operation.blocks = operation.step->blocks;
    operation.block_elements = operation.step->block_elements;
    operation.contributors = std::move(operation.step->contributors);
    operation.renews = operation.step->renews;
    operation.finish();
}

} // namespace inagg
