// SPDX-License-Identifier: BSD-2-Clause
// inaggd: the agent of a switch. Creates and removes jobs, decides joins. Packets do not need it: they go on while it is
// away. Here: of an XDP switch, which it loads and attaches; p4/daemon.cpp: of a P4 switch.
#include "agent.hpp"
#include "common/capabilities.hpp"
#include "common/units.hpp"
#include "daemon_options.hpp"
#include "different.hpp"
#include "error.hpp"
#include "links.hpp"
#include "loader.hpp"
#include "neighbours.hpp"
#include "p4/daemon.hpp"
#include "ring.hpp"
#include "service.hpp"
#include "shares.hpp"

#include <inagg/core/queue.h>

#include <CLI/CLI.hpp>
#include <bpf/libbpf.h>
#include <fmt/ranges.h>
#include <net/if.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <linux/capability.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>

namespace inaggd {
namespace {

// What the options come to. Everything that can be wrong with them shows here, before anything changes.
struct Plan {
    explicit Plan(const Options &o)
        : four(own_address(o, 4, o.ports)), six(own_address(o, 6, o.ports)), mtu(smallest_mtu(o.ports)) {
        if (!four.family && !six.family)
            throw Error("no address on {} or its bridge: give the switch one (ip addr add ADDRESS/LEN dev IF), or "
                        "name it with --address4 or --address6",
                        fmt::join(o.ports, ", "));
        need_different("--port", o.ports);
        need_different("--parent", o.parents);
        need_different("--child", o.children);
        need_free_ports(o.bpffs, o.ports);
        for (const std::string &job : o.jobs)
            jobs.push_back(parse_job_spec(job));
        for (const std::string &path : o.key_files)
            keys.read(path);
        for (const JobSpec &job : jobs)
            key_of(job);
        for (const std::string &rate : o.port_rates)
            add_queue(rate, o);
        // A window sent at once must fit, and is sent again soon if the job uses its rate to the full.
        quota = quota_of("--job-rate", o.job_rate, std::chrono::milliseconds(100));
        // What goes on is slowed down by marks, and others wait for it.
        uplink_quota = quota_of("--job-uplink-rate", o.job_uplink_rate, std::chrono::milliseconds(10));
        find_neighbours(o);
    }

    // By the ports as they are now; `gone`: what those that are not there had.
    void find_neighbours(const Options &o, const std::map<std::string, uint32_t> &gone = {}) {
        parents.clear();
        children.clear();
        std::map<std::string, uint32_t> ports;
        for (const std::string &port : o.ports)
            ports[port] = gone.contains(port) ? gone.at(port) : if_nametoindex(port.c_str());
        for (const std::string &parent : o.parents)
            parents.push_back(other_switch("--parent", parent, ports, four, six));
        for (const std::string &child : o.children)
            children.insert(other_switch("--child", child, ports, four, six));
        for (const Neighbour &parent : parents)
            if (children.contains(parent))
                throw Error("{}: --parent and --child; it can be one of them", parent.address.text());
    }

    // `burst`: so long at this rate is what may be sent at once.
    static std::optional<inagg_queue> quota_of(const std::string &option, const std::string &rate,
                                               std::chrono::nanoseconds burst) {
        if (rate.empty())
            return std::nullopt;
        inagg_queue quota{};
        quota.unit_ns = inagg_queue_unit(rate_of(option, rate, rate));
        quota.mark_ns = static_cast<uint32_t>(burst.count());
        return quota;
    }

    static inagg::Nanoseconds duration(const char *option, const std::string &text) {
        try {
            return inagg::parse_duration(text);
        } catch (const std::invalid_argument &error) {
            throw Error("{} {}: {}", option, text, error.what());
        }
    }

    // Bits a second, of the rate in the option's text.
    static uint64_t rate_of(const std::string &option, const std::string &text, const std::string &rate) {
        try {
            return inagg::parse_rate(rate);
        } catch (const std::invalid_argument &error) {
            throw Error("{} {}: {}", option, text, error.what());
        }
    }

    // What is longer than `mark`; the core knows what is usual.
    static uint64_t queue_limit(const std::string &text, inagg::Nanoseconds mark, const std::string &port) {
        if (text.empty())
            return 0;
        const inagg::Nanoseconds longest = duration("--queue-limit", text);
        if (longest < mark || longest > std::chrono::seconds(10))
            throw Error("--queue-limit {}: it must be {:.6g}ms, from where on queues at {} are too long (--mark-after), to 10s",
                        text, static_cast<double>(mark.count()) / 1e6, port);
        return static_cast<uint64_t>(longest.count());
    }

    // If nobody says: ten frames, for a few that meet are no congestion, and on fast links a millisecond.
    inagg::Nanoseconds long_queue(uint32_t unit_ns) const {
        const uint64_t ten_frames = uint64_t{10} * mtu * unit_ns >> INAGG_QUEUE_SHIFT;
        return std::chrono::nanoseconds(std::clamp<uint64_t>(ten_frames, 1'000'000, 1'000'000'000));
    }

    // "PORT=RATE"
    void add_queue(const std::string &text, const Options &o) {
        const size_t equals = text.find('=');
        const std::string port = text.substr(0, equals);
        if (equals == std::string::npos || std::find(o.ports.begin(), o.ports.end(), port) == o.ports.end())
            throw Error("--port-rate {}: write it as PORT=RATE, with one of {}", text, fmt::join(o.ports, ", "));
        if (queues.contains(port))
            throw Error("--port-rate {}: {} has a rate already", text, port);
        const uint64_t rate = rate_of("--port-rate", text, text.substr(equals + 1));
        inagg_queue queue{};
        queue.unit_ns = inagg_queue_unit(rate);
        const inagg::Nanoseconds mark = o.mark_after.empty() ? long_queue(queue.unit_ns) : duration("--mark-after", o.mark_after);
        if (mark.count() < 1000 || mark > std::chrono::seconds(1))
            throw Error("--mark-after {}: it must be 1us to 1s", o.mark_after);
        queue.mark_ns = static_cast<uint32_t>(mark.count());
        queue.longest_ns = queue_limit(o.queue_limit, mark, port);
        queues[port] = queue;
        slowest_link = slowest_link ? std::min(slowest_link, rate) : rate;
    }

    Address four, six;
    uint32_t mtu;
    std::vector<JobSpec> jobs;
    Keys keys{};
    std::vector<Neighbour> parents{};
    std::set<Neighbour> children{};
    std::map<std::string, inagg_queue> queues{}; // by port
    uint64_t slowest_link = 0;                   // of them, bits a second
    std::optional<inagg_queue> quota{};          // of each job
    std::optional<inagg_queue> uplink_quota{};   // of each job, to all switches above
};

Policy policy_of(const Options &o, const Plan &plan, uint32_t slots, uint32_t buffers) {
    return {.slots = slots,
            .buffers = buffers,
            .floors = INAGG_DEFAULT_FLOORS,
            .job_slots = o.job_slots.value_or(Policy{}.job_slots),
            .fits_links = !o.job_slots,
            .slowest_link = plan.slowest_link,
            .job_control = o.control_slots,
            .auto_jobs = !o.no_auto_jobs,
            .mtu = plan.mtu,
            .several = plan.mtu > largest_single_mtu,
            .idle = std::chrono::seconds(o.idle_seconds),
            .join = std::chrono::seconds(o.join_seconds),
            .port_forming = o.port_forming,
            .port_jobs = o.port_jobs,
            .shares = o.shares,
            .parents = plan.parents,
            .children = plan.children,
            .up_policy = o.up_policy,
            .timeout_us = o.canary_timeout_us};
}

// Jobs that are here have their keys.
void need_same_keys(const SwitchMaps &maps, const std::vector<JobSpec> &specs) {
    const auto jobs = maps.jobs();
    for (const JobSpec &spec : specs)
        if (const auto job = jobs.find(spec.number); job != jobs.end())
            if (const auto key = key_of(spec))
                Gate::need_same(spec.number, *key, maps.key(job->second.index));
}

// Throws what a start with these options would end with.
void check_start(const Options &o) {
    need_run_dir(o);
    need_bpffs(std::filesystem::path(o.bpffs).parent_path());
    Plan plan(o);
    need_own_addresses(o);
    for (const Address &address : {plan.four, plan.six})
        if (address.family)
            reply_socket(address, true);
    JobBook book(policy_of(o, plan, o.slots, o.buffers), [] { return uint16_t{0}; });
    uint32_t aggregators = o.aggregators, descriptors = o.descriptors;
    if (std::filesystem::exists(o.bpffs + "/jobs") && !o.fresh) {
        need_compatible_pins(o.bpffs);
        SwitchMaps maps = SwitchMaps::open(o.bpffs);
        book.policy().slots = maps.slot_count();
        book.policy().buffers = maps.buffer_count();
        aggregators = maps.aggregator_count();
        descriptors = maps.descriptor_count();
        restore_jobs(book, maps);
        need_same_keys(maps, plan.jobs);
    }
    share_of(aggregators, "aggregators", o.shares);
    share_of(descriptors, "descriptors", o.shares);
    try_jobs(book, plan.jobs);
}

class Daemon {
public:
    Daemon(const Options &options, std::vector<std::string> arguments)
        : o_(options), plan_(o_), service_(o_, std::move(arguments)), loader_(o_.bpffs,
                                                                              {.slots = o_.slots,
                                                                               .buckets = o_.buckets,
                                                                               .aggregators = o_.aggregators,
                                                                               .buffers = o_.buffers,
                                                                               .descriptors = o_.descriptors,
                                                                               .shares = o_.shares,
                                                                               .queues = !plan_.queues.empty(),
                                                                               .quotas = plan_.quota.has_value(),
                                                                               .uplink_quotas = plan_.uplink_quota.has_value(),
                                                                               .several = plan_.mtu > largest_single_mtu},
                                                                              o_.fresh) {}

    void start() {
        SwitchMaps maps = SwitchMaps::open(o_.bpffs);
        Policy policy = policy_of(o_, plan_, maps.slot_count(), maps.buffer_count());
        inagg_switch_settings settings = settings_for(maps);
        agent_ = std::make_unique<Agent>(
            std::move(maps), loader_.egress(), [this](const inagg_job &job) { loader_.provide(job); }, policy, settings,
            Sweeping{
                .bpffs = o_.bpffs, .mac = mac_of(o_.ports.front()), .sweepers = o_.sweepers, .per_expiry = o_.sweeps_per_expiry},
            plan_.keys);
        need_same_keys(agent_->maps(), plan_.jobs);
        try_jobs(agent_->book(), plan_.jobs);
        events_.reset(ring_buffer__new(agent_->maps().events(), on_event, this, nullptr));
        if (!events_)
            throw Error("events: {}", system_text(errno));
        service_.listen({.add_job = [this](const JobSpec &spec) { agent_->add_job(spec); },
                         .remove_job = [this](uint16_t number) { agent_->remove_job(number); },
                         .metrics = [this] { return metrics_of(agent_->book(), agent_->metrics_rows()); },
                         .refusals = [this] { return agent_->refusals().rows(Clock::now()); }});
        loader_.attach_new(o_.ports);
        take_over(settings);
    }

    void announce() const { service_.announce(); }

    // Until a signal ends it, or asks for a reload.
    void run() {
        Time next_poll = Clock::now(), next_watch = next_poll, tended = next_poll;
        consume_events(); // what came before: the kernel wakes nobody who is behind
        while (service_.goes_on()) {
            std::vector<pollfd> fds = {{.fd = links_.fd(), .events = POLLIN, .revents = 0},
                                       {.fd = ring_buffer__epoll_fd(events_.get()), .events = POLLIN, .revents = 0}};
            service_.add_to(fds);
            poll(fds.data(), fds.size(),
                 static_cast<int>(std::min({activity_interval, agent_->watch_interval(), agent_->tend_interval()}).count()));
            if (fds[0].revents) {
                links_.read([this](bool gone, uint32_t ifindex, const std::string &name) { link(gone, ifindex, name); });
                look_at_links();
            }
            consume_events();
            service_.serve(fds);
            if (Clock::now() >= next_watch) {
                agent_->watch();
                next_watch = Clock::now() + agent_->watch_interval();
            }
            if (Clock::now() >= tended + agent_->tend_interval()) {
                agent_->tend();
                tended = Clock::now();
            }
            if (Clock::now() >= next_poll) {
                look_at_links();
                agent_->poll_activity();
                next_poll = Clock::now() + activity_interval;
            }
        }
        if (service_.reloads())
            service_.execute_again();
    }

    ~Daemon() {
        if (service_.stops() && o_.keep)
            spdlog::info("the switch goes on without an agent; pins are in {}", o_.bpffs);
        else if (service_.stops() || !agent_started())
            loader_.remove_all();
    }

private:
    // Changes a switch that runs, after everything that may fail.
    void take_over(const inagg_switch_settings &settings) {
        inagg::set_log_field({"switch", (plan_.four.family ? plan_.four : plan_.six).text()});
        agent_->maps().set_settings(settings);
        if (plan_.quota)
            agent_->maps().put_quotas(*plan_.quota);
        if (plan_.uplink_quota)
            agent_->maps().put_uplink_quotas(*plan_.uplink_quota);
        spdlog::info("switch {} {} port {}, boot id {:#06x}", plan_.four.text(), plan_.six.text(), INAGG_PORT, settings.boot);
        agent_->take_over();
        agent_->maps().forget_arrivals(); // of interfaces that may be no more
        for (const std::string &port : o_.ports)
            attach(port);
        follow_mtu();
        loader_.publish();
        for (const AttachedPort &old : attached_ports(o_.bpffs))
            if (std::find(o_.ports.begin(), o_.ports.end(), old.name) == o_.ports.end()) {
                spdlog::info("port {}: no longer configured, detached", old.name);
                loader_.detach(old.name);
            }
        std::set<uint32_t> present;
        for (const auto &[ifindex, port] : attached_)
            present.insert(ifindex);
        agent_->keep_ports(present);
        look_at_links();
        for (const JobSpec &job : plan_.jobs)
            agent_->add_job(job);
        started_ = true;
    }

    // A first start that fails leaves nothing; one that found a running switch leaves it as it was.
    bool agent_started() const { return started_ || loader_.resumed(); }

    // As many as there are, for a while: those that come faster than they can be served must not keep the agent from all else.
    void consume_events() {
        events_end_ = Clock::now() + std::chrono::milliseconds(20);
        ring_buffer__consume(events_.get());
        if (std::exchange(failed_, false))
            agent_->take_over();
    }

    // Not 0 ends ring_buffer__consume(), behind this event.
    static int on_event(void *context, void *data, size_t bytes) {
        Daemon &self = *static_cast<Daemon *>(context);
        try {
            self.agent_->event(data, bytes);
        } catch (const std::exception &error) {
            spdlog::error("event: {}", error.what());
            self.failed_ = true; // behind libbpf's frames: taking over may fail, too
            return -EAGAIN;
        }
        return Clock::now() < self.events_end_ ? 0 : -EAGAIN;
    }

    inagg_switch_settings settings_for(const SwitchMaps &maps) const {
        inagg_switch_settings settings = maps.settings();
        std::memcpy(&settings.address4, plan_.four.bytes.data(), 4);
        std::memcpy(settings.address6, plan_.six.bytes.data(), 16);
        settings.flags = !plan_.parents.empty() ? INAGG_SWITCH_HAS_PARENT : 0;
        if (!settings.boot) // kept slots keep their boot id
            settings.boot = random_boot();
        return settings;
    }

    // Whatever interface has that name now.
    bool is_up(const std::string &port) const {
        return std::ranges::any_of(o_.parents, [&](const std::string &parent) { return parent.starts_with(port + "/"); });
    }

    uint32_t attach(const std::string &port) {
        uint32_t ifindex = loader_.attach(port);
        attached_[ifindex] = port;
        if (const auto queue = plan_.queues.find(port); queue != plan_.queues.end()) {
            agent_->maps().put_queue(ifindex, queue->second, is_up(port));
            loader_.meter(port, ifindex);
        } else {
            agent_->maps().delete_queue(ifindex);
            loader_.unmeter(port);
        }
        const inagg::LogFields about{{"port", port}};
        spdlog::info("port {}: attached, MTU {}", port, mtu_of(port));
        return ifindex;
    }

    // Does tc send the results of packets with several blocks, whichever port they come by? Else XDP takes none.
    bool takes_several() {
        const bool takes = loader_.has_several() && std::ranges::all_of(attached_, [this](const auto &port) {
                               return loader_.spread(port.second, port.first);
                           });
        loader_.take_several(takes);
        for (const auto &[ifindex, port] : attached_)
            if (!takes)
                loader_.unspread(port);
        return takes;
    }

    // Packets of new jobs pass all ports that there are.
    void follow_mtu() {
        std::vector<std::string> ports;
        for (const auto &[ifindex, port] : attached_)
            ports.push_back(port);
        try {
            if (ports.empty())
                return;
            agent_->book().policy().mtu = smallest_mtu(ports);
            agent_->book().policy().several = takes_several();
        } catch (const Error &) {
            // one is just going; its own message follows
        }
    }

    void link(bool gone, uint32_t ifindex, const std::string &name) {
        auto port = attached_.find(ifindex);
        if (gone && port != attached_.end()) {
            const inagg::LogFields about{{"port", port->second}};
            spdlog::warn("port {}: the interface has gone; its ranks are forgotten", port->second);
            loader_.detach(port->second);
            gone_[port->second] = ifindex;
            attached_.erase(port);
            agent_->maps().delete_queue(ifindex);
            agent_->port_gone(ifindex);
        } else if (!gone && port == attached_.end() && std::find(o_.ports.begin(), o_.ports.end(), name) != o_.ports.end()) {
            try {
                const uint32_t now = attach(name);
                if (const auto before = gone_.extract(name))
                    agent_->port_made_anew(before.mapped(), now);
                follow_mtu();
                plan_.find_neighbours(o_, gone_);
                agent_->book().policy().parents = plan_.parents;
                agent_->book().policy().children = plan_.children;
            } catch (const std::exception &error) {
                spdlog::error("{}", error.what());
                refused_[name] = ifindex;
            }
        } else if (!gone && port != attached_.end()) {
            follow_mtu();
        }
    }

    // As they are, whatever has been told of them: messages of the kernel's may be lost.
    void look_at_links() {
        for (const std::string &port : o_.ports) {
            const auto known = std::ranges::find(attached_, port, &std::pair<const uint32_t, std::string>::second);
            const uint32_t now = if_nametoindex(port.c_str());
            if (known != attached_.end() && known->first != now)
                link(true, known->first, port);
            if (now && !attached_.contains(now) && refused_[port] != now)
                link(false, now, port);
        }
        for (const auto &[ifindex, port] : attached_)
            agent_->link(ifindex, has_link(port));
    }

    Options o_;
    Plan plan_;
    Service service_;
    LinkWatch links_;
    Loader loader_;
    std::unique_ptr<Agent> agent_;
    Ring events_;
    Time events_end_{};                        // when others come first
    bool failed_ = false;                      // to do what an event asked for: the book may know more than the maps
    std::map<uint32_t, std::string> attached_; // by ifindex
    std::map<std::string, uint32_t> gone_;     // what the ports had that are to come back
    std::map<std::string, uint32_t> refused_;  // what could not be attached: not tried again until something is told of it
    bool started_ = false;
};

// Programs and maps; ports, devmaps and live frames; programs that compare pointers; the sweeping thread's priority. As root the
// files under bpffs are its own.
void give_up_privileges(const Options &options) {
    if (options.is_p4()) // a packet socket at the CPU port; the switch is asked over TCP
        inagg::keep_capabilities({CAP_NET_RAW, CAP_NET_ADMIN});
    else
        inagg::keep_capabilities({CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_NICE});
}

void run_xdp(const Options &options, std::vector<std::string> arguments) {
    if (!inagg::has_capabilities({CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON}))
        throw Error("a switch needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: run as root");
    Daemon daemon(options, std::move(arguments));
    daemon.start();
    daemon.announce();
    daemon.run();
}

} // namespace
} // namespace inaggd

int main(int argc, char **argv) {
    using namespace inaggd;
    signal(SIGPIPE, SIG_IGN); // who reads the log may go
    Options options;
    CLI::App app("The agent of an inagg switch: XDP programs, or a P4 program in BMv2 or a Tofino");
    describe(app, options);
    try {
        app.parse(argc, argv);
        check_options(app, options);
    } catch (const CLI::ParseError &error) {
        return app.exit(error);
    }
    inagg::start_log("inaggd", options.log_format, options.verbose ? spdlog::level::debug : spdlog::level::info);
    if (options.check)
        spdlog::set_pattern("%v"); // for inaggctl reload to show
    try {
        const std::vector<std::string> arguments(argv, argv + argc);
        give_up_privileges(options);
        if (options.check)
            options.is_p4() ? p4::check_start(options) : check_start(options);
        else
            options.is_p4() ? p4::run(options, arguments) : run_xdp(options, arguments);
        return 0;
    } catch (const std::exception &error) {
        spdlog::error("{}", error.what());
        return 1;
    }
}
