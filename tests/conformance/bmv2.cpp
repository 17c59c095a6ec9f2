// SPDX-License-Identifier: BSD-2-Clause
// The vectors on the P4 switch. What it does not do is in docs/P4.md; the cases that show that are skipped.
#include "vectors.hpp"

#include "support/bmv2_plane.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

namespace {

using conformance::algorithm_of, nlohmann::json;

// Why the P4 programs answer this case otherwise; empty: they do not.
std::string difference(const json &one) {
    if (one.value("job", json::object()).value("checked", false))
        return "no payload checksums";
    if (one.at("name") == "WhoComesAfterACollisionGoesOnToo")
        return "aggregators remember no collisions";
    if (algorithm_of(one) == INAGG_TRIO && one.value("job", json::object()).contains("here"))
        return "no trees with trio";
    for (const json &step : one.at("steps")) {
        const json sent = step.value("send", json::object()), expected = step.value("expect", json());
        const json dtype = sent.value("dtype", json());
        if ((dtype == "float16" || dtype == "bfloat16") && expected != json{{"drop", "DTYPE"}})
            return "no 16-bit floats";
        if (algorithm_of(one) == INAGG_PANAMA && dtype == "float32" && expected != json{{"drop", "DTYPE"}})
            return "no floats";
        if (sent.value("type", json()) == "join" && expected.is_object() && expected != json{{"drop", "LENGTH"}})
            return "the agent answers joins";
    }
    return {};
}

} // namespace

int main(int argc, char **argv) {
    if (geteuid() != 0) {
        fmt::print("SKIP: network namespaces need root\n");
        return 77;
    }
    testing::InitGoogleTest(&argc, argv);
    const auto algorithm = argc == 4 ? inaggd::algorithm_number(argv[1]) : std::nullopt;
    if (!algorithm) {
        fmt::print(stderr, "usage: {} ALGORITHM PROGRAM.json FOLDER\n", argv[0]);
        return 2;
    }
    try {
        support::Bmv2Plane plane(static_cast<uint8_t>(*algorithm), argv[2]);
        char *rest[] = {argv[0], argv[3], nullptr};
        return conformance::run_vectors(
            2, rest, plane,
            {.concerns = [&](const json &one) { return algorithm_of(one) == *algorithm; }, .difference = difference});
    } catch (const std::exception &error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
