// SPDX-License-Identifier: BSD-2-Clause
#include "settings.hpp"

#include <inagg/inagg.h>
#include <inagg/wire.h>

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace inagg::mpi {

namespace {

std::string_view variable(const char *name) {
    const char *value = std::getenv(name);
    return value ? value : "";
}

[[noreturn]] void reject(const char *name, std::string_view expected) {
    throw std::runtime_error(fmt::format("{}='{}': set it to {}", name, variable(name), expected));
}

// "65536", "64K", "40M", "1G"; `otherwise` if it is not set.
uint64_t read_bytes(const char *name, uint64_t otherwise) {
    const std::string_view text = variable(name);
    if (text.empty())
        return otherwise;
    uint64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string_view unit(rest, text.data() + text.size() - rest), units = "KMG";
    const std::size_t power = unit.empty() ? 0 : units.find(unit) + 1;
    if (error != std::errc() || unit.size() > 1 || (power == 0 && !unit.empty()) || number > UINT64_MAX >> 10 * power)
        reject(name, "a number of bytes, like 65536, 64K, 40M or 1G");
    return number << 10 * power;
}

uint32_t read_jobs(uint32_t first, uint32_t least, uint32_t otherwise) {
    const std::string_view text = variable("INAGG_MPI_JOBS");
    const uint32_t most = UINT16_MAX + 1 - first;
    if (text.empty())
        return std::min(otherwise, most);
    uint32_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || rest != text.data() + text.size() || number < least || number > most)
        reject("INAGG_MPI_JOBS", fmt::format("{} to {}, so many job numbers from INAGG_JOB on", least, most));
    return number;
}

// `adds_floats`: the switches do.
FloatSums read_float_sums(bool adds_floats, bool verified) {
    const std::string_view text = variable("INAGG_MPI_FLOAT");
    if (text == "float32" && adds_floats && verified)
        reject("INAGG_MPI_FLOAT", "exact: with INAGG_KEY, sums of floats that panama adds cannot be verified");
    if (text == "float32" || (text.empty() && adds_floats && !verified))
        return FloatSums::float32;
    if (text.empty() || text == "exact")
        return FloatSums::exact;
    reject("INAGG_MPI_FLOAT", "exact or float32");
}

void read_report(Settings &settings) {
    const std::string_view text = variable("INAGG_MPI_REPORT");
    settings.prints_report = text != "0";
    if (text != "0" && text != "1")
        settings.report_file = text;
}

} // namespace

Settings read_settings(int ranks) {
    Settings settings;
    read_report(settings);
    if (variable("INAGG_SWITCH").empty()) {
        settings.off = "INAGG_SWITCH is not set";
        return settings;
    }
    inagg_options options;
    if (inagg_options_for_rank(&options, 0, static_cast<uint16_t>(std::min(ranks, INAGG_MAX_RANKS))) != INAGG_OK)
        throw std::runtime_error(inagg_message());
    const std::string_view algorithm = options.algorithm;
    if (algorithm == "trio")
        settings.off = "results of algorithm trio may lack ranks";
    settings.min_bytes = read_bytes("INAGG_MPI_MIN_BYTES", settings.min_bytes);
    settings.max_bytes = read_bytes("INAGG_MPI_MAX_BYTES", settings.max_bytes);
    settings.verified = options.key[0];
    settings.float_sums = read_float_sums(algorithm == "panama", settings.verified);
    // What does not fit goes by MPI, which needs the elements that the sums of others have replaced by then.
    if (settings.float_sums == FloatSums::float32 && options.scale != INAGG_SCALE_AUTO)
        reject("INAGG_SCALE", "auto, or nothing: MPI's sums agree on their scales");
    settings.first_job = options.job;
    settings.jobs = read_jobs(options.job, options.trees, settings.jobs);
    settings.trees = options.trees;
    return settings;
}

std::string fingerprint(const Settings &settings) {
    return fmt::format("{} {} {} {} {} {} {} {}", settings.off, settings.min_bytes, settings.max_bytes,
                       static_cast<int>(settings.float_sums), settings.first_job, settings.jobs, settings.trees,
                       settings.verified);
}

} // namespace inagg::mpi
