// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <inagg/reason.h>

namespace inagg {

// Text of an enum inagg_reason.
inline const char *reason_text(int reason) {
    switch (reason) {
#define INAGG_REASON_TEXT(number, name, text)                                                                                    \
    case number:                                                                                                                 \
        return text;
        INAGG_REASONS(INAGG_REASON_TEXT)
#undef INAGG_REASON_TEXT
    default:
        return "unknown reason";
    }
}

} // namespace inagg
