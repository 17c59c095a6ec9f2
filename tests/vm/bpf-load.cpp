// SPDX-License-Identifier: BSD-2-Clause
// Loads BPF objects into this kernel and prints what the verifier says of each program: the number of
// instructions it walked, or the end of its log. Exit status 1 if one does not load, 77 if none may be.
//
// What the verifier knows to be constant it does not follow. So stream.bpf.o, whose settings are constants, is loaded once
// for each of their kinds, and switch.bpf.o also for an agent that knows rates of links and quotas of jobs.
#include "worker_maps.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
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

// What is put into an object before it is loaded.
using Configure = void (*)(bpf_object *object);
struct Variant {
    const char *object, *name;
    Configure configure;
};

void set_constant(bpf_object *object, const char *name, const void *value, size_t bytes) {
    bpf_map *constants = bpf_object__find_map_by_name(object, ".rodata");
    size_t size = 0;
    const auto *initial = static_cast<const std::byte *>(bpf_map__initial_value(constants, &size));
    std::vector<std::byte> image(initial, initial + size);
    const btf *types = bpf_object__btf(object);
    const btf_type *section =
        btf__type_by_id(types, static_cast<__u32>(btf__find_by_name_kind(types, ".rodata", BTF_KIND_DATASEC)));
    const btf_var_secinfo *variables = btf_var_secinfos(section), *end = variables + btf_vlen(section);
    const auto *found = std::find_if(variables, end, [&](const btf_var_secinfo &variable) {
        return std::strcmp(btf__name_by_offset(types, btf__type_by_id(types, variable.type)->name_off), name) == 0;
    });
    if (found == end || found->size != bytes || found->offset + bytes > size) {
        std::printf("FAIL no constant %s of %zu bytes\n", name, bytes);
        std::exit(1);
    }
    std::memcpy(&image[found->offset], value, bytes);
    bpf_map__set_initial_value(constants, image.data(), image.size());
}

template <uint32_t family, uint32_t header_bytes, uint32_t checked> void configure_stream(bpf_object *object) {
    inagg_stream_settings settings{};
    settings.all = 0xf;
    settings.family = family;
    settings.header_bytes = header_bytes;
    settings.checked = checked;
    settings.slots = 128;
    settings.control_slots = 8;
    settings.cells = 512;
    settings.control_cells = 32;
    settings.size = 4;
    set_constant(object, "settings", &settings, sizeof settings);
}

void configure_limits(bpf_object *object) {
    constexpr uint32_t yes = 1;
    for (const char *name : {"has_queues", "has_quotas", "has_uplink_quotas"})
        set_constant(object, name, &yes, sizeof yes);
}

constexpr Variant variants[] = {
    {"stream.bpf.o", " IPv4", configure_stream<4, 42, 0>},
    {"stream.bpf.o", " IPv4 with VLAN tag and payload checksums", configure_stream<4, 46, 1>},
    {"stream.bpf.o", " IPv6", configure_stream<6, 62, 0>},
    {"stream.bpf.o", " IPv6 with VLAN tag and payload checksums", configure_stream<6, 66, 1>},
    {"switch.bpf.o", "", [](bpf_object *) {}},
    {"switch.bpf.o", " with rates and quotas", configure_limits},
};

// Opens `path` and gives each program a log of `bytes` that the verifier fills.
Object open_with_logs(const char *path, const Variant &variant, unsigned level, size_t bytes, Logs &logs) {
    Object object(bpf_object__open_file(path, nullptr));
    if (!object)
        return object;
    variant.configure(object.get());
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
void explain(const char *path, const Variant &variant) {
    Logs logs;
    libbpf_messages.clear();
    Object object = open_with_logs(path, variant, log_instructions | log_stats, 16 << 20, logs);
    if (object && bpf_object__load(object.get()) == 0)
        std::printf("  it loaded the second time\n");
    std::printf("%s", libbpf_messages.c_str());
    for (const auto &[name, log] : logs) {
        size_t length = std::strlen(log.data());
        if (length && object && bpf_program__fd(bpf_object__find_program_by_name(object.get(), name.c_str())) < 0)
            std::printf("  verifier log of %s ends:\n%s\n", name.c_str(),
                        log.data() + (length > log_tail ? length - log_tail : 0));
    }
}

int load(const char *path, const char *base, const Variant &variant) {
    Logs logs;
    libbpf_messages.clear();
    Object object = open_with_logs(path, variant, log_stats, 65536, logs);
    int error = object ? bpf_object__load(object.get()) : -errno;
    if (error == -EPERM && geteuid() != 0) {
        std::printf("SKIP: loading BPF programs needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (run as root)\n");
        std::exit(77);
    }
    if (error) {
        std::printf("FAIL %s%s: %s\n%s", base, variant.name, std::strerror(-error), libbpf_messages.c_str());
        explain(path, variant);
        return 1;
    }
    for (const auto &[name, log] : logs)
        std::printf("ok   %s%s %s: %ld instructions verified\n", base, variant.name, name.c_str(), instructions_walked(log));
    return 0;
}

int load_variants(const char *path) {
    const char *slash = std::strrchr(path, '/'), *base = slash ? slash + 1 : path;
    int failed = 0, loads = 0;
    for (const Variant &variant : variants)
        if (std::strcmp(base, variant.object) == 0) {
            failed += load(path, base, variant);
            loads++;
        }
    return loads ? failed : load(path, base, {base, "", [](bpf_object *) {}});
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
        failed += load_variants(argv[i]);
    return failed ? 1 : 0;
}
