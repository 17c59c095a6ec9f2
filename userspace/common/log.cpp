// SPDX-License-Identifier: BSD-2-Clause
#include "log.hpp"

#include "words.hpp"

#include <fmt/chrono.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <chrono>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

namespace inagg {
namespace {

using json = nlohmann::ordered_json;

std::vector<LogField> of_all_lines;
thread_local std::vector<LogField> of_this_thread;

// As RFC 3339 has it, in UTC.
std::string time_text(spdlog::log_clock::time_point time) {
    const auto second = std::chrono::floor<std::chrono::seconds>(time);
    const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(time - second);
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(second)), rest.count());
}

std::string text(spdlog::string_view_t view) { return {view.data(), view.size()}; }

class JsonFormatter : public spdlog::formatter {
public:
    void format(const spdlog::details::log_msg &message, spdlog::memory_buf_t &line) override {
        json object = {{"time", time_text(message.time)},
                       {"level", text(spdlog::level::to_string_view(message.level))},
                       {"program", text(message.logger_name)},
                       {"message", text(message.payload)}};
        for (const auto *fields : {&of_all_lines, &of_this_thread})
            for (const auto &[name, value] : *fields)
                object[name] = value;
        // A name of an interface may be any bytes.
        const std::string written = object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
        line.append(written.data(), written.data() + written.size());
    }

    std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

} // namespace

void add_log_format(CLI::App &app, LogFormat &format) {
    const std::map<std::string, LogFormat> names = {{"text", LogFormat::text}, {"json", LogFormat::json}};
    app.add_option("--log-format", format, "text, or json: a line is an object with time, level, message and what it is about")
        ->transform(one_of(names))
        ->default_str("text");
}

void start_log(const std::string &program, LogFormat format, spdlog::level::level_enum level) {
    spdlog::set_default_logger(spdlog::stderr_color_mt(program));
    spdlog::set_level(level);
    if (format == LogFormat::json)
        spdlog::set_formatter(std::make_unique<JsonFormatter>());
}

void set_log_field(const LogField &field) { of_all_lines.push_back(field); }

LogFields::LogFields(std::initializer_list<LogField> fields) : before_(of_this_thread.size()) {
    of_this_thread.insert(of_this_thread.end(), fields);
}

LogFields::~LogFields() {
    of_this_thread.erase(of_this_thread.begin() + static_cast<std::ptrdiff_t>(before_), of_this_thread.end());
}

} // namespace inagg
