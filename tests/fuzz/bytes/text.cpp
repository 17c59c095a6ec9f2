// SPDX-License-Identifier: BSD-2-Clause
// What people and files write: jobs, addresses, values with units, the environment of a rank, inaggd's configuration. It is
// understood, or refused by the exception that is there for it.
#include "bytes.hpp"

#include "common/units.hpp"
#include "daemon_options.hpp"
#include "inaggd/error.hpp"
#include "job_spec.hpp"
#include "libinagg/error.hpp"
#include "options.hpp"

#include <inagg/wire.h>

#include <sstream>

namespace {

using fuzz::need;

void job_spec(const std::string &text) {
    try {
        const inaggd::JobSpec spec = inaggd::parse_job_spec(text);
        need(spec.size >= 1 && spec.size <= INAGG_MAX_RANKS, "a job has ranks, and not too many");
        need(!(spec.slots & (spec.slots - 1)) && !(spec.control & (spec.control - 1)), "pools are powers of two");
        need(spec.elements % INAGG_CHUNK == 0 && spec.elements <= INAGG_MAX_ELEMENTS, "packets are whole chunks");
        need(spec.stragglers.quorum <= spec.size, "a quorum is of the ranks");
        for (const inaggd::MemberSpec &member : spec.members)
            need(member.rank < spec.size, "members are ranks");
    } catch (const inaggd::Error &) {
    }
}

void address(const std::string &text) {
    const auto address = inaggd::Address::parse(text);
    if (address)
        need(inaggd::Address::parse(address->text()) == address, "an address reads as it is written");
}

void units(const std::string &text) {
    try {
        need(inagg::parse_rate(text) > 0, "a rate is positive");
    } catch (const std::invalid_argument &) {
    }
    try {
        need(inagg::parse_duration(text).count() >= 0, "time does not run backwards");
    } catch (const std::invalid_argument &) {
    }
    try {
        const double fraction = inagg::parse_fraction(text);
        need(fraction >= 0 && fraction <= 1, "a fraction is one");
    } catch (const std::invalid_argument &) {
    }
}

constexpr const char *variables[] = {
    "INAGG_SWITCH", "INAGG_JOB",           "INAGG_RANK",   "INAGG_SIZE",           "INAGG_ALGORITHM",          "INAGG_TRANSPORT",
    "INAGG_SCALE",  "INAGG_CHECKED",       "INAGG_EXPIRY", "INAGG_QUORUM",         "INAGG_TIMEOUT_MS",         "INAGG_HISTORY",
    "INAGG_TREES",  "INAGG_EXCLUDE_AFTER", "INAGG_KEY",    "INAGG_AGGREGATE_FROM", "INAGG_CONGESTION_CONTROL", "INAGG_POLL"};

// Lines NAME=VALUE, of which only those count whose name a rank reads.
void environment(const std::string &text) {
    for (const char *name : variables)
        unsetenv(name);
    setenv("INAGG_SWITCH", "10.77.0.1", 1);
    setenv("INAGG_RANK", "0", 1);
    setenv("INAGG_SIZE", "2", 1);
    std::istringstream lines(text.substr(0, text.find('\0')));
    for (std::string line; std::getline(lines, line);)
        for (const char *name : variables)
            if (line.starts_with(std::string(name) + "="))
                setenv(name, line.substr(std::strlen(name) + 1).c_str(), 1);
    try {
        const inagg_options options = inagg::options_from_env();
        inagg::validate(options);
        need(options.size >= 1 && options.size <= INAGG_MAX_RANKS && options.rank < options.size, "a rank is one of its job");
        need(options.trees >= 1 && options.job + options.trees - 1 <= UINT16_MAX, "all trees have numbers");
        need(options.timeout_ms > 0, "calls have a deadline");
        need(std::memchr(options.switch_address, 0, sizeof options.switch_address) != nullptr, "texts end");
        need(options.quorum <= options.size, "a quorum is of the ranks");
    } catch (const inagg::Error &error) {
        need(error.code() != INAGG_OK && *error.what(), "an error has a code and a text");
    }
}

// A configuration file, as --config reads it.
void configuration(const std::string &text) {
    CLI::App app("inaggd");
    inaggd::Options options;
    inaggd::describe(app, options);
    app.allow_config_extras(CLI::config_extras_mode::error);
    try {
        std::istringstream file(text);
        app.parse_from_stream(file);
        inaggd::check_options(app, options);
    } catch (const CLI::Error &) {
        return;
    }
    need(options.port_forming >= 1 && options.port_jobs >= 1 && options.shares >= 1 && options.join_seconds >= 1,
         "what CLI11 checks holds");
    for (const std::string &job : options.jobs)
        job_spec(job);
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Bytes bytes(data, size);
    const uint32_t which = bytes.below(5);
    const std::string text = bytes.rest();
    switch (which) {
    case 0:
        job_spec(text);
        break;
    case 1:
        address(text);
        break;
    case 2:
        units(text);
        break;
    case 3:
        environment(text);
        break;
    case 4:
        configuration(text);
    }
    return 0;
}
