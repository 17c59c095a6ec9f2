// SPDX-License-Identifier: BSD-2-Clause
#include "job_spec.hpp"

#include "error.hpp"
#include "slot_pool.hpp"

#include <inagg/core/packet.h>

#include <charconv>
#include <map>
#include <set>
#include <sstream>

namespace inaggd {
namespace {

constexpr uint32_t max_pool = INAGG_MAX_SLOTS; // workers take no more
constexpr uint32_t least_exclude_us = least_exclude_ms * 1000, most_exclude_us = 3600'000'000;

uint32_t parse_number(const std::string &text, const std::string &what, uint32_t low, uint32_t high) {
    uint32_t value = 0;
    const char *end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || value < low || value > high)
        throw Error("job: {} must be a number from {} to {}, not '{}'", what, low, high, text);
    return value;
}

uint32_t parse_pool(const std::string &text, const std::string &what) {
    uint32_t slots = parse_number(text, what, 1, max_pool);
    if (!is_pool_size(slots))
        throw Error("job: {} must be a power of two, not {}", what, slots);
    return slots;
}

MemberSpec parse_member(const std::string &text) {
    size_t at = text.find('@'), slash = text.find('/');
    if (at == std::string::npos || slash == std::string::npos || slash < at + 2)
        throw Error("job: member must be RANK@PORT/ADDRESS such as 0@p0/10.77.0.10, not '{}'", text);
    auto address = Address::parse(text.substr(slash + 1));
    if (!address || !address->is_host())
        throw Error("job: member {} has '{}' for a host's IP address", text, text.substr(slash + 1));
    return {.rank = static_cast<uint16_t>(parse_number(text.substr(0, at), "member's rank", 0, INAGG_MAX_RANKS - 1)),
            .port = text.substr(at + 1, slash - at - 1),
            .address = *address};
}

uint16_t parse_elements(const std::string &text) {
    uint32_t elements = parse_number(text, "elements", INAGG_CHUNK, INAGG_MAX_ELEMENTS);
    if (elements % INAGG_CHUNK)
        throw Error("job: elements must be a multiple of {}, not {}", INAGG_CHUNK, elements);
    return static_cast<uint16_t>(elements);
}

// 10ms, 500us, 1s: microseconds.
uint32_t parse_time(const std::string &text, const std::string &what, uint32_t least, uint32_t most) {
    static const std::map<std::string, uint64_t> units = {{"us", 1}, {"ms", 1000}, {"s", 1000000}};
    uint32_t value = 0;
    const char *end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data(), end, value);
    auto unit = units.find(std::string(stop, end));
    if (error != std::errc{} || unit == units.end() || value * unit->second < least || value * unit->second > most)
        throw Error("job: {} must be a time from {} us to {} s such as 10ms, not '{}'", what, least, most / 1000000, text);
    return static_cast<uint32_t>(value * unit->second);
}

uint8_t parse_algorithm(const std::string &text) {
    if (auto number = algorithm_number(text))
        return *number; // whether it is available here, the book knows
    throw Error("job: there is no algorithm '{}'; write switchml, trio, atp, panama or canary", text);
}

void apply_setting(JobSpec &spec, const std::string &key, const std::string &value) {
    if (key == "size")
        spec.size = static_cast<uint16_t>(parse_number(value, "size", 1, INAGG_MAX_RANKS));
    else if (key == "slots")
        spec.slots = parse_pool(value, "slots");
    else if (key == "control")
        spec.control = parse_pool(value, "control");
    else if (key == "elements")
        spec.elements = parse_elements(value);
    else if (key == "blocks")
        spec.blocks = static_cast<uint8_t>(parse_number(value, "blocks", 1, INAGG_MAX_BLOCKS));
    else if (key == "algorithm")
        spec.algorithm = parse_algorithm(value);
    else if (key == "expiry")
        spec.stragglers.expiry_us = parse_expiry(value);
    else if (key == "exclude-after")
        spec.stragglers.exclude_ms = parse_time(value, key, least_exclude_us, most_exclude_us) / 1000;
    else if (key == "quorum")
        spec.stragglers.quorum = static_cast<uint16_t>(parse_number(value, "quorum", 1, INAGG_MAX_RANKS));
    else if (key == "checked" && value.empty())
        spec.checked = true;
    else if (key == "key-file" && !value.empty())
        spec.key_file = value;
    else if (key == "member")
        spec.members.push_back(parse_member(value));
    else
        throw Error("job: unknown setting '{}'; known are size, slots, control, elements, blocks, algorithm, expiry, "
                    "quorum, exclude-after, checked, key-file, member",
                    key);
}

} // namespace

uint32_t parse_expiry(const std::string &text) { return parse_time(text, "expiry", least_expiry_us, most_expiry_us); }

JobSpec parse_job_spec(const std::string &text) {
    size_t colon = text.find(':');
    if (colon == std::string::npos)
        throw Error("job: '{}' must be NUMBER:size=N[,slots=N,...]", text);
    JobSpec spec;
    spec.number = static_cast<uint16_t>(parse_number(text.substr(0, colon), "number", 0, UINT16_MAX));

    std::set<std::string> keys;
    std::istringstream settings(text.substr(colon + 1));
    for (std::string setting; std::getline(settings, setting, ',');) {
        size_t equals = setting.find('=');
        bool has_value = equals != std::string::npos;
        std::string key = setting.substr(0, equals);
        if (key != "member" && !keys.insert(key).second)
            throw Error("job: {} is named twice", key);
        apply_setting(spec, key, has_value ? setting.substr(equals + 1) : "");
    }
    if (!spec.size)
        throw Error("job: '{}' lacks size=N, the number of ranks", text);
    if (spec.algorithm != INAGG_TRIO && spec.stragglers != Stragglers{})
        throw Error("job: expiry, quorum and exclude-after are trio's; {} waits for all ranks (algorithm=trio)",
                    algorithm_name(spec.algorithm));
    if (spec.stragglers.quorum > spec.size)
        throw Error("job: quorum {} is more than the {} ranks", spec.stragglers.quorum, spec.size);
    std::set<uint16_t> ranks;
    for (const MemberSpec &member : spec.members) {
        if (member.rank >= spec.size)
            throw Error("job: member {} is outside a job of {} ranks", member.rank, spec.size);
        if (!ranks.insert(member.rank).second)
            throw Error("job: member {} is named twice", member.rank);
    }
    return spec;
}

} // namespace inaggd
