// SPDX-License-Identifier: BSD-2-Clause
#include "p4/daemon.hpp"

#include "error.hpp"
#include "links.hpp"
#include "neighbours.hpp"
#include "p4/agent.hpp"
#include "p4/bfrt.hpp"
#include "p4/bmv2.hpp"
#include "p4/cpu_port.hpp"
#include "service.hpp"
#include "shares.hpp"

#include <net/if.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <memory>
#include <optional>

namespace inaggd::p4 {
namespace {

constexpr uint16_t last_port = 510;         // 511 is where BMv2 drops frames, and none of Tofino's
constexpr uint16_t ports_of_pipeline = 128; // Tofino: numbers, used or not

struct NamedPort {
    std::string name;
    uint16_t number;
};

// "INTERFACE=NUMBER"
NamedPort parse_port(const char *option, const std::string &text, uint16_t least = 1) {
    const size_t equals = text.find('=');
    NamedPort port{.name = text.substr(0, equals), .number = 0};
    const char *end = text.data() + text.size();
    if (equals != std::string::npos) {
        const auto [rest, error] = std::from_chars(text.data() + equals + 1, end, port.number);
        if (error == std::errc() && rest == end && port.number >= least && port.number <= last_port && !port.name.empty())
            return port;
    }
    throw Error("{} {}: write it as INTERFACE=NUMBER, with the number from {} to {} that the switch knows the port by "
                "(simple_switch's option -i NUMBER@INTERFACE; D_P in the ports of bf_switchd's pm)",
                option, text, least, last_port);
}

// As many as the program has, or fewer if asked for.
uint32_t slots_of(const Program &program, const Options &o) {
    if (o.slots > program.slots)
        throw Error("--slots {}: the P4 program has {}; compile it with more (docs/P4.md, docs/P4-tofino.md)", o.slots,
                    program.slots);
    return o.slots ? o.slots : program.slots;
}

// What the options come to. Everything that can be wrong with them shows here, before anything changes.
struct Plan {
    explicit Plan(const Options &o) : cpu(parse_port("--cpu-port", o.cpu_port, o.bmv2 ? 1 : 0)) {
        find_ports(o);
        Settings &settings = around.settings;
        if (!if_nametoindex(cpu.name.c_str()))
            throw Error("--cpu-port {}: no such interface (ip link)", o.cpu_port);
        settings.mac = mac_of(cpu.name);
        settings.cpu_port = cpu.number;
        settings.address4 = own_address(o, 4, {cpu.name});
        settings.address6 = own_address(o, 6, {cpu.name});
        settings.boot = random_boot();
        if (!settings.address4.family && !settings.address6.family)
            throw Error("no address on {}: give the switch one (ip addr add ADDRESS/LEN dev {}), or name it "
                        "with --address4 or "
                        "--address6",
                        cpu.name, cpu.name);
        for (const std::string &job : o.jobs)
            jobs.push_back(parse_job_spec(job));
        for (const std::string &path : o.key_files)
            keys.read(path);
        for (const JobSpec &job : jobs)
            key_of(job);
        const std::map<std::string, uint32_t> ports(around.ports.begin(), around.ports.end());
        for (const std::string &child : o.children)
            children.insert(other_switch("--child", child, ports, settings.address4, settings.address6));
        for (const std::string &parent : o.parents)
            parents.push_back(other_switch("--parent", parent, ports, settings.address4, settings.address6));
        settings.has_parent = !parents.empty();
    }

    void find_ports(const Options &o) {
        std::map<uint16_t, std::string> taken = {{cpu.number, cpu.name}};
        for (const std::string &text : o.ports) {
            const NamedPort port = parse_port("--port", text);
            const auto [other, is_free] = taken.emplace(port.number, port.name);
            if (!is_free)
                throw Error("--port {}: {} is port {} already", text, other->second, port.number);
            if (!around.ports.emplace(port.name, port.number).second)
                throw Error("--port {}: {} has a number already, {}", text, port.name, around.ports.at(port.name));
            interfaces.push_back(port.name);
        }
        if (!o.tofino.empty())
            need_one_pipeline();
    }

    // Each has slots of its own.
    void need_one_pipeline() const {
        const auto &[first, number] = *around.ports.begin();
        for (const auto &[name, other] : around.ports)
            if (other / ports_of_pipeline != number / ports_of_pipeline)
                throw Error("--port {}={}: of pipeline {}, and {}={} is of {}; serve ports of one, since "
                            "each adds what comes by its own",
                            name, other, other / ports_of_pipeline, first, number, number / ports_of_pipeline);
    }

    Policy policy(const Options &o, const Program &program) const {
        const uint32_t slots = slots_of(program, o);
        return {.slots = slots,
                .floors = slots,
                .job_slots = o.job_slots.value_or(Policy{}.job_slots),
                .job_control = o.control_slots,
                .auto_jobs = !o.no_auto_jobs,
                .mtu = o.bmv2 ? smallest_mtu(interfaces) : Policy{}.mtu,
                .idle = std::chrono::seconds(o.idle_seconds),
                .join = std::chrono::seconds(o.join_seconds),
                .port_forming = o.port_forming,
                .port_jobs = o.port_jobs,
                .shares = o.shares,
                .parents = parents,
                .children = children,
                .limits = program.limits};
    }

    NamedPort cpu;
    Surroundings around{};
    std::vector<std::string> interfaces{}; // without the CPU port's; with Tofino only names
    std::vector<JobSpec> jobs{};
    Keys keys{};
    std::vector<Neighbour> parents{};
    std::set<Neighbour> children{};
};

std::unique_ptr<Tables> connect(const Options &o) {
    if (o.bmv2)
        return std::make_unique<Bmv2>(*o.bmv2);
    return std::make_unique<BfRuntime>(o.tofino);
}

// Who is above and below a switch with this program?
void need_possible(const Policy &policy) {
    const uint8_t algorithm = *policy.limits.algorithm;
    if (policy.has_parent() && (algorithm == INAGG_TRIO || algorithm == INAGG_CANARY))
        throw Error("--parent: {} in a P4 switch has nobody above it; leave the option out", algorithm_name(algorithm));
    if (!policy.has_parent() && algorithm == INAGG_ATP)
        throw Error("atp in a P4 switch needs a server behind it: start inagg-ps there, and name it with "
                    "--parent PORT/ADDRESS");
    const bool has_another_above = policy.has_parent() && algorithm != INAGG_ATP;
    if (!policy.limits.trees && (has_another_above || !policy.children.empty()))
        throw Error("{}: {} here is a switch of its own; leave the option out", has_another_above ? "--parent" : "--child",
                    algorithm_name(algorithm));
}

// What jobs share. Throws Error.
void divide(Settings &settings, const Program &program, uint32_t shares) {
    settings.shared_slots = program.shared_slots;
    if (program.limits.algorithm != INAGG_TRIO) // whose jobs have so many blocks each
        settings.share = share_of(settings.shared_slots, "places in the P4 program", shares);
}

class Daemon {
public:
    Daemon(const Options &options, std::vector<std::string> arguments)
        : o_(options), plan_(o_), service_(o_, std::move(arguments)), cpu_(plan_.cpu.name) {
        tables_ = connect(o_);
        const Program program = tables_->program();
        const Policy policy = plan_.policy(o_, program);
        need_possible(policy);
        divide(plan_.around.settings, program, o_.shares);
        P4Agent::try_jobs(policy, plan_.around, plan_.jobs);
        agent_.emplace(
            *tables_, policy, plan_.around, [this](std::span<const uint8_t> frame) { cpu_.send(frame); }, plan_.keys);
        const Settings &settings = plan_.around.settings;
        inagg::set_log_field({"switch", (settings.address4.family ? settings.address4 : settings.address6).text()});
        agent_->start(plan_.jobs);
        service_.listen({.add_job = [this](const JobSpec &spec) { agent_->add_job(spec); },
                         .remove_job = [this](uint16_t number) { agent_->remove_job(number); },
                         .read =
                             [this](const std::string &what, const nlohmann::json &job) {
                                 return agent_->read(what, job.is_null() ? std::nullopt : std::optional<uint16_t>(job));
                             },
                         .metrics = [this] { return metrics_of(agent_->book(), agent_->metrics_rows()); },
                         .refusals = [this] { return agent_->refusals().rows(Clock::now()); }});
        look_at_links();
        spdlog::info("{}: {}, switch {} {} port {}, boot id {:#06x}, {} ports", program.name,
                     algorithm_name(*program.limits.algorithm), settings.address4.text(), settings.address6.text(), INAGG_PORT,
                     settings.boot, plan_.around.ports.size());
        service_.announce();
    }

    void run() {
        Time next_poll = Clock::now(), tended = next_poll, ticked = next_poll;
        while (service_.goes_on()) {
            std::vector<pollfd> fds = {{.fd = cpu_.fd(), .events = POLLIN, .revents = 0},
                                       {.fd = links_.fd(), .events = POLLIN, .revents = 0}};
            service_.add_to(fds);
            std::chrono::milliseconds wait = std::min<std::chrono::milliseconds>(activity_interval, agent_->tend_interval());
            if (const auto clock = agent_->clock_interval()) {
                wait = std::min(wait, *clock);
                if (Clock::now() >= ticked + *clock) {
                    agent_->clock();
                    ticked = Clock::now();
                }
            }
            poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
            cpu_.read([this](std::span<const uint8_t> frame) { agent_->frame(frame); });
            if (fds[1].revents)
                read_links();
            service_.serve(fds);
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
        if (!o_.keep)
            agent_->end_jobs();
        if (service_.reloads()) {
            tables_.reset(); // its process would outlive this program
            service_.execute_again();
        }
    }

private:
    void read_links() {
        links_.read([this](bool gone, uint32_t, const std::string &name) {
            const auto port = plan_.around.ports.find(name);
            if (!gone || !o_.bmv2 || port == plan_.around.ports.end()) // a Tofino's ports are no interfaces
                return;
            const inagg::LogFields about{{"port", name}};
            spdlog::warn("port {}: the interface has gone; its ranks are forgotten", name);
            agent_->port_gone(port->second);
        });
        if (o_.bmv2)
            look_at_links();
    }

    // As they are, whatever has been told of them: messages of the kernel's may be lost.
    void look_at_links() {
        for (const auto &[number, up] : tables_->links(plan_.around.ports))
            agent_->link(number, up);
    }

    Options o_;
    Plan plan_;
    Service service_;
    CpuPort cpu_;
    LinkWatch links_;
    std::unique_ptr<Tables> tables_; // its process is started with the signals blocked that end this process: it ends later
    std::optional<P4Agent> agent_;
};

} // namespace

void run(const Options &options, std::vector<std::string> arguments) { Daemon(options, std::move(arguments)).run(); }

void check_start(const Options &options) {
    Plan plan(options);
    need_own_addresses(options);
    need_run_dir(options);
    const Program program = connect(options)->program();
    const Policy policy = plan.policy(options, program);
    need_possible(policy);
    divide(plan.around.settings, program, options.shares);
    P4Agent::try_jobs(policy, plan.around, plan.jobs);
}

} // namespace inaggd::p4
