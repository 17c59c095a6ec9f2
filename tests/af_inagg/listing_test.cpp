// SPDX-License-Identifier: BSD-2-Clause
#include "sockets.hpp"

#include <gtest/gtest.h>

#include <sstream>

TEST(Listing, ReadsWhatTheModuleWrites) {
    std::istringstream proc("inagg 0.1.0 family 25 memory 5 limit 100\n"
                            "dropped 3: length does not match the header\n"
                            "socket 77 uid 0 state joined job 1 rank 0 local [::]:4444 switch [::ffff:10.0.0.1]:12000 "
                            "rejected 3 dropped_SLOT 2 dropped_LENGTH 1\n"
                            "socket 78 uid 0 state closed\n");
    const auto state = inaggctl::parse_sockets(proc);
    EXPECT_EQ(state["version"], "0.1.0");
    EXPECT_EQ(state["limit"], 100);
    EXPECT_EQ(state["drops"][0]["packets"], 3);
    EXPECT_EQ(state["drops"][0]["text"], "length does not match the header");
    ASSERT_EQ(state["sockets"].size(), 2u);
    EXPECT_EQ(state["sockets"][0]["socket"], 77);
    EXPECT_EQ(state["sockets"][0]["state"], "joined");
    EXPECT_EQ(state["sockets"][0]["switch"], "[::ffff:10.0.0.1]:12000");
    EXPECT_EQ(state["sockets"][0]["rejected"], 3);
    EXPECT_EQ(state["sockets"][0]["drops"].dump(), R"({"SLOT":2,"LENGTH":1})");
    EXPECT_TRUE(state["sockets"][1]["drops"].empty());
}
