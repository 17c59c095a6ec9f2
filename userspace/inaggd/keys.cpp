// SPDX-License-Identifier: BSD-2-Clause
#include "keys.hpp"

#include "common/fd.hpp"
#include "common/secrets.hpp"
#include "error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <utility>

namespace inaggd {
namespace {

// Messages name places, not what is there: they end in logs.
template <typename Number> Number parse(std::string_view text, int base, const std::string &where) {
    Number number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc() || stop != text.data() + text.size() || text.empty())
        throw Error("{}: write JOB KEY, FIRST-LAST KEY, or KEY for all jobs; a key has {} hexadecimal digits", where,
                    2 * INAGG_KEY_BYTES);
    return number;
}

inagg_mac_key parse_key(std::string_view hex, const std::string &where) {
    std::array<uint8_t, INAGG_KEY_BYTES> bytes;
    if (hex.size() != 2 * bytes.size())
        throw Error("{}: the key has {} characters: it must be {} hexadecimal digits", where, hex.size(), 2 * bytes.size());
    for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = parse<uint8_t>(hex.substr(2 * i, 2), 16, where);
    const inagg_mac_key key = inagg_mac_key_of(bytes.data());
    if (!inagg_mac_key_is_set(&key))
        throw Error("{}: the key is all zeros: make one with  openssl rand -hex {}", where, INAGG_KEY_BYTES);
    return key;
}

std::string read_private(const std::string &path) {
    const inagg::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd)
        throw Error("key file {}: {}", path, system_text(errno));
    if (const std::string why = inagg::objection_to_secrets(fd.get()); !why.empty()) // who can read it can join
        throw Error("key file {}: {}", path, why);
    std::string text;
    char buffer[4096];
    ssize_t bytes;
    while ((bytes = ::read(fd.get(), buffer, sizeof buffer)) > 0)
        text.append(buffer, static_cast<size_t>(bytes));
    if (bytes < 0)
        throw Error("key file {}: {}", path, system_text(errno));
    return text;
}

} // namespace

void Keys::read(const std::string &path) {
    std::istringstream lines(read_private(path));
    const size_t before = rows_.size();
    int number = 0;
    for (std::string line; std::getline(lines, line);)
        add(std::string_view(line).substr(0, line.find('#')), fmt::format("key file {}, line {}", path, ++number));
    if (rows_.size() == before)
        throw Error("key file {}: it has no key", path);
}

void Keys::add(std::string_view line, const std::string &where) {
    std::istringstream rest{std::string(line)};
    std::string jobs, key, more;
    if (!(rest >> jobs))
        return;
    if (!(rest >> key))
        key = std::exchange(jobs, "0-65535");
    if (rest >> more)
        throw Error("{}: more than a job and its key", where);
    const size_t dash = jobs.find('-');
    const auto first = parse<uint16_t>(std::string_view(jobs).substr(0, dash), 10, where);
    const auto last = dash == std::string::npos ? first : parse<uint16_t>(std::string_view(jobs).substr(dash + 1), 10, where);
    if (last < first)
        throw Error("{}: jobs {}: the first is above the last", where, jobs);
    rows_.push_back({first, last, parse_key(key, where)});
}

std::optional<inagg_mac_key> Keys::find(uint16_t job) const {
    const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row &r) { return r.first <= job && job <= r.last; });
    return row == rows_.end() ? std::nullopt : std::optional(row->key);
}

std::optional<inagg_mac_key> key_of(const JobSpec &spec) {
    if (spec.key_file.empty())
        return std::nullopt;
    Keys keys;
    keys.read(spec.key_file);
    const auto key = keys.find(spec.number);
    if (!key)
        throw Error("job {}: key file {} has no key for it", spec.number, spec.key_file);
    return key;
}

} // namespace inaggd
