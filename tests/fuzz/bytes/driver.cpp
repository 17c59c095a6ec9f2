// SPDX-License-Identifier: BSD-2-Clause
// Where libFuzzer is not linked in: runs the inputs of a corpus, then mutations of them for a while. It knows nothing of
// what they reach, which is enough to repeat findings and to run with any compiler and its sanitizers.
#include "bytes.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <unistd.h>

namespace {

using Input = std::vector<uint8_t>;

constexpr size_t longest = 4096;

const Input *current = nullptr;
std::string kept = "finding";

// An abort or a crash is a finding. Only what signal handlers may do.
void keep_finding(int signal) {
    std::signal(signal, SIG_DFL);
    if (FILE *file = current ? std::fopen(kept.c_str(), "wb") : nullptr) {
        std::fwrite(current->data(), 1, current->size(), file);
        std::fclose(file);
    }
    std::raise(signal);
}

std::vector<Input> read_all(const std::vector<std::string> &paths) {
    std::vector<std::filesystem::path> files;
    for (const std::string &path : paths)
        if (std::filesystem::is_directory(path))
            for (const auto &entry : std::filesystem::directory_iterator(path))
                files.push_back(entry.path());
        else
            files.emplace_back(path);
    std::sort(files.begin(), files.end()); // so that a seed means the same everywhere
    std::vector<Input> inputs;
    for (const auto &file : files) {
        std::ifstream stream(file, std::ios::binary);
        inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    }
    return inputs;
}

class Mutator {
public:
    Mutator(uint64_t seed, const std::vector<Input> &corpus) : random_(seed), corpus_(corpus) {}

    Input next() {
        Input input = corpus_[below(corpus_.size())];
        for (size_t count = 1 + below(8); count; count--)
            change(input);
        input.resize(std::min(input.size(), longest));
        return input;
    }

private:
    size_t below(size_t n) { return random_() % n; }
    auto at(Input &input, size_t index) { return input.begin() + static_cast<std::ptrdiff_t>(index); }

    void change(Input &input) {
        const size_t where = below(input.size() + 1), length = below(16);
        const Input &other = corpus_[below(corpus_.size())];
        switch (below(5)) {
        case 0:
            if (where < input.size())
                input[where] ^= static_cast<uint8_t>(1u << below(8));
            break;
        case 1:
            if (where < input.size())
                input[where] = static_cast<uint8_t>(random_());
            break;
        case 2:
            input.insert(at(input, where), static_cast<uint8_t>(random_()));
            break;
        case 3:
            input.erase(at(input, where), at(input, std::min(where + length, input.size())));
            break;
        case 4: // some of another one
            if (!other.empty()) {
                const auto from = other.begin() + static_cast<std::ptrdiff_t>(below(other.size()));
                input.insert(at(input, where), from, from + std::min<std::ptrdiff_t>(other.end() - from, 64));
            }
        }
    }

    std::mt19937_64 random_;
    const std::vector<Input> &corpus_;
};

void run(const Input &input) {
    current = &input;
    LLVMFuzzerTestOneInput(input.data(), input.size());
    current = nullptr;
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("Inputs of a corpus, and mutations of them, into one parser or state machine.");
    std::vector<std::string> paths;
    double seconds = 0;
    uint64_t seed = 1, count = 0;
    app.add_option("inputs", paths, "Files, or directories of them")->required()->check(CLI::ExistingPath);
    app.add_option("--seconds", seconds, "How long mutations go on")->capture_default_str();
    app.add_option("--seed", seed, "Of the mutations")->capture_default_str();
    app.add_option("--finding", kept, "Where an input is kept that fails")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    for (int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS})
        std::signal(signal, keep_finding);

    const std::vector<Input> corpus = read_all(paths);
    if (corpus.empty()) {
        fmt::print(stderr, "no inputs there\n");
        return 1;
    }
    for (const Input &input : corpus)
        run(input);
    Mutator mutator(seed, corpus);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (; std::chrono::steady_clock::now() < end; count++)
        run(mutator.next());
    fmt::print("{} inputs of the corpus, {} mutations: no violation\n", corpus.size(), count);
}
