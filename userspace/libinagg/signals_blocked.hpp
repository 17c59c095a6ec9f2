// SPDX-License-Identifier: BSD-2-Clause
// Around the start of a thread, which inherits it: signals are the application's, not those of threads that it does not know.
#pragma once

#include <csignal>

namespace inagg {

class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked &) = delete;
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
};

} // namespace inagg
