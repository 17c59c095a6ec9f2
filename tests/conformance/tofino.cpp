// SPDX-License-Identifier: BSD-2-Clause
// The vectors on a program for Tofino. What it does not do is in docs/P4-tofino.md; the cases that show that are skipped.
#include "vectors.hpp"

#include "support/tofino_plane.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace {

using conformance::algorithm_of, nlohmann::json;

bool has_elements(const json &sent) {
    const json type = sent.value("type", json("contribution")); // others are numbers
    return type == "contribution" || type == "restore";
}

// Why the program answers this case otherwise; empty: it does not.
std::string difference(const json &one) {
    const json job = one.value("job", json::object());
    const bool is_canary = algorithm_of(one) == INAGG_CANARY; // what it cannot sum it passes on
    const int ranks = job.value("ranks", int{support::JobSpec{}.ranks});
    if (job.value("checked", false))
        return "no payload checksums";
    if (ranks == 1)
        return "a job of one rank: a reply and a copy for all look the same";
    if (ranks > 32)
        return "32 ranks";
    const bool has_server = algorithm_of(one) == INAGG_ATP;
    if (job.contains("here") && !has_server)
        return "no trees";
    if (job.contains("subtrees"))
        return "no switches below";
    if (one.at("name") == "AnAttemptAtTheNextBlockMayCollideWithABlock")
        return "attempts at a block have one descriptor";
    if (one.at("name") == "WhoComesAfterACollisionGoesOnToo")
        return "aggregators remember no collisions";
    for (const json &step : one.at("steps")) {
        const json sent = step.value("send", json::object()), expected = step.value("expect", json());
        const json dtype = sent.value("dtype", json()), op = sent.value("op", json());
        const bool is_refused = expected == json{{"drop", "DTYPE"}};
        const bool is_servers = has_server && expected == json{{"up", {{"type", "contribution"}}}}; // it passes as it is
        if ((dtype == "float32" || ((op == "min" || op == "max") && !is_canary)) && !is_refused && !is_servers)
            return "sums of INT32 and FIXED32 only";
        if ((dtype == "float16" || dtype == "bfloat16") && !(is_refused && has_server))
            return "their frames have another length";
        if (sent.value("values", json::array()).size() > INAGG_CHUNK || sent.value("elements", 0) > INAGG_CHUNK)
            return "32 elements";
        if (has_elements(sent) && sent.contains("elements") && sent.at("elements") == 0 && !is_refused && !is_servers &&
            !is_canary)
            return "packets of a data type have 32 elements";
        if (sent.contains("tags") || sent.contains("frame_delta"))
            return "nobody looks behind VLAN tags, or at what is behind the datagram";
        if (sent.value("type", json()) == "join" && expected.is_object() && expected != json{{"drop", "LENGTH"}})
            return "the agent answers joins";
    }
    return {};
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    const auto algorithm = argc == 4 ? inaggd::algorithm_number(argv[1]) : std::nullopt;
    if (!algorithm) {
        fmt::print(stderr, "usage: {} ALGORITHM COMPILED FOLDER\n", argv[0]);
        return 2;
    }
    support::TofinoPlane plane(argv[2]);
    char *rest[] = {argv[0], argv[3], nullptr};
    const int status = conformance::run_vectors(2, rest, plane,
                                                {.concerns = [&](const json &one) { return algorithm_of(one) == *algorithm; },
                                                 .difference = difference,
                                                 .counts_drops_only = true});
    const bool some_ran = testing::UnitTest::GetInstance()->successful_test_count() > 0;
    return status ? status : !some_ran;
}
