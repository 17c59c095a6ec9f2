// SPDX-License-Identifier: BSD-2-Clause
// A program that answers lines: how this agent speaks with a switch through what comes with that switch, so
// that neither its libraries nor its headers are needed to build this.
#pragma once

#include "common/fd.hpp"

#include <string>
#include <sys/types.h>
#include <vector>

namespace inaggd::p4 {

class Dialogue {
public:
    struct Partner {
        std::vector<std::string> command; // found on the PATH if it has no slash
        std::string end;                  // what it says behind each answer
        std::string name;                 // of the switch, as users know it: "BMv2's simple_switch at Thrift port 9090"
        std::string comes_with;           // "BMv2, whose bin directory must be on the PATH"
        int answer_ms;                    // the longest that one answer may take
        bool hears_errors = true;         // what it says to standard error belongs to answers; else to the log
    };

    // Starts the program. Throws Error if there is none.
    explicit Dialogue(Partner partner);
    // Ends it, whatever it does.
    ~Dialogue();
    Dialogue(const Dialogue &) = delete;
    Dialogue &operator=(const Dialogue &) = delete;

    // Throws Error if it has ended.
    void say(const std::string &lines);
    // What it says up to its next end of an answer. Throws Error if it ends first, or takes too long; then
    // always.
    std::string answer();

private:
    const Partner partner_;
    pid_t child_ = 0;
    inagg::Fd to_, from_;
    std::string heard_;   // and not yet asked for
    bool silent_ = false; // it has not answered in time
};

} // namespace inaggd::p4
