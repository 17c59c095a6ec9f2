// SPDX-License-Identifier: BSD-2-Clause
#include "vectors.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

namespace conformance {
namespace {

using nlohmann::json;
using namespace support;

const std::map<std::string, uint8_t> types = {
    {"contribution", INAGG_CONTRIBUTION},
    {"request", INAGG_REQUEST},
    {"restore", INAGG_RESTORE},
    {"join", INAGG_JOIN},
    {"leave", INAGG_LEAVE},
    {"result", INAGG_RESULT},
    {"wait", INAGG_WAIT},
    {"config", INAGG_CONFIG},
    {"refused", INAGG_REFUSED},
    {"partial", INAGG_PARTIAL},
    {"block_failed", INAGG_BLOCK_FAILED},
    {"tick", INAGG_TICK},
};
const std::map<std::string, uint8_t> dtypes = {
    {"none", INAGG_WIRE_NONE},       {"int32", INAGG_WIRE_INT32},       {"fixed32", INAGG_WIRE_FIXED32},
    {"float16", INAGG_WIRE_FLOAT16}, {"bfloat16", INAGG_WIRE_BFLOAT16}, {"float32", INAGG_WIRE_FLOAT32},
};
const std::map<std::string, uint8_t> operators = {{"sum", INAGG_WIRE_SUM}, {"min", INAGG_WIRE_MIN}, {"max", INAGG_WIRE_MAX}};
const std::map<std::string, uint16_t> flag_names = {
    {"resend", INAGG_F_RESEND}, {"multicast", INAGG_F_MULTICAST}, {"saturated", INAGG_F_SATURATED},   {"whole", INAGG_F_WHOLE},
    {"absent", INAGG_F_ABSENT}, {"collision", INAGG_F_COLLISION}, {"congestion", INAGG_F_CONGESTION}, {"bypass", INAGG_F_BYPASS}};
const std::map<std::string, Action> actions = {{"pass", Action::pass},   {"absorb", Action::absorb},       {"drop", Action::drop},
                                               {"reply", Action::reply}, {"multicast", Action::multicast}, {"up", Action::up}};

// A misspelt key would test nothing: refuse it.
void check_keys(const json &object, const std::set<std::string> &allowed) {
    for (const auto &[key, value] : object.items())
        if (!allowed.contains(key))
            throw std::runtime_error(fmt::format("unknown key \"{}\"", key));
}

// 5, -5, "0xff".
int64_t integer(const json &value) {
    return value.is_string() ? std::stoll(value.get<std::string>(), nullptr, 0) : value.get<int64_t>();
}

template <typename T> T number(const json &object, const char *key, T otherwise) {
    return object.contains(key) ? static_cast<T>(integer(object.at(key))) : otherwise;
}

// A name out of `names`, or a number that has none.
template <typename T> T named(const json &object, const char *key, const std::map<std::string, T> &names, T otherwise) {
    if (!object.contains(key))
        return otherwise;
    const json &value = object.at(key);
    if (value.is_number())
        return static_cast<T>(value.get<int>());
    const auto found = names.find(value.get<std::string>());
    if (found == names.end())
        throw std::runtime_error(fmt::format("{}: unknown {} \"{}\"", key, key, value.get<std::string>()));
    return found->second;
}

uint32_t width_mask(uint8_t dtype) { return inagg_element_bytes(dtype) == 2 ? 0xffff : 0xffffffff; }

std::vector<uint32_t> values_of(const json &object, uint8_t dtype) {
    std::vector<uint32_t> values;
    for (const json &value : object.value("values", json::array()))
        values.push_back(static_cast<uint32_t>(integer(value)) & width_mask(dtype));
    return values;
}

JobSpec job_of(const json &object) {
    check_keys(object, {"number",    "index",   "ranks",     "first_slot", "slots",    "control_slots", "generation",
                        "elements",  "checked", "algorithm", "family",     "ports",    "expiry_sweeps", "quorum",
                        "most_open", "here",    "subtrees",  "cap",        "integers", "parent_port"});
    JobSpec spec;
    spec.number = number(object, "number", spec.number);
    spec.index = number(object, "index", spec.index);
    spec.ranks = number(object, "ranks", spec.ranks);
    spec.first_slot = number(object, "first_slot", spec.first_slot);
    spec.slots = number(object, "slots", spec.slots);
    spec.control_slots = number(object, "control_slots", spec.control_slots);
    spec.generation = number(object, "generation", spec.generation);
    spec.elements = number(object, "elements", spec.elements);
    spec.algorithm = number(object, "algorithm", spec.algorithm);
    spec.family = number(object, "family", spec.family);
    spec.flags = static_cast<uint8_t>((object.value("checked", false) ? INAGG_JOIN_CHECKED : 0) |
                                      (object.value("integers", false) ? INAGG_JOIN_INTEGERS : 0));
    spec.expiry_sweeps = number(object, "expiry_sweeps", spec.expiry_sweeps);
    spec.quorum = number(object, "quorum", spec.quorum);
    spec.most_open = number(object, "most_open", spec.most_open);
    spec.cap = number(object, "cap", spec.cap);
    spec.here = number<uint64_t>(object, "here", 0);
    spec.subtrees = object.value("subtrees", std::vector<uint64_t>{});
    spec.ports = object.value("ports", std::vector<uint32_t>{});
    spec.parent_port = number(object, "parent_port", spec.parent_port);
    return spec;
}

std::vector<uint8_t> join_payload(const json &object, const JobSpec &spec) {
    inagg_join join{};
    join.nonce = inagg_swap64(number(object, "nonce", spec.nonce));
    join.size = htons(number(object, "size", spec.ranks));
    join.elements = htons(number(object, "packet_elements", spec.elements));
    join.receive_port = htons(number<uint16_t>(object, "receive_port", 30000));
    const auto *bytes = reinterpret_cast<const uint8_t *>(&join);
    return {bytes, bytes + sizeof join};
}

// An epoch, which depends on the time: that of the last answer ("last"), or a number.
uint16_t epoch_of(const json &object, uint16_t last) {
    if (!object.contains("epoch"))
        return 0;
    return object.at("epoch") == "last" ? last : static_cast<uint16_t>(integer(object.at("epoch")));
}

Packet packet_of(const json &object, const JobSpec &spec, uint16_t last_epoch) {
    check_keys(object, {"type",
                        "source",
                        "rank",
                        "block",
                        "slot",
                        "version",
                        "stream",
                        "values",
                        "elements",
                        "dtype",
                        "op",
                        "scale",
                        "next_scale",
                        "flags",
                        "job",
                        "generation",
                        "wire_version",
                        "family",
                        "source_rank",
                        "mac_rank",
                        "source_job",
                        "target",
                        "target_port",
                        "header_checksum_xor",
                        "payload_checksum_xor",
                        "udp_length_delta",
                        "ip_length_delta",
                        "frame_delta",
                        "marked",
                        "tags",
                        "nonce",
                        "size",
                        "packet_elements",
                        "receive_port",
                        "epoch",
                        "count",
                        "fan_in",
                        "window_cap",
                        "contributors"});
    Packet p;
    p.type = named<uint8_t>(object, "type", types, INAGG_CONTRIBUTION);
    p.version = number(object, "wire_version", p.version);
    p.family = number(object, "family", spec.family);
    p.job = number(object, "job", static_cast<uint16_t>(spec.number));
    p.generation = number(object, "generation", spec.generation);
    p.rank = number<uint16_t>(object, "rank", 0);
    p.block = number<uint32_t>(object, "block", 0);
    const bool control = object.value("stream", "data") == "control";
    const uint32_t slots = control ? spec.control_slots : spec.slots;
    p.slot = number(object, "slot", (control ? spec.slots : 0) + p.block % slots);
    p.flags = number(object, "version", p.block / slots % 2) ? INAGG_F_VERSION : 0;
    for (const json &name : object.value("flags", json::array()))
        p.flags |= flag_names.at(name.get<std::string>());
    p.dtype = named<uint8_t>(object, "dtype", dtypes, control ? INAGG_WIRE_NONE : INAGG_WIRE_INT32);
    p.op = named<uint8_t>(object, "op", operators, INAGG_WIRE_SUM);
    p.scale = number<uint8_t>(object, "scale", 0);
    p.next_scale = number<uint8_t>(object, "next_scale", 0);
    p.epoch = epoch_of(object, last_epoch);
    p.window_cap = number<uint16_t>(object, "window_cap", 0);
    p.contributors = number<uint64_t>(object, "contributors", 0);
    p.count = number(object, "count", p.count);
    p.fan_in = number(object, "fan_in", p.fan_in);
    std::vector<uint32_t> values = values_of(object, p.dtype);
    values.resize((values.size() + INAGG_CHUNK - 1) / INAGG_CHUNK * INAGG_CHUNK);
    p.elements = number(object, "elements", static_cast<uint16_t>(values.size()));
    p.payload = element_bytes(values, p.dtype);
    if (p.type == INAGG_JOIN || p.type == INAGG_LEAVE)
        p.payload = join_payload(object, spec);
    if (spec.flags & INAGG_JOIN_CHECKED)
        p.flags |= INAGG_F_CHECKED;

    const uint32_t source_rank = number<uint32_t>(object, "source_rank", p.rank);
    const uint32_t source_job = number(object, "source_job", spec.index);
    const std::string source = object.value("source", "worker");
    p.source = source == "worker"   ? worker_address(p.family, source_job, source_rank)
               : source == "parent" ? parent_address(p.family)
                                    : switch_address(p.family);
    p.source_mac = source == "parent" ? parent_mac() : worker_mac(source_job, number(object, "mac_rank", source_rank));
    p.source_port = worker_port(source_rank);
    p.target = object.value("target", "switch") == "switch" ? switch_address(p.family) : worker_address(p.family, 9, 9);
    p.target_mac = switch_mac();
    p.target_port = number(object, "target_port", p.target_port);
    p.header_checksum_xor = number(object, "header_checksum_xor", p.header_checksum_xor);
    p.payload_checksum_xor = number(object, "payload_checksum_xor", p.payload_checksum_xor);
    p.udp_length_delta = number(object, "udp_length_delta", 0);
    p.ip_length_delta = number(object, "ip_length_delta", 0);
    p.frame_delta = number(object, "frame_delta", 0);
    p.marked = object.value("marked", false);
    p.tags = object.value("tags", 0u);
    return p;
}

// The whole result: the elements that are listed, and zeros or `rest` behind them.
void check_values(const json &expected, const Packet &got) {
    std::vector<uint32_t> values = values_of(expected, got.dtype);
    const auto rest = number<uint32_t>(expected, "rest", 0) & width_mask(got.dtype);
    values.resize(std::max<size_t>(values.size(), got.elements), rest);
    EXPECT_EQ(element_values(got.payload, got.dtype), values);
    EXPECT_EQ(got.payload.size(), size_t{got.elements} * inagg_element_bytes(got.dtype));
}

void check_config(const json &expected, const Packet &got, const JobSpec &spec) {
    inagg_config config;
    ASSERT_EQ(got.payload.size(), sizeof config);
    std::memcpy(&config, got.payload.data(), sizeof config);
    EXPECT_EQ(config.nonce, inagg_swap64(number(expected, "nonce", spec.nonce)));
    EXPECT_EQ(ntohs(config.size), number(expected, "size", spec.ranks));
    EXPECT_EQ(ntohs(config.elements), number(expected, "packet_elements", spec.elements));
    EXPECT_EQ(ntohl(config.slots), number(expected, "slots", spec.slots));
    EXPECT_EQ(ntohl(config.control_slots), number(expected, "control_slots", spec.control_slots));
    EXPECT_EQ(config.flags, spec.flags);
    EXPECT_EQ(got.contributors, inagg_all_ranks(spec.ranks) & ~spec.excluded);
}

uint64_t usual_contributors(uint8_t type, const JobSpec &spec) {
    return type == INAGG_RESULT ? inagg_all_ranks(spec.ranks) : type == INAGG_PARTIAL ? spec.here : 0;
}

// Towards the parent, as it came but for the headers below inagg's.
void check_passed_on(const json &expected, const Answer &answer, const Packet &sent) {
    Packet marked = sent;
    if (expected.value("collision", false))
        marked.flags |= INAGG_F_COLLISION;
    if (expected.value("congestion", false))
        marked.flags |= INAGG_F_CONGESTION;
    const Frame came = build(marked);
    const auto header = static_cast<long>(header_offset(sent.family));
    ASSERT_EQ(answer.frame.size(), came.size());
    EXPECT_TRUE(std::equal(came.begin() + header, came.end(), answer.frame.begin() + header));
}

// What a switch of canary passes on: from this switch, to a rank, to the only switch above, or to those below and above that
// `contributors` and `ups` name.
void check_on_its_way(const json &expected, const Answer &answer, const Packet &sent, const JobSpec &spec) {
    Packet came = sent;
    came.boot = switch_boot;
    for (const char *flag : {"collision", "bypass"})
        if (expected.value(flag, false))
            came.flags |= flag_names.at(flag);
    if (answer.action == Action::multicast) {
        came.contributors = number<uint64_t>(expected, "contributors", 0);
        came.port = number<uint8_t>(expected, "ups", 0);
    }
    const Frame wanted = build(came);
    const auto header = static_cast<long>(header_offset(sent.family));
    ASSERT_EQ(answer.frame.size(), wanted.size());
    EXPECT_TRUE(std::equal(wanted.begin() + header, wanted.end(), answer.frame.begin() + header));
    const auto got = parse(answer.frame);
    EXPECT_EQ(got->source, switch_address(sent.family));
    EXPECT_EQ(got->source_port, INAGG_PORT);
    if (answer.action == Action::reply) {
        const auto rank = number<uint32_t>(expected, "to", sent.slot % spec.ranks);
        EXPECT_EQ(got->target, worker_address(sent.family, spec.index, rank));
        EXPECT_EQ(got->target_mac, worker_mac(spec.index, rank));
        EXPECT_EQ(got->target_port, worker_port(rank));
    }
}

// The answer to `sent`, as the vector describes it and as every answer must be.
void check_packet(const json &expected, const Answer &answer, const Packet &sent, const JobSpec &spec, uint16_t &last_epoch) {
    check_keys(expected, {"type",         "contributors", "count", "dtype",           "op",         "scale",         "next_scale",
                          "elements",     "values",       "rest",  "saturated",       "to",         "ups",           "bypass",
                          "receive_port", "nonce",        "size",  "packet_elements", "slots",      "control_slots", "epoch",
                          "window_cap",   "degraded",     "whole", "collision",       "congestion", "reason"});
    const auto got = parse(answer.frame);
    ASSERT_TRUE(got) << "the frame's lengths, checksums or type of service are wrong";
    const bool up = answer.action == Action::up, canary = spec.algorithm == INAGG_CANARY;
    const auto type = named<uint8_t>(expected, "type", types, up ? INAGG_PARTIAL : INAGG_RESULT);
    ASSERT_EQ(got->type, type);
    if (canary && type != INAGG_CONFIG && !expected.contains("values"))
        return check_on_its_way(expected, answer, sent, spec);
    if (up) {
        EXPECT_EQ(got->target, parent_address(sent.family));
        EXPECT_EQ(got->target_mac, parent_mac());
        EXPECT_EQ(got->target_port, INAGG_PORT);
        EXPECT_EQ(got->source, switch_address(sent.family));
        if (type != INAGG_PARTIAL)
            return check_passed_on(expected, answer, sent);
    }
    EXPECT_EQ(got->version, INAGG_WIRE_VERSION);
    EXPECT_EQ(got->boot, switch_boot);
    EXPECT_EQ(got->job, sent.job);
    EXPECT_EQ(got->fan_in, type == INAGG_REFUSED ? sent.fan_in : spec.ranks);
    EXPECT_EQ(got->source, switch_address(sent.family));
    EXPECT_EQ(got->source_port, INAGG_PORT);
    if (answer.action == Action::reply && canary && type != INAGG_CONFIG) {
        EXPECT_EQ(got->target, worker_address(sent.family, spec.index, sent.slot % spec.ranks)) << "the leader";
    } else if (answer.action == Action::reply) {
        const bool passed_down = sent.source == parent_address(sent.family);
        EXPECT_EQ(got->target, passed_down ? worker_address(sent.family, spec.index, sent.rank) : sent.source);
        EXPECT_EQ(got->target_mac, passed_down ? worker_mac(spec.index, sent.rank) : sent.source_mac);
        EXPECT_EQ(got->source_mac, switch_mac());
        EXPECT_EQ(got->target_port, number(expected, "receive_port", worker_port(sent.rank)));
    }
    if (type == INAGG_CONFIG)
        return check_config(expected, *got, spec);
    if (type == INAGG_REFUSED) {
        EXPECT_STREQ(reason_name(got->slot), expected.at("reason").get<std::string>().c_str());
        EXPECT_EQ(got->payload, sent.payload);
        return;
    }

    EXPECT_EQ(got->generation, sent.generation);
    EXPECT_EQ(got->block, sent.block);
    EXPECT_EQ(got->slot, sent.slot);
    EXPECT_EQ(got->flags & INAGG_F_VERSION, sent.flags & INAGG_F_VERSION);
    const uint64_t usual = usual_contributors(type, spec);
    EXPECT_EQ(got->contributors, number(expected, "contributors", usual));
    EXPECT_EQ(got->count, number(expected, "count", static_cast<uint16_t>(inagg_count_ranks(usual))));
    EXPECT_EQ(got->dtype, named(expected, "dtype", dtypes, sent.dtype));
    EXPECT_EQ(got->op, named(expected, "op", operators, sent.op));
    EXPECT_EQ(got->scale, number(expected, "scale", sent.scale));
    EXPECT_EQ(got->next_scale, number<uint8_t>(expected, "next_scale", 0));
    const size_t listed = (expected.value("values", json::array()).size() + INAGG_CHUNK - 1) / INAGG_CHUNK * INAGG_CHUNK;
    EXPECT_EQ(got->elements, number(expected, "elements", static_cast<uint16_t>(listed)));
    EXPECT_EQ(got->flags & INAGG_F_RESEND, type == INAGG_WAIT ? 0 : sent.flags & INAGG_F_RESEND);
    EXPECT_EQ((got->flags & INAGG_F_COLLISION) != 0, expected.value("collision", false));
    EXPECT_EQ((got->flags & INAGG_F_CONGESTION) != 0, expected.value("congestion", false));
    EXPECT_EQ((got->flags & INAGG_F_SATURATED) != 0, expected.value("saturated", false));
    EXPECT_EQ((got->flags & INAGG_F_DEGRADED) != 0, expected.value("degraded", false));
    EXPECT_EQ((got->flags & INAGG_F_WHOLE) != 0, expected.value("whole", false));
    EXPECT_EQ(got->window_cap, number<uint16_t>(expected, "window_cap", 0));
    const json epoch = expected.value("epoch", json());
    if (epoch == "new" || epoch == "later") {
        EXPECT_NE(got->epoch, 0);
        EXPECT_TRUE(epoch == "new" || static_cast<int16_t>(got->epoch - last_epoch) > 0) << got->epoch << " after " << last_epoch;
    } else {
        EXPECT_EQ(got->epoch, epoch_of(expected, last_epoch));
    }
    if (got->epoch)
        last_epoch = got->epoch;
    EXPECT_EQ((got->flags & INAGG_F_CHECKED) != 0, (spec.flags & INAGG_JOIN_CHECKED) || got->type == INAGG_CONFIG);
    check_values(expected, *got);
}

void check_answer(const json &expected, const Answer &answer, const Packet &sent, const JobSpec &spec, uint16_t &last_epoch) {
    const std::string wanted = expected.is_string() ? expected.get<std::string>() : expected.begin().key();
    EXPECT_STREQ(action_name(answer.action), wanted.c_str()) << "reason " << reason_name(answer.reason);
    if (answer.action != actions.at(wanted))
        return;
    if (answer.action == Action::drop) {
        EXPECT_STREQ(reason_name(answer.reason), expected.begin().value().get<std::string>().c_str());
    }
    if (answer.action == Action::reply || answer.action == Action::multicast || answer.action == Action::up)
        check_packet(expected.begin().value(), answer, sent, spec, last_epoch);
}

// Counters that the vector leaves out are zero; all but drops are on a plane that has no others.
void check_counters(json expected, const inagg_stats &got, bool drops_only) {
    const std::map<std::string, uint64_t> counters = {
        {"packets", got.packets},       {"additions", got.additions}, {"completions", got.completions},
        {"duplicates", got.duplicates}, {"replies", got.replies},     {"waits", got.waits},
        {"restores", got.restores},     {"joins", got.joins},         {"elements", got.elements},
        {"degraded", got.degraded},     {"late", got.late},           {"recoveries", got.recoveries},
        {"expired", got.expired},       {"relayed", got.relayed},     {"collisions", got.collisions},
        {"partials", got.partials},     {"saturated", got.saturated},
    };
    const json drops = expected.value("drops", json::object());
    expected.erase("drops");
    for (const auto &[name, count] : counters) {
        EXPECT_EQ(count, drops_only ? 0 : expected.value(name, uint64_t{0})) << name;
        expected.erase(name);
    }
    EXPECT_TRUE(expected.empty()) << "unknown counters: " << expected;
    size_t known = 0;
    for (uint32_t reason = 0; reason < INAGG_R_COUNT; reason++) {
        known += drops.contains(reason_name(reason));
        EXPECT_EQ(got.drops[reason], drops.value(reason_name(reason), uint64_t{0})) << reason_name(reason);
    }
    EXPECT_EQ(known, drops.size()) << "unknown reason in " << drops;
}

class Case : public testing::Test {
public:
    Case(json chosen, Plane &on, const Scope &scope)
        : description(std::move(chosen)), plane(&on), difference(scope.difference(description)),
          drops_only(scope.counts_drops_only) {}

    void TestBody() override {
        if (!difference.empty())
            GTEST_SKIP() << difference;
        check_keys(description, {"name", "about", "job", "other_job", "steps", "counters", "unowned"});
        JobSpec spec = job_of(description.value("job", json::object()));
        plane->reset();
        plane->add_job(spec);
        if (description.contains("other_job"))
            plane->add_job(job_of(description.at("other_job")));
        uint16_t last_epoch = 0;
        int step = 0;
        for (const json &s : description.at("steps")) {
            SCOPED_TRACE(fmt::format("step {}: {}", step++, s.dump()));
            check_keys(s, {"note", "send", "expect", "clear", "lose", "exclude", "sweep", "tick"});
            if (s.contains("exclude")) {
                spec.excluded |= inagg_rank_bit(s.at("exclude").get<uint32_t>());
                plane->change_job(spec);
            }
            for (int i = 0; i < s.value("sweep", 0); i++)
                plane->sweep();
            if (s.contains("clear"))
                s.at("clear") == "records" ? plane->clear_records() : plane->clear_slots();
            if (s.contains("lose"))
                plane->lose_floats();
            const bool tick = s.contains("tick");
            if (!tick && !s.contains("send") && (s.contains("sweep") || s.contains("clear") || s.contains("exclude")))
                continue;
            Packet packet = packet_of(s.at(tick ? "tick" : "send"), spec, last_epoch);
            if (tick) // no contribution made the result
                packet.flags |= INAGG_F_RESEND;
            check_answer(s.at("expect"), tick ? plane->tick() : plane->receive(build(packet)), packet, spec, last_epoch);
        }
        check_counters(description.value("counters", json::object()), plane->stats(spec.index), drops_only);
        SCOPED_TRACE("packets that belong to no job");
        check_counters(description.value("unowned", json::object()), plane->unowned(), drops_only);
    }

private:
    const json description;
    Plane *const plane;
    const std::string difference;
    const bool drops_only;
};

// The number of cases in the file.
size_t register_file(const std::filesystem::path &file, Plane &plane, const Scope &scope) {
    std::ifstream stream(file);
    const json content = json::parse(stream);
    check_keys(content, {"about", "cases"});
    for (const json &one : content.at("cases")) {
        if (!scope.concerns(one))
            continue;
        const std::string name = one.at("name");
        testing::RegisterTest(file.stem().c_str(), name.c_str(), nullptr, nullptr, file.c_str(), 1,
                              [one, &plane, &scope]() -> testing::Test * { return new Case(one, plane, scope); });
    }
    return content.at("cases").size();
}

} // namespace

int algorithm_of(const json &one) { return one.value("job", json::object()).value("algorithm", int{JobSpec{}.algorithm}); }

int run_vectors(int argc, char **argv, Plane &plane, const Scope &scope) {
    testing::InitGoogleTest(&argc, argv);
    if (argc != 2) {
        fmt::print(stderr, "usage: {} FOLDER  with *.json as tests/conformance/README.md describes\n", argv[0]);
        return 2;
    }
    std::set<std::filesystem::path> files;
    for (const auto &entry : std::filesystem::directory_iterator(argv[1]))
        if (entry.path().extension() == ".json")
            files.insert(entry.path());
    size_t cases = 0;
    for (const auto &file : files) {
        try {
            cases += register_file(file, plane, scope);
        } catch (const std::exception &error) {
            fmt::print(stderr, "{}: {}\n", file.string(), error.what());
            return 2;
        }
    }
    if (!cases) {
        fmt::print(stderr, "{} holds no vectors\n", argv[1]);
        return 2;
    }
    return RUN_ALL_TESTS();
}

} // namespace conformance
