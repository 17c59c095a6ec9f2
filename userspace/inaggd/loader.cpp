// SPDX-License-Identifier: BSD-2-Clause
#include "loader.hpp"

#include "error.hpp"
#include "maps.hpp"
#include "shares.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/magic.h>
#include <net/if.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include <switch.skel.h>
#include <switch_programs.h>

namespace inaggd {
namespace {

namespace fs = std::filesystem;

// The switch's state. The other maps (scratch space, the table of algorithms) belong to one set of
// programs, so that an old and a new set never meet while ports change over.
constexpr std::array state_maps = {"settings",     "jobs",        "members",    "slots",          "ports",       "port_ranks",
                                   "stats",        "events",      "buckets",    "record_lanes",   "floors",      "policies",
                                   "open_records", "expired",     "sweepers",   "sweep_settings", "due",         "uplinks",
                                   "subtrees",     "attendance",  "stragglers", "aggregators",    "queues",      "float_buffers",
                                   "free_buffers", "buffer_pool", "shares",     "adding",         "up_ports",    "routes",
                                   "descriptors",  "patience",    "keys",       "quotas",         "occupancy",   "uplink_quotas",
                                   "alarms",       "arrivals",    "ways",       "sweep_process",  "hand_sweeper"};
constexpr const char *algorithms = "algorithms";
constexpr std::array programs = {"inagg_switch",     "inagg_egress", "inagg_clear",
                                 "inagg_forget_job", "inagg_sweep",  "inagg_sweep_once"};

// libbpf explains a refused program over many lines; they belong to the log.
int log_libbpf(enum libbpf_print_level level, const char *format, va_list args) {
    if (level == LIBBPF_DEBUG && !spdlog::should_log(spdlog::level::trace))
        return 0;
    char line[4096];
    int length = std::vsnprintf(line, sizeof line, format, args);
    std::string_view text(line, std::min<size_t>(std::max(length, 0), sizeof line - 1));
    while (text.ends_with('\n'))
        text.remove_suffix(1);
    spdlog::log(level == LIBBPF_WARN ? spdlog::level::warn : spdlog::level::trace, "{}", text);
    return length;
}

// True if it was not there.
bool make_directory(const fs::path &dir) {
    need_bpffs(dir.parent_path());
    bool is_new = mkdir(dir.c_str(), 0700) == 0;
    if (!is_new && errno != EEXIST)
        throw Error("{}: {}", dir.string(), system_text(errno));
    need_bpffs(dir);
    return is_new;
}

// One agent at a time serves a switch: the kernel drops the lock with the process.
Fd lock_directory(const fs::path &dir) {
    Fd fd(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd)
        throw Error("{}: {}", dir.string(), system_text(errno));
    if (flock(fd.get(), LOCK_EX | LOCK_NB))
        throw Error("{}: another inaggd serves this switch; stop it or choose another --bpffs", dir.string());
    struct stat locked {
    }, present{};
    if (fstat(fd.get(), &locked) || stat(dir.c_str(), &present) || locked.st_ino != present.st_ino)
        throw Error("{}: another inaggd has just removed it; try again", dir.string());
    return fd;
}

bool pinned(const fs::path &path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

void unpin(const fs::path &path) {
    std::error_code ignored;
    fs::remove(path, ignored);
}

std::string map_name(const fs::path &path) {
    Fd fd(bpf_obj_get(path.c_str()));
    bpf_map_info info{};
    uint32_t length = sizeof info;
    return fd && bpf_obj_get_info_by_fd(fd.get(), &info, &length) == 0 ? info.name : "";
}

std::string program_name(const fs::path &path) {
    Fd fd(bpf_obj_get(path.c_str()));
    bpf_prog_info info{};
    uint32_t length = sizeof info;
    return fd && bpf_obj_get_info_by_fd(fd.get(), &info, &length) == 0 ? info.name : "";
}

// As much of a name as the kernel keeps.
std::string_view kernel_name(std::string_view name) { return name.substr(0, BPF_OBJ_NAME_LEN - 1); }

// What is pinned in `dir` for a switch. Others may pin beside it, even under such a name.
std::vector<fs::path> own_pins(const fs::path &dir) {
    std::vector<fs::path> pins;
    for (const AttachedPort &port : attached_ports(dir)) {
        pins.emplace_back(port.pin);
        for (const std::string &pin : {meter_pin(dir, port.name), spread_pin(dir, port.name)})
            if (pinned(pin))
                pins.emplace_back(pin);
    }
    for (const char *name : programs)
        if (program_name(dir / name) == kernel_name(name))
            pins.push_back(dir / name);
    for (const char *name : state_maps)
        if (map_name(dir / name) == kernel_name(name))
            pins.push_back(dir / name);
    if (map_name(dir / algorithms) == algorithms)
        pins.push_back(dir / algorithms);
    return pins;
}

Fd open_map(const fs::path &path) {
    Fd fd(bpf_obj_get(path.c_str()));
    if (!fd)
        throw Error("{}: {}; remove it, or start with --fresh", path.string(), system_text(errno));
    return fd;
}

bpf_map_info map_info(int fd, const fs::path &path) {
    bpf_map_info info{};
    uint32_t length = sizeof info;
    if (bpf_obj_get_info_by_fd(fd, &info, &length))
        throw Error("{} is not a map: {}; remove it, or start with --fresh", path.string(), system_text(errno));
    return info;
}

// A pinned map serves the new programs if it has their idea of keys and values.
void need_compatible(const bpf_map *map, const bpf_map_info &info, const fs::path &path) {
    if (info.type == static_cast<uint32_t>(bpf_map__type(map)) && info.key_size == bpf_map__key_size(map) &&
        info.value_size == bpf_map__value_size(map))
        return;
    throw Error("{} is of another version of inagg (value of {} bytes, this inaggd needs {}): end the running "
                "jobs and start with --fresh, or use the inaggd that made it",
                path.string(), info.value_size, bpf_map__value_size(map));
}

uint32_t index_of(const std::string &port) {
    uint32_t ifindex = if_nametoindex(port.c_str());
    if (!ifindex)
        throw Error("port {}: no such interface in this network namespace (ip link)", port);
    if (ifindex == INAGG_LOOPBACK)
        throw Error("port {}: the loopback interface cannot be a port of a switch", port);
    return ifindex;
}

Error port_taken(const std::string &port) {
    return Error("port {}: another XDP program is attached; inaggctl doctor {} says whose, and how to remove it", port, port);
}

bpf_program *program_of(const bpf_object *object, const char *name) { return bpf_object__find_program_by_name(object, name); }

// `error` is what loading returned. Whoever calls a program finds it from now on.
void need_loaded(const switch_bpf *skeleton, int error) {
    if (error)
        throw Error("the kernel refuses the switch program: {}", system_text(error));
    if (int unlinked = inagg_link_programs(skeleton->obj))
        throw Error("algorithms: {}", system_text(unlinked));
}

// A link, so that nothing remains when its pin goes; the older way to attach to tc leaves a queueing discipline behind. One that
// is there goes on with this program. False: errno says why not.
bool link_to_tc(const bpf_program *program, uint32_t ifindex, bpf_attach_type where, const std::string &pin) {
    const Fd old(bpf_obj_get(pin.c_str()));
    bpf_link_info info{};
    __u32 size = sizeof info;
    if (old && bpf_obj_get_info_by_fd(old.get(), &info, &size) == 0 && info.xdp.ifindex == ifindex && // of tcx at the same place
        bpf_link_update(old.get(), bpf_program__fd(program), nullptr) == 0)
        return true;
    unpin(pin);
    const Fd link(bpf_link_create(bpf_program__fd(program), static_cast<int>(ifindex), where, nullptr));
    if (!link)
        return false;
    if (bpf_obj_pin(link.get(), pin.c_str()))
        throw Error("{}: {}", pin, system_text(errno));
    return true;
}

int create_link(int program, uint32_t ifindex, uint32_t mode) {
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = mode);
    return bpf_link_create(program, static_cast<int>(ifindex), BPF_XDP, &options);
}

} // namespace

void need_compatible_pins(const std::string &dir) {
    const std::unique_ptr<switch_bpf, void (*)(switch_bpf *)> skeleton(switch_bpf__open(), switch_bpf__destroy);
    if (!skeleton)
        throw Error("switch program: {}", system_text(errno));
    for (const char *name : state_maps)
        if (const fs::path path = fs::path(dir) / name; pinned(path))
            need_compatible(bpf_object__find_map_by_name(skeleton->obj, name), map_info(open_map(path).get(), path), path);
}

Loader::Loader(std::string dir, const SwitchSizes &sizes, bool fresh)
    : dir_(std::move(dir)), made_directory_(make_directory(dir_)), lock_(lock_directory(dir_)) {
    libbpf_set_print(log_libbpf);
    std::vector<fs::path> found = own_pins(dir_);
    made_directory_ |= !found.empty(); // an earlier agent did
    if (fresh)
        std::for_each(found.begin(), found.end(), unpin);
    bool is_new = fresh || found.empty();
    try {
        load(sizes);
    } catch (...) {
        switch_bpf__destroy(skeleton_);
        if (is_new)
            remove_all();
        throw;
    }
}

void Loader::load(const SwitchSizes &sizes) {
    skeleton_ = switch_bpf__open();
    if (!skeleton_)
        throw Error("switch program: {}", system_text(errno));
    reuse_or_create(sizes);
    for (const inagg_program &program : inagg_programs) {
        // Jobs of an earlier agent may have blocks in the queue before provide(): ticks without a program would take none out,
        // or drop what they take.
        const bool awaited = resumed_ && (program.call == INAGG_CALL_TICK || program.call == INAGG_CALL_EXPIRE);
        if (program.by_job && !awaited)
            bpf_program__set_autoload(program_of(skeleton_->obj, program.name), false);
    }
    for (bpf_program *program : {skeleton_->progs.inagg_several, skeleton_->progs.inagg_spread})
        bpf_program__set_autoload(program, sizes.several);
    need_loaded(skeleton_, switch_bpf__load(skeleton_));
    pin_new_maps();
    pin_programs();
}

void Loader::provide(const inagg_job &job) {
    std::vector<const char *> missing;
    for (const inagg_program &program : inagg_programs) {
        uint32_t id = 0; // of the program that is there
        if ((program.call == inagg_call_of(&job) || inagg_also_calls(&job, program.call)) &&
            bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.algorithms), &program.call, &id))
            missing.push_back(program.name);
    }
    if (!missing.empty())
        load_further(missing);
}

// More of the programs, over the maps of those that are there.
void Loader::load_further(const std::vector<const char *> &wanted) {
    const std::unique_ptr<switch_bpf, void (*)(switch_bpf *)> further(switch_bpf__open(), switch_bpf__destroy);
    if (!further)
        throw Error("switch program: {}", system_text(errno));
    *further->rodata = *skeleton_->rodata;
    bpf_map *map;
    bpf_object__for_each_map(map, further->obj) {
        const bpf_map *present = bpf_object__find_map_by_name(skeleton_->obj, bpf_map__name(map));
        if (!bpf_map__is_internal(map) && bpf_map__reuse_fd(map, bpf_map__fd(present)))
            throw Error("map {}: {}", bpf_map__name(map), system_text(errno));
    }
    bpf_program *program;
    bpf_object__for_each_program(program, further->obj) bpf_program__set_autoload(program, false);
    for (const char *name : wanted)
        bpf_program__set_autoload(program_of(further->obj, name), true);
    need_loaded(further.get(), switch_bpf__load(further.get()));
}

Loader::~Loader() { switch_bpf__destroy(skeleton_); }

void Loader::reuse_or_create(const SwitchSizes &sizes) {
    // By map: the option, and how many entries it stands for.
    const std::map<std::string_view, std::pair<const char *, uint32_t>> wanted = {
        {"slots", {"slots", sizes.slots * 2}},
        {"buckets", {"buckets", sizes.buckets}},
        {"record_lanes", {"buckets", sizes.buckets * INAGG_WAYS}},
        {"aggregators", {"aggregators", sizes.aggregators}},
        {"descriptors", {"descriptors", sizes.descriptors}},
        {"float_buffers", {"buffers", sizes.buffers}},
        {"free_buffers", {"buffers", sizes.buffers}}};
    for (const char *name : state_maps) {
        bpf_map *map = bpf_object__find_map_by_name(skeleton_->obj, name);
        fs::path path = fs::path(dir_) / name;
        if (!pinned(path)) {
            if (auto size = wanted.find(name); size != wanted.end())
                bpf_map__set_max_entries(map, size->second.second);
            continue;
        }
        const Fd fd = open_map(path);
        bpf_map_info info = map_info(fd.get(), path);
        need_compatible(map, info, path);
        if (map == skeleton_->maps.events && info.max_entries != bpf_map__max_entries(map)) {
            fs::remove(path); // of another release: what is in it is asked again
            continue;
        }
        if (auto size = wanted.find(name); size != wanted.end() && info.max_entries != size->second.second)
            spdlog::warn("{} has {} entries and keeps them; another number of --{} takes a --fresh start", path.string(),
                         info.max_entries, size->second.first);
        if (bpf_map__reuse_fd(map, fd.get()))
            throw Error("{}: {}", path.string(), system_text(errno));
        resumed_ = true;
    }
    skeleton_->rodata->bucket_count = bpf_map__max_entries(skeleton_->maps.buckets);
    skeleton_->rodata->aggregator_count = bpf_map__max_entries(skeleton_->maps.aggregators);
    skeleton_->rodata->aggregator_share = share_of(skeleton_->rodata->aggregator_count, "aggregators", sizes.shares);
    skeleton_->rodata->aggregator_ways = std::min<uint32_t>(INAGG_AGGREGATOR_WAYS, skeleton_->rodata->aggregator_share);
    skeleton_->rodata->descriptor_count = bpf_map__max_entries(skeleton_->maps.descriptors);
    skeleton_->rodata->descriptor_share = share_of(skeleton_->rodata->descriptor_count, "descriptors", sizes.shares);
    skeleton_->rodata->buffer_count = bpf_map__max_entries(skeleton_->maps.float_buffers);
    skeleton_->rodata->has_queues = sizes.queues;
    skeleton_->rodata->has_quotas = sizes.quotas;
    skeleton_->rodata->has_uplink_quotas = sizes.uplink_quotas;
}

void Loader::pin_new_maps() {
    for (const char *name : state_maps) {
        fs::path path = fs::path(dir_) / name;
        bpf_map *map = bpf_object__find_map_by_name(skeleton_->obj, name);
        if (!pinned(path) && bpf_obj_pin(bpf_map__fd(map), path.c_str()))
            throw Error("{}: {}", path.string(), system_text(errno));
    }
}

int Loader::egress() const { return bpf_program__fd(skeleton_->progs.inagg_egress); }

void need_bpffs(const fs::path &path) {
    struct statfs info {};
    if (statfs(path.c_str(), &info))
        throw Error("{}: {}; --bpffs must lie in a mounted bpf file system", path.string(), system_text(errno));
    if (static_cast<unsigned long>(info.f_type) != BPF_FS_MAGIC)
        throw Error("{} is not a bpf file system: mount -t bpf bpf /sys/fs/bpf, or name another with --bpffs", path.string());
}

void need_free_ports(const std::string &dir, const std::vector<std::string> &ports) {
    for (const std::string &port : ports) {
        uint32_t ifindex = index_of(port), program = 0;
        if (!serves(dir, ifindex) && bpf_xdp_query_id(static_cast<int>(ifindex), 0, &program) == 0 && program)
            throw port_taken(port);
    }
}

void Loader::attach_new(const std::vector<std::string> &ports) {
    for (const std::string &port : ports) // before any of them runs the new program
        open_exit(port, index_of(port));
    std::vector<std::string> attached;
    try {
        for (const std::string &port : ports)
            if (!serves(dir_, index_of(port))) {
                attach(port);
                attached.push_back(port);
            }
    } catch (...) {
        for (const std::string &port : attached)
            detach(port);
        throw;
    }
}

// Frames can leave by this port, whatever ports it is attached to later.
void Loader::open_exit(const std::string &port, uint32_t ifindex) {
    const bpf_devmap_val exit{.ifindex = ifindex, .bpf_prog = {.fd = bpf_program__fd(skeleton_->progs.inagg_egress)}};
    if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.exits), &ifindex, &exit, BPF_ANY))
        throw Error("port {}: cannot redirect to it: {}", port, system_text(errno));
}

uint32_t Loader::attach(const std::string &port) {
    uint32_t ifindex = index_of(port);
    open_exit(port, ifindex);
    std::string pin = port_pin(dir_, port);
    int program = bpf_program__fd(skeleton_->progs.inagg_switch);
    for (const AttachedPort &old : attached_ports(dir_)) {
        if (old.ifindex != ifindex)
            continue;
        if (old.pin != pin) { // the interface had another name
            fs::rename(old.pin, pin);
            unmeter(old.name);
            unspread(old.name);
        }
        Fd link(bpf_obj_get(pin.c_str()));
        if (bpf_link_update(link.get(), program, nullptr) == 0)
            return ifindex;
    }
    unpin(pin); // of a device that has gone
    int link = create_link(program, ifindex, XDP_FLAGS_DRV_MODE);
    if (link < 0 && link != -EBUSY && link != -EPERM) {
        spdlog::warn("port {}: its driver does not take native XDP ({}); generic XDP is slower", port, system_text(link));
        link = create_link(program, ifindex, XDP_FLAGS_SKB_MODE);
    }
    if (link == -EBUSY || link == -EEXIST)
        throw port_taken(port);
    if (link < 0)
        throw Error("port {}: cannot attach XDP: {}", port, system_text(link));
    Fd owner(link);
    if (bpf_obj_pin(link, pin.c_str()))
        throw Error("{}: {}", pin, system_text(errno));
    return ifindex;
}

void Loader::detach(const std::string &port) {
    unmeter(port);
    unspread(port);
    unpin(port_pin(dir_, port));
}

void Loader::meter(const std::string &port, uint32_t ifindex) const {
    constexpr auto tcx_egress = static_cast<bpf_attach_type>(47); // BPF_TCX_EGRESS, Linux 6.6
    if (!link_to_tc(skeleton_->progs.inagg_meter, ifindex, tcx_egress, meter_pin(dir_, port)))
        spdlog::info("port {}: its queue is told from this switch's packets alone: {} (before Linux 6.6)", port,
                     system_text(errno));
}

bool Loader::has_several() const { return bpf_program__fd(skeleton_->progs.inagg_several) >= 0; }

bool Loader::spread(const std::string &port, uint32_t ifindex) const {
    constexpr auto tcx_ingress = static_cast<bpf_attach_type>(46); // BPF_TCX_INGRESS, Linux 6.6
    const bool linked = link_to_tc(skeleton_->progs.inagg_spread, ifindex, tcx_ingress, spread_pin(dir_, port));
    if (!linked)
        spdlog::info("port {}: packets bring one block each: {} (before Linux 6.6)", port, system_text(errno));
    return linked;
}

void Loader::take_several(bool take) const {
    const uint32_t call = INAGG_CALL_SEVERAL;
    const int table = bpf_map__fd(skeleton_->maps.algorithms), program = bpf_program__fd(skeleton_->progs.inagg_several);
    if (!take)
        bpf_map_delete_elem(table, &call); // there may be none
    else if (bpf_map_update_elem(table, &call, &program, BPF_ANY))
        throw Error("algorithms: {}", system_text(errno));
}

void Loader::unspread(const std::string &port) const { unpin(spread_pin(dir_, port)); }

void Loader::unmeter(const std::string &port) const { unpin(meter_pin(dir_, port)); }

void Loader::replace_pin(const char *name, int fd) const {
    fs::path path = fs::path(dir_) / name;
    unpin(path);
    if (bpf_obj_pin(fd, path.c_str()))
        throw Error("{}: {}", path.string(), system_text(errno));
}

void Loader::pin_programs() const {
    for (const char *name : programs)
        replace_pin(name, bpf_program__fd(program_of(skeleton_->obj, name)));
}

void Loader::publish() { replace_pin(algorithms, bpf_map__fd(skeleton_->maps.algorithms)); }

void Loader::remove_all() {
    for (const fs::path &pin : own_pins(dir_))
        unpin(pin);
    if (made_directory_)
        unpin(dir_); // stays if somebody else has pinned there
}

} // namespace inaggd
