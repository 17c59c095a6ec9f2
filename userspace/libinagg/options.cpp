// SPDX-License-Identifier: BSD-2-Clause
#include "options.hpp"

#include "common/expiry.hpp"
#include "common/fd.hpp"
#include "common/secrets.hpp"
#include "error.hpp"
#include "linear_check.hpp"

#include <inagg/core/congestion.h>
#include <inagg/core/fixed.h>
#include <inagg/core/membership.h>
#include <inagg/wire.h>

#include <fcntl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

namespace inagg {

namespace {

constexpr std::array<std::string_view, INAGG_ALGORITHMS> algorithms = {"switchml", "trio", "atp", "panama", "canary"};
constexpr uint16_t max_trees = 64;
constexpr std::array<std::string_view, 5> transports = {"udp", "kernel", "afxdp", "xdp", "auto"};

struct Variable {
    const char *name;
    std::string_view value;
};

// The first of `names` that is set and not empty.
std::optional<Variable> first_set(std::initializer_list<const char *> names) {
    for (const char *name : names)
        if (const char *value = std::getenv(name); value && *value)
            return Variable{name, value};
    return std::nullopt;
}

int64_t parse_number(const Variable &variable, int64_t low, int64_t high) {
    int64_t number = 0;
    const char *end = variable.value.data() + variable.value.size();
    const auto [stop, error] = std::from_chars(variable.value.data(), end, number);
    if (error != std::errc() || stop != end || number < low || number > high)
        throw Error(INAGG_EINVAL, "{}='{}': set it to a whole number from {} to {}", variable.name, variable.value, low, high);
    return number;
}

template <typename Number>
void read_number(std::initializer_list<const char *> names, Number &number, int64_t low, int64_t high) {
    if (const auto variable = first_set(names))
        number = static_cast<Number>(parse_number(*variable, low, high));
}

// A decimal number with what follows it: {number, unit}.
std::optional<std::pair<double, std::string_view>> split_number(std::string_view text) {
    double number = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (error != std::errc() || !(number >= 0))
        return std::nullopt;
    return std::pair{number, std::string_view(stop, end)};
}

uint32_t parse_time(const Variable &variable) {
    constexpr std::pair<std::string_view, double> units[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"", 1e3}};
    const auto parsed = split_number(variable.value);
    for (const auto &[unit, microseconds] : units)
        if (parsed && parsed->second == unit)
            if (const double us = std::round(parsed->first * microseconds); us <= UINT32_MAX)
                return static_cast<uint32_t>(us);
    throw Error(INAGG_EINVAL, "{}='{}': set it to a time up to 4294 s, like 500us, 10ms or 1s; a plain number is milliseconds",
                variable.name, variable.value);
}

uint64_t parse_bytes(const Variable &variable) {
    constexpr std::pair<std::string_view, double> units[] = {{"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}};
    const auto parsed = split_number(variable.value);
    for (const auto &[unit, bytes] : units)
        if (parsed && parsed->second == unit && parsed->first * bytes <= 0x1p53)
            return static_cast<uint64_t>(std::round(parsed->first * bytes));
    throw Error(INAGG_EINVAL, "{}='{}': set it to a number of bytes, like 65536, 64K, 40M or 1G", variable.name, variable.value);
}

// "5" ranks, or "0.88" of all.
uint16_t parse_quorum(const Variable &variable, uint16_t size) {
    constexpr double rounding = 1e-9; // 0.94 of 50 is 47
    if (variable.value.find('.') == std::string_view::npos)
        return static_cast<uint16_t>(parse_number(variable, 0, size));
    const auto parsed = split_number(variable.value);
    if (!parsed || !parsed->second.empty() || parsed->first <= 0 || parsed->first > 1)
        throw Error(INAGG_EINVAL, "{}='{}': set it to a number of ranks, 0 to {}, or to a fraction of them, like 0.88",
                    variable.name, variable.value, size);
    return static_cast<uint16_t>(std::max(1.0, std::ceil(parsed->first * size - rounding)));
}

// Only trio decides a block without all ranks.
void validate_straggling(const inagg_options &options) {
    if (options.quorum > options.size)
        throw Error(INAGG_EINVAL, "quorum {}: with {} ranks it must be 0 to {}", options.quorum, options.size, options.size);
    if (options.history_mib < 1 || options.history_mib > 1 << 20)
        throw Error(INAGG_EINVAL, "history {} MiB: it must be 1 to {}", options.history_mib, 1 << 20);
    if (algorithm_number(options.algorithm) != INAGG_TRIO && (options.expiry_us || options.quorum || options.exclude_ms))
        throw Error(INAGG_EINVAL,
                    "expiry {} us, quorum {} and exclusion after {} ms with algorithm '{}': it waits for all ranks; set "
                    "INAGG_ALGORITHM=trio, or none of INAGG_EXPIRY, INAGG_QUORUM and INAGG_EXCLUDE_AFTER",
                    options.expiry_us, options.quorum, options.exclude_ms, options.algorithm);
    if (!expiry_can_be_kept(options.expiry_us))
        throw Error(INAGG_EINVAL, "expiry {} us: it must be {} us to {} s, or 0 for all ranks", options.expiry_us,
                    least_expiry_us, most_expiry_us / 1'000'000);
    if (options.exclude_ms && options.exclude_ms < INAGG_LEAST_EXCLUDE_MS)
        throw Error(INAGG_EINVAL, "exclusion after {} ms: it must be at least {}, or 0 for never", options.exclude_ms,
                    uint32_t{INAGG_LEAST_EXCLUDE_MS});
}

// A float sum in fixed point.
void validate_scale(const inagg_options &options) {
    if (options.scale == INAGG_SCALE_AUTO)
        return;
    if (algorithm_number(options.algorithm) == INAGG_PANAMA)
        throw Error(INAGG_EINVAL, "scale {} with algorithm '{}': its float sums travel as float32; set INAGG_SCALE=auto",
                    options.scale, options.algorithm);
    const int low = inagg_fixed_point(inagg_fan_in_log2(options.size), 254);
    const int high = inagg_fixed_point(inagg_fan_in_log2(options.size), 0);
    if (options.scale < low || options.scale > high)
        throw Error(INAGG_EINVAL, "scale {}: with {} ranks it must be {} to {}, or 'auto'", options.scale, options.size, low,
                    high);
}

// What INAGG_CONGESTION_CONTROL may be, by enum inagg_congestion_control.
constexpr std::array<std::string_view, 4> congestion_controls = {"0", "1", "aimd", "dctcp"};

// AIMD and DCTCP stand for what an algorithm has of its own.
void validate_congestion_control(const inagg_options &options) {
    const int chosen = options.congestion_control;
    if (chosen < INAGG_CONGESTION_NONE || chosen > INAGG_CONGESTION_DCTCP)
        throw Error(INAGG_EINVAL, "congestion control {}: it is 0 to {}, as enum inagg_congestion_control says", chosen,
                    int{INAGG_CONGESTION_DCTCP});
    if (chosen > INAGG_CONGESTION_OWN && inagg_reaction_of(algorithm_number(options.algorithm)) == INAGG_UNCONTROLLED)
        throw Error(INAGG_EINVAL,
                    "congestion control '{}' with algorithm '{}', which has none: set INAGG_ALGORITHM to atp or panama, or "
                    "INAGG_CONGESTION_CONTROL=1",
                    congestion_controls[chosen], options.algorithm);
}

int parse_congestion_control(const Variable &variable) {
    const auto found = std::find(congestion_controls.begin(), congestion_controls.end(), variable.value);
    if (found == congestion_controls.end())
        throw Error(INAGG_EINVAL, "{}='{}': set one of {}", variable.name, variable.value, fmt::join(congestion_controls, ", "));
    return static_cast<int>(found - congestion_controls.begin());
}

void need_secret(const char *name, const char *key) {
    if (key[0] && LinearCheck::parse_key(key, name) == LinearCheck::Key{})
        throw Error(INAGG_EINVAL, "{} is all zeros, which is no key: make one with  openssl rand -hex {}", name,
                    sizeof(LinearCheck::Key));
}

// Who adds the blocks need not be trusted.
void validate_keys(const inagg_options &options) {
    need_secret("INAGG_JOIN_KEY", options.join_key);
    need_secret("INAGG_KEY", options.key);
    if (options.key[0] && options.join_key[0] && LinearCheck::parse_key(options.key) == LinearCheck::parse_key(options.join_key))
        throw Error(INAGG_EINVAL,
                    "INAGG_KEY and INAGG_JOIN_KEY are the same: switches know the second, and must not know the first");
    if (!options.key[0])
        return;
    if (options.aggregate_from)
        throw Error(INAGG_EINVAL,
                    "a key, and aggregation from {} bytes on: the ring that smaller tensors go by does not verify; set "
                    "INAGG_AGGREGATE_FROM=0, or no INAGG_KEY",
                    options.aggregate_from);
    if (algorithm_number(options.algorithm) == INAGG_ATP && options.scale != INAGG_SCALE_AUTO)
        throw Error(INAGG_EINVAL,
                    "a key and scale {} with algorithm 'atp': what does not fit the scale is added as floats, which "
                    "cannot be verified; set INAGG_SCALE=auto",
                    options.scale);
}

// The only word of a file; returns why there is none.
std::string read_word(const std::string &path, std::string &word) {
    std::ifstream file(path);
    std::string second;
    if (!(file >> word))
        return "it is empty: it must have 32 hexadecimal digits";
    return file >> second ? "it has more than 32 hexadecimal digits" : "";
}

// Not the key itself in messages: they end in logs.
template <std::size_t size> void read_key(const char *name, const char *path_name, char (&to)[size]) {
    const auto key = first_set({name}), path = first_set({path_name});
    if (key && path)
        throw Error(INAGG_EINVAL, "{} and {} are set: set one of them", name, path_name);
    for (const char *either : {name, path_name}) // perhaps the variable of a template
        if (const char *set = std::getenv(either); set && !*set)
            throw Error(INAGG_EINVAL, "{} is empty: unset it, or set it to {}", either,
                        either == name ? "32 hexadecimal digits" : "the name of a file with them");
    if (!key && !path)
        return;
    std::string text(key ? key->value : "");
    if (path) {
        const Fd fd(open(std::string(path->value).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        std::string why = fd ? objection_to_secrets(fd.get()) : std::strerror(errno);
        if (why.empty())
            why = read_word(fmt::format("/proc/self/fd/{}", fd.get()), text);
        if (!why.empty())
            throw Error(INAGG_EINVAL, "{}='{}': {}", path->name, path->value, why);
    }
    LinearCheck::parse_key(text, path ? std::string_view(path->name) : name);
    text.copy(to, size - 1);
}

// A ring waits for all ranks.
void validate_ring(const inagg_options &options) {
    if (options.aggregate_from && (options.expiry_us || options.quorum || options.exclude_ms))
        throw Error(INAGG_EINVAL,
                    "aggregation from {} bytes on, with expiry {} us, quorum {} and exclusion after {} ms: smaller tensors go "
                    "by a ring, which waits for all ranks; set INAGG_AGGREGATE_FROM=0, or none of the others",
                    options.aggregate_from, options.expiry_us, options.quorum, options.exclude_ms);
}

// Each tree's, or one for all.
std::vector<std::string_view> switch_addresses(const inagg_options &options) {
    std::vector<std::string_view> addresses;
    const std::string_view text = options.switch_address;
    for (std::size_t begin = 0, end = 0; end != text.npos && !text.empty(); begin = end + 1) {
        end = text.find(',', begin);
        addresses.push_back(text.substr(begin, end == text.npos ? end : end - begin));
    }
    return addresses;
}

void validate_trees(const inagg_options &options) {
    const std::size_t addresses = switch_addresses(options).size();
    if (options.trees < 1 || options.trees > max_trees)
        throw Error(INAGG_EINVAL, "{} trees: a job has 1 to {}", options.trees, max_trees);
    if (addresses > 1 && addresses != options.trees)
        throw Error(INAGG_EINVAL, "'{}' are {} switches for {} tree{}: set INAGG_TREES={}, or give one address",
                    options.switch_address, addresses, options.trees, options.trees == 1 ? "" : "s", addresses);
    if (options.job + options.trees - 1 > UINT16_MAX)
        throw Error(INAGG_EINVAL, "job {} with {} trees: they are jobs {} to {}, and {} is the last number", options.job,
                    options.trees, options.job, options.job + options.trees - 1, UINT16_MAX);
    if (options.trees > 1 && options.exclude_ms)
        throw Error(INAGG_EINVAL, "exclusion after {} ms with {} trees: no rank is excluded there; set INAGG_EXCLUDE_AFTER=0",
                    options.exclude_ms, options.trees);
}

template <std::size_t size> void read_text(const char *name, char (&text)[size]) {
    const auto variable = first_set({name});
    if (!variable)
        return;
    if (variable->value.size() >= size)
        throw Error(INAGG_EINVAL, "{}='{}': longer than {} characters", name, variable->value, size - 1);
    std::fill_n(text, size, '\0');
    variable->value.copy(text, size - 1);
}

// A rank without a size, or a size without a rank, is half a mistake: ask for the pair.
void read_rank_and_size(inagg_options &options) {
    const std::initializer_list<const char *> ranks = {"INAGG_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
    const std::initializer_list<const char *> sizes = {"INAGG_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"};
    const auto *rank_name = ranks.begin();
    for (const char *size_name : sizes) {
        const auto rank = first_set({*rank_name}), size = first_set({size_name});
        if (rank && size) {
            options.size = static_cast<uint16_t>(parse_number(*size, 1, INAGG_MAX_RANKS));
            options.rank = static_cast<uint16_t>(parse_number(*rank, 0, options.size - 1));
            return;
        }
        if ((rank || size) && rank_name == ranks.begin())
            throw Error(INAGG_EINVAL,
                        "{} is set but {} is not: set both, or neither and start with torchrun, "
                        "mpirun or srun",
                        rank ? *rank_name : size_name, rank ? size_name : *rank_name);
        ++rank_name;
    }
    throw Error(INAGG_EINVAL, "rank and size are unknown: set INAGG_RANK and INAGG_SIZE, or start with torchrun, "
                              "mpirun or srun");
}

template <std::size_t size> bool is_terminated(const char (&text)[size]) {
    return std::find(text, text + size, '\0') != text + size;
}

} // namespace

inagg_options default_options() {
    inagg_options options{};
    options.struct_size = sizeof(options);
    options.size = 1;
    std::string_view("switchml").copy(options.algorithm, sizeof(options.algorithm) - 1);
    std::string_view("auto").copy(options.transport, sizeof(options.transport) - 1);
    options.timeout_ms = 30000;
    options.scale = INAGG_SCALE_AUTO;
    options.history_mib = 64;
    options.congestion_control = INAGG_CONGESTION_OWN;
    options.trees = 1;
    options.poll_us = 500;
    return options;
}

namespace {

// All but whether there is a switch: callers may name it later.
void validate_settings(const inagg_options &options) {
    if (options.struct_size != sizeof(options))
        throw Error(INAGG_EINVAL, "options.struct_size is {}, not {}: call inagg_options_init() first", options.struct_size,
                    sizeof(options));
    if (!is_terminated(options.switch_address) || !is_terminated(options.algorithm) || !is_terminated(options.transport) ||
        !is_terminated(options.key) || !is_terminated(options.join_key))
        throw Error(INAGG_EINVAL, "a text in the options has no terminating 0");
    if (options.size < 1 || options.size > INAGG_MAX_RANKS)
        throw Error(INAGG_EINVAL, "size {}: a job has 1 to {} ranks", options.size, INAGG_MAX_RANKS);
    if (options.rank >= options.size)
        throw Error(INAGG_EINVAL, "rank {}: with {} ranks it must be 0 to {}", options.rank, options.size, options.size - 1);
    if (options.timeout_ms == 0)
        throw Error(INAGG_EINVAL, "timeout 0 ms: set at least 1");
    validate_straggling(options);
    validate_ring(options);
    validate_trees(options);
    const std::string_view transport = options.transport;
    if (std::find(transports.begin(), transports.end(), transport) == transports.end())
        throw Error(INAGG_EINVAL, "transport '{}': set one of {}", transport, fmt::join(transports, ", "));
    validate_scale(options);
    validate_congestion_control(options);
    validate_keys(options);
}

// All but rank and size, which are set.
void read_environment(inagg_options &options) {
    read_text("INAGG_SWITCH", options.switch_address);
    read_number({"INAGG_JOB"}, options.job, 0, 65535);
    read_text("INAGG_ALGORITHM", options.algorithm);
    read_text("INAGG_TRANSPORT", options.transport);
    read_number({"INAGG_TIMEOUT_MS"}, options.timeout_ms, 1, UINT32_MAX);
    read_number({"INAGG_JOIN_TIMEOUT_MS"}, options.join_timeout_ms, 1, UINT32_MAX);
    if (const auto scale = first_set({"INAGG_SCALE"}); scale && scale->value != "auto")
        options.scale = static_cast<int32_t>(parse_number(*scale, -128, 157));
    read_number({"INAGG_CHECKED"}, options.checked, 0, 1);
    if (const auto expiry = first_set({"INAGG_EXPIRY"}))
        options.expiry_us = parse_time(*expiry);
    if (const auto exclude = first_set({"INAGG_EXCLUDE_AFTER"}))
        options.exclude_ms = (uint64_t{parse_time(*exclude)} + 999) / 1000; // so that too little is not never
    if (const auto quorum = first_set({"INAGG_QUORUM"}))
        options.quorum = parse_quorum(*quorum, options.size);
    read_number({"INAGG_HISTORY"}, options.history_mib, 1, 1 << 20);
    if (const auto control = first_set({"INAGG_CONGESTION_CONTROL"}))
        options.congestion_control = parse_congestion_control(*control);
    read_number({"INAGG_TREES"}, options.trees, 1, max_trees);
    if (const auto aggregate_from = first_set({"INAGG_AGGREGATE_FROM"}))
        options.aggregate_from = parse_bytes(*aggregate_from);
    if (const auto poll = first_set({"INAGG_POLL"}))
        options.poll_us = parse_time(*poll);
    read_key("INAGG_KEY", "INAGG_KEY_FILE", options.key);
    read_key("INAGG_JOIN_KEY", "INAGG_JOIN_KEY_FILE", options.join_key);
    validate_settings(options);
}

} // namespace

inagg_options options_from_env() {
    inagg_options options = default_options();
    read_rank_and_size(options);
    read_environment(options);
    return options;
}

inagg_options options_for_rank(uint16_t rank, uint16_t size) {
    inagg_options options = default_options();
    options.rank = rank;
    options.size = size;
    read_environment(options);
    return options;
}

inagg_options options_of_tree(const inagg_options &options, uint16_t index) {
    const auto addresses = switch_addresses(options);
    inagg_options own = options;
    own.job = static_cast<uint16_t>(options.job + index);
    own.trees = 1;
    std::fill(std::begin(own.switch_address), std::end(own.switch_address), '\0');
    addresses[index % addresses.size()].copy(own.switch_address, sizeof(own.switch_address) - 1);
    return own;
}

void validate(const inagg_options &options) {
    validate_settings(options);
    if (!options.switch_address[0])
        throw Error(INAGG_EINVAL,
                    "INAGG_SWITCH is not set: set it, or options.switch_address, to the IPv4 or IPv6 address of the switch");
}

uint8_t algorithm_number(std::string_view name) {
    const auto found = std::find(algorithms.begin(), algorithms.end(), name);
    if (found == algorithms.end())
        throw Error(INAGG_EINVAL, "algorithm '{}': set one of {}", name, fmt::join(algorithms, ", "));
    return static_cast<uint8_t>(found - algorithms.begin());
}

std::string_view algorithm_name(uint8_t number) { return number < algorithms.size() ? algorithms[number] : "unknown"; }

} // namespace inagg
