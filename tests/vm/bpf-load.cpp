// SPDX-License-Identifier: BSD-2-Clause
// Loads BPF objects into this kernel and prints what the verifier says of each program: the number of
// instructions it walked, or the end of its log. Exit status 1 if one does not load, 77 if none may be.
#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr unsigned log_stats = 4, log_instructions = 1; // kernel/bpf: BPF_LOG_STATS, BPF_LOG_LEVEL1
constexpr size_t log_tail = 6000;

std::string libbpf_messages;

int collect(enum libbpf_print_level level, const char *format, va_list arguments) {
    char line[1024];
    if (level != LIBBPF_DEBUG && vsnprintf(line, sizeof line, format, arguments) > 0)
        libbpf_messages += line;
    return 0;
}

struct Close {
    void operator()(bpf_object *object) const { bpf_object__close(object); }
};
using Object = std::unique_ptr<bpf_object, Close>;
using Logs = std::map<std::string, std::vector<char>>;

// Opens `path` and gives each program a log of `bytes` that the verifier fills.
Object open_with_logs(const char *path, unsigned level, size_t bytes, Logs &logs) {
    Object object(bpf_object__open_file(path, nullptr));
    if (!object)
        return object;
    bpf_program *program;
    bpf_object__for_each_program(program, object.get()) {
        auto &log = logs[bpf_program__name(program)];
        log.assign(bytes, 0);
        bpf_program__set_log_level(program, level);
        bpf_program__set_log_buf(program, log.data(), log.size());
    }
    return object;
}

// "processed 1234 insns (limit ...)" in a verifier log.
long instructions_walked(const std::vector<char> &log) {
    long count = 0;
    const char *at = std::strstr(log.data(), "processed ");
    return at && std::sscanf(at, "processed %ld", &count) == 1 ? count : -1;
}

// Loads again with a full log and prints its end for the program that fails.
void explain(const char *path) {
    Logs logs;
    libbpf_messages.clear();
    Object object = open_with_logs(path, log_instructions | log_stats, 16 << 20, logs);
    if (object && bpf_object__load(object.get()) == 0)
        std::printf("  it loaded the second time\n");
    std::printf("%s", libbpf_messages.c_str());
    for (const auto &[name, log] : logs) {
        size_t length = std::strlen(log.data());
        if (length && object &&
            bpf_program__fd(bpf_object__find_program_by_name(object.get(), name.c_str())) < 0)
            std::printf("  verifier log of %s ends:\n%s\n", name.c_str(),
                        log.data() + (length > log_tail ? length - log_tail : 0));
    }
}

int load(const char *path) {
    const char *base = std::strrchr(path, '/');
    base = base ? base + 1 : path;
    Logs logs;
    libbpf_messages.clear();
    Object object = open_with_logs(path, log_stats, 65536, logs);
    int error = object ? bpf_object__load(object.get()) : -errno;
    if (error == -EPERM && geteuid() != 0) {
        std::printf(
            "SKIP: loading BPF programs needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (run as root)\n");
        std::exit(77);
    }
    if (error) {
        std::printf("FAIL %s: %s\n%s", base, std::strerror(-error), libbpf_messages.c_str());
        explain(path);
        return 1;
    }
    for (const auto &[name, log] : logs)
        std::printf("ok   %s %s: %ld instructions verified\n", base, name.c_str(), instructions_walked(log));
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: bpf-load OBJECT...\n");
        return 2;
    }
    libbpf_set_print(collect);
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed += load(argv[i]);
    return failed ? 1 : 0;
}
