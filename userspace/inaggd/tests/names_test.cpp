// SPDX-License-Identifier: BSD-2-Clause
#include "names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace inaggd;

TEST(Reasons, HaveUniqueNumbersNamesAndTexts) {
    std::set<int> numbers;
    std::set<std::string_view> names;
    for (const ReasonName &reason : reasons()) {
        EXPECT_TRUE(numbers.insert(reason.number).second) << reason.number;
        EXPECT_TRUE(names.insert(reason.name).second) << reason.name;
        EXPECT_FALSE(reason.text.empty());
        EXPECT_LT(reason.number, INAGG_R_CAPACITY);
    }
    EXPECT_EQ(reason_name(INAGG_R_TAKEN), "TAKEN");
    EXPECT_EQ(reason_name(63), "63");
}

TEST(Algorithms, NamesFollowTheEnumeration) {
    EXPECT_EQ(algorithm_number("switchml"), INAGG_SWITCHML);
    EXPECT_EQ(algorithm_number("trio"), INAGG_TRIO);
    EXPECT_EQ(algorithm_number("atp"), INAGG_ATP);
    EXPECT_EQ(algorithm_number("panama"), INAGG_PANAMA);
    EXPECT_EQ(algorithm_number("canary"), INAGG_CANARY);
    EXPECT_EQ(algorithm_number("ring"), std::nullopt);
    for (int i = 0; i < INAGG_ALGORITHMS; i++)
        EXPECT_EQ(algorithm_number(algorithm_name(i)), i);
}

TEST(Addresses, ReadAndWriteBothFamilies) {
    for (const char *text : {"10.77.0.10", "fd77::10"}) {
        auto address = Address::parse(text);
        ASSERT_TRUE(address) << text;
        EXPECT_EQ(address->text(), text);
        EXPECT_TRUE(address->is_host());
    }
    EXPECT_FALSE(Address::parse("10.77.0"));
    EXPECT_FALSE(Address::parse("p0"));
}

TEST(Addresses, BothFamiliesFitIntoOne) {
    for (const char *text : {"10.77.0.10", "fd77::10", "::1"}) {
        const auto mapped = Address::parse(text)->mapped();
        uint8_t bytes[16];
        std::ranges::copy(mapped, bytes);
        EXPECT_EQ(Address::of_mapped(bytes), *Address::parse(text)) << text;
    }
    EXPECT_EQ((Address{.family = 6, .bytes = Address::parse("10.77.0.10")->mapped()}.text()), "::ffff:10.77.0.10");
}

TEST(Addresses, OnlyHostsAreHosts) {
    for (const char *text : {"0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"})
        EXPECT_FALSE(Address::parse(text)->is_host()) << text;
}
