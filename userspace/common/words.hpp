// SPDX-License-Identifier: BSD-2-Clause
// Options that take one of several words.
#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>

namespace inagg {

// For CLI::Option::transform(): a word of `names` stands for its value, an enumerator. --help and errors list the words.
template <typename Value> CLI::Validator one_of(const std::map<std::string, Value> &names) {
    std::string words;
    for (const auto &[word, value] : names)
        words += (words.empty() ? "{" : ",") + word;
    words += "}";
    return {[names, words](std::string &text) {
                const auto named = names.find(text);
                if (named == names.end())
                    return text + " not in " + words;
                text = std::to_string(static_cast<int>(named->second)); // what CLI11 reads enumerators from
                return std::string();
            },
            words};
}

} // namespace inagg
