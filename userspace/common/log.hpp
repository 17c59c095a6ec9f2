// SPDX-License-Identifier: BSD-2-Clause
// The log of a program that runs for long: lines of text on standard error, or a JSON object a line.
#pragma once

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace CLI {
class App;
}

namespace inagg {

enum class LogFormat { text, json };

// --log-format
void add_log_format(CLI::App &app, LogFormat &format);
void start_log(const std::string &program, LogFormat format, spdlog::level::level_enum level);

using LogField = std::pair<const char *, nlohmann::ordered_json>;

// Every line from now on is about this, too.
void set_log_field(const LogField &field);

// So are the lines of this thread, until this goes. A line of text says it in words.
class LogFields {
public:
    LogFields(std::initializer_list<LogField> fields);
    ~LogFields();
    LogFields(const LogFields &) = delete;
    LogFields &operator=(const LogFields &) = delete;

private:
    std::size_t before_;
};

} // namespace inagg
