// SPDX-License-Identifier: BSD-2-Clause
// Our switch: an application on a leaf or a spine. What is not for it goes on; for each job it has a role.
#pragma once

#include "job.hpp"

#include <inagg/core/aggregator.h>
#include <inagg/core/descriptor.h>
#include <inagg/core/record.h>

#include <map>

namespace sim {

class Switch;

class Role {
public:
    Role(Switch &place, const Job &job) : switch_(place), job_(job) {}
    virtual ~Role() = default;
    virtual void receive(const Envelope &envelope, Message message) = 0;

protected:
    // What the job admits, or else the run fails: everybody here is honest.
    inagg_block admit(const Message &message) const;

    Switch &switch_;
    const Job &job_;
};

// A block's sum in the table that all jobs of canary share.
struct Descriptor {
    inagg_descriptor state{};
    Elements sum{};
    uint32_t ups = 0; // as state.ups, for as many spines as there are here
};

// atp: likewise, in a table of its own.
struct Aggregator {
    inagg_aggregator state{};
    Elements sum{};
};

// trio: of all jobs; in buckets, a power of two.
struct Records {
    std::vector<inagg_record> states;
    std::vector<Elements> sums;
    std::vector<Message> causes; // whose headers results have
    void resize(size_t count) { states.resize(count), sums.resize(count), causes.resize(count); }
};

class Switch : public Station {
public:
    using Station::Station;

    void receive(const ns3::Ptr<ns3::Packet> &packet, const Held &room) override;
    void add_role(uint16_t job, std::unique_ptr<Role> role) { roles_[job] = std::move(role); }
    void set_descriptors(uint32_t count) { descriptors_.resize(count); }
    void set_aggregators(uint32_t count) { aggregators_.resize(count); }
    void set_records(uint32_t count) { records_.resize(count); }
    void set_buffers(uint32_t count) { all_buffers_ = free_buffers_ = count; }

    Network &network() { return network_; }
    std::vector<Descriptor> &descriptors() { return descriptors_; }
    std::vector<Aggregator> &aggregators() { return aggregators_; }
    Records &records() { return records_; }
    // panama: buffers for sums that wait, which its jobs share.
    uint32_t buffers() const { return all_buffers_; }
    uint32_t &free_buffers() { return free_buffers_; }
    uint32_t &panama_jobs() { return panama_jobs_; }
    // Descriptors hold so many blocks more, or fewer; how many they hold.
    uint32_t holds(int more) { return held_ += static_cast<uint32_t>(more); }
    // To a neighbour, or to a host behind one.
    void send_to(uint32_t node, const Message &message, uint16_t asker = anyone);
    void send_through(uint32_t port, uint32_t node, const Message &message);

private:
    std::map<uint16_t, std::unique_ptr<Role>> roles_;
    std::vector<Descriptor> descriptors_;
    std::vector<Aggregator> aggregators_;
    Records records_;
    uint32_t all_buffers_ = 0, free_buffers_ = 0, panama_jobs_ = 0;
    uint32_t held_ = 0;
    Held room_; // of the packet that is being looked at: what is sent because of it lies where it lay
};

struct TreeSite {
    std::vector<uint32_t> children; // nodes; a child's number is its rank at this switch
    std::optional<uint32_t> parent; // node
    uint32_t number = 0;            // this switch's, among its parent's children
};
std::unique_ptr<Role> make_tree_role(Switch &place, const Job &job, const TreeSite &site, Counters &counters);
// Where a switch stands whose packets name ranks.
struct Site {
    struct Child {
        uint32_t node;  // a host, or a switch below
        uint64_t ranks; // behind it
    };
    std::vector<Child> children;
    std::optional<uint32_t> parent; // node: a switch, or atp's server
    uint64_t ranks() const;
};
std::unique_ptr<Role> make_atp_role(Switch &place, const Job &job, const Site &site, Counters &counters);
struct TrioPolicy {
    uint64_t expiry_ns = 0; // 0: blocks wait for all ranks
    uint16_t sweeps = 1;    // in an expiry
    uint32_t threads = 100; // that share the table and take turns in each sweep
};
std::unique_ptr<Role> make_trio_role(Switch &place, const Job &job, const Site &site, const TrioPolicy &policy,
                                     Counters &counters);
std::unique_ptr<Role> make_canary_role(Switch &place, const Job &job, Counters &counters);

} // namespace sim
