// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace inagg {

// While it lives, the calling thread rounds to nearest and keeps subnormals, whatever it has set for itself (-ffast-math,
// torch.set_flush_denormal): all ranks get the same bits.
#if defined(__x86_64__)
class FloatMode {
public:
    FloatMode() {
        if (differs())
            _mm_setcsr(initial);
    }
    ~FloatMode() {
        if (differs())
            _mm_setcsr(before_);
    }
    FloatMode(const FloatMode &) = delete;
    FloatMode &operator=(const FloatMode &) = delete;

private:
    static constexpr unsigned initial = 0x1f80, // exceptions masked, and nothing else: Intel SDM, volume 1, 10.2.3
        flags = 0x3f;                           // of exceptions that have happened
    bool differs() const { return (before_ & ~flags) != initial; }

    const unsigned before_ = _mm_getcsr();
};
#else
class FloatMode {
public:
    FloatMode() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~FloatMode() { std::fesetenv(&before_); }
    FloatMode(const FloatMode &) = delete;
    FloatMode &operator=(const FloatMode &) = delete;

private:
    std::fenv_t before_;
};
#endif

} // namespace inagg
