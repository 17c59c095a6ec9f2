// SPDX-License-Identifier: BSD-2-Clause
// Who may join what: the agent's decisions, without any I/O.
#pragma once

#include "job_spec.hpp"
#include "maps.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace inaggd {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

// Another switch of a tree, and the port that leads to it: whoever has its address elsewhere is somebody else.
struct Neighbour {
    uint32_t port = 0; // ifindex
    Address address{};

    auto operator<=>(const Neighbour &) const = default;
};

Neighbour neighbour_of(const inagg_event &event);

// What the switch's own hardware or program leaves out; nothing, if it is an XDP switch.
struct Limits {
    std::optional<uint8_t> algorithm{};     // the only one
    uint16_t elements = INAGG_MAX_ELEMENTS; // per packet
    uint16_t ranks = INAGG_MAX_RANKS;       // of a job
    bool adds_halves = true;                // else 16-bit floats travel as fixed point
    bool adds_floats = true;                // else all floats do, with panama, too
    bool big_endian = false;                // elements are in network byte order
    bool checks_payloads = true;
    bool excludes = true;     // ranks that are silent, with trio, or tells of them
    bool trees = true;        // adds what switches below have added, and has some above
    bool lists_slots = false; // canary: so that all jobs together have at most those of the switch
};

struct Policy {
    uint32_t slots = INAGG_DEFAULT_SLOTS;     // of the switch
    uint32_t buffers = INAGG_DEFAULT_BUFFERS; // likewise, of floats that wait
    uint32_t floors = INAGG_DEFAULT_FLOORS;   // likewise: slots of jobs whose blocks have records instead
    uint32_t job_slots = 128;                 // of a job that names no number
    bool fits_links = true;                   // of one without congestion control no more than links are known to carry
    uint64_t slowest_link = 0;                // of those whose rates are known, bits a second; 0: there are none
    uint32_t job_control = 8;
    bool auto_jobs = true; // the first rank's JOIN creates its job
    uint32_t mtu = 1500;   // smallest of all ports
    bool several = false;  // blocks may come in a packet
    std::chrono::seconds idle{600};
    std::chrono::seconds join{60};    // for the next rank of a job that was not configured
    uint32_t port_forming = 4;        // such jobs that wait for ranks, per port; at a server per host, likewise:
    uint32_t port_jobs = 8;           // such jobs all of whose ranks are behind one port
    uint32_t shares = 1;              // of the aggregators and descriptors: a job has that of its row
    std::vector<Neighbour> parents{}; // switches that sum what this one has summed, each the jobs of its turn; none: a root
    std::set<Neighbour> children{};   // switches that may join for the ranks behind them
    inagg_up_policy up_policy = INAGG_UP_DEFAULT; // of canary: by which of them a sum goes up
    uint32_t timeout_us = 0;                      // likewise: how long a sum waits for more; 0: adapts itself
    Limits limits{};
    bool server = false; // inagg-ps: the root of a tree, without ports; its ranks may be on its own machine

    // Jobs are summed by more than one switch.
    bool in_tree() const { return has_parent() || !children.empty() || server; }
    bool has_parent() const { return !parents.empty(); }
    // A job has one tree, and its number says which; whoever wants several trees has several jobs. Where links have failed
    // the job is further on in the list: at a position that all switches of the tree agree on.
    const Neighbour &parent_of(uint16_t job, unsigned position = 0) const { return parents[(job + position) % parents.size()]; }
};

// How long a JOIN that other ranks' actions may make acceptable (they leave, or restart the job) is kept
// waiting before it is refused or the job is restarted for it.
inline constexpr std::chrono::milliseconds patience{1500};
// How often the planes say which jobs they hear: several times in `patience`, so that a busy one is never taken for silent.
inline constexpr std::chrono::milliseconds activity_interval = patience / 3;
// How long a job that has lost a link, and has no root left to go to, waits for a link to come back.
inline constexpr std::chrono::milliseconds outage{5000};

// How often something is said again that has just happened, and later; and when all is well.
inline constexpr std::chrono::milliseconds tend_soon{20}, tend_later{200}, tend_late{2000};

// What a switch thinks of one of its parents, about a job that all of them know.
struct Above {
    bool knows = false;           // it has answered for this generation: all ranks are known there
    bool is_lost = false;         // it did before
    Time told{};                  // when it last heard of ranks here
    std::optional<Time> silent{}; // since when it has not answered that
    inagg_reason refusal = INAGG_R_NONE;
};

struct JobState {
    inagg_job record{};
    Stragglers stragglers{};
    Members members{};
    Time heard{};
    Time seated{};         // when the last rank joined, or went on to another root
    inagg_uplink uplink{}; // with a parent: how it is reached; and its position, or at a root that of this one
    Time answered{};       // on the move: when the next parent was last heard, or first asked
    Time left{};           // likewise: when the job began to move
    uint16_t round = 0;    // with a parent: the position from which on it tries each parent once
    uint16_t gone_to = 0;  // at a root: the latest position that a switch has gone on at
    // With canary; below:
    std::array<Above, INAGG_MAX_UPS> above{};
    uint8_t up = 0; // bitmap of parents that packets may go by
    Time changed{}; // when that last was another
    // At a root:
    bool runs = false; // all ranks have been here, or a switch below says that the job runs
    Time announced{};  // when one last said so
    // Ranks that want to be in the next generation, by their latest JOIN.
    struct Coming {
        inagg_event event;
        Time heard;
    };
    std::map<uint16_t, Coming> coming{};
};

// A member that a restart or removal has put out; it is told so.
struct Displaced {
    uint16_t job, rank, generation;
    inagg_member member;
    inagg_reason reason;
    Address above{}; // where that was decided, if not here
};

// To another switch's agent.
struct Message {
    Address to;
    inagg_type type;
    uint16_t job, rank, generation;
    inagg_reason reason; // of a REFUSED
    inagg_join join;
    bool again = false; // a JOIN for a rank that has joined
};

// What the agent has to do about an event, in this order.
struct Outcome {
    enum class Verdict {
        ignored,
        done,
        refused, // the rank is told
        put_off, // likewise, with a reason: it may ask again
        asked,   // its JOIN or LEAVE goes on to the parent: it is the message
    };
    Verdict verdict = Verdict::ignored;
    inagg_reason reason = INAGG_R_NONE; // of a refusal, or until then
    std::string detail{};               // for the log

    struct Change {
        enum class Kind {
            remove,  // the job has gone: `record` is what it was
            renew,   // new job or new generation: its slots hold nothing
            members, // ranks came or went, or the job has found another parent
            route,   // the same ranks, by other parents
            state,   // nothing but who is waited for, and what CONFIG says of that
        };
        Kind kind;
        uint16_t job;
        inagg_job record;
    };
    std::vector<Change> changes{};
    std::vector<Displaced> displaced{};
    std::vector<Message> messages{};
    std::vector<std::string> notes{}; // for the log, each a job's
};

// Why nothing is done, for the log.
Outcome ignored(std::string detail);
// The rank is told; what was decided on the way stays.
Outcome refused(inagg_reason reason, std::string detail, Outcome so_far = {});

// An algorithm's name, with what trio does about stragglers.
std::string describe(int algorithm, Stragglers stragglers);
// What is unusual about a job's packets, to stand behind the rest.
std::string describe_packets(const inagg_job &record);

// 32-bit elements that fit a packet of `mtu` bytes; 0 if not even a chunk does.
uint16_t elements_for_mtu(uint32_t mtu, uint8_t family);
// The same of a job with this algorithm and these rules.
uint16_t most_elements(uint32_t mtu, uint8_t family, uint8_t algorithm, Stragglers stragglers);

// What all switches of a job do alike.
constexpr uint8_t shape_flags = INAGG_JOIN_CHECKED | INAGG_JOIN_INTEGERS | INAGG_JOIN_BIG_ENDIAN;

// All parents of a switch know the job, and packets go by any of them.
inline bool is_spread(uint8_t algorithm) { return algorithm == INAGG_CANARY; }
// Any root does as well as another, since a switch may forget its slots; what trio's and atp's roots know they may not.
inline bool needs_no_root(uint8_t algorithm) { return algorithm != INAGG_TRIO && algorithm != INAGG_ATP; }
// The job has one root at a time, and goes on at another when links fail.
inline bool can_move(uint8_t algorithm) { return needs_no_root(algorithm) && !is_spread(algorithm); }

class JobBook {
public:
    // `random` gives the first generation of each job number.
    JobBook(Policy policy, std::function<uint16_t()> random) : policy_(policy), random_(std::move(random)) {}

    void forget() { jobs_.clear(); }
    // Takes over what the maps say; `up`: of the job's route.
    void restore(uint16_t number, const inagg_job &record, Stragglers stragglers, const Members &members,
                 const inagg_uplink &uplink, Time now, uint8_t up = 0);
    // Before the jobs.
    void restore_up_ports(const UpPorts &up_ports) { up_ports_ = up_ports; }

    // A child or a parent.
    bool is_switch(const Neighbour &other) const;
    // The port whose time what was decided takes; 0: of none. Switches limit their own ports, and what a parent's CONFIG makes is
    // for the rank that it seats.
    uint32_t payer(const inagg_event &event) const;
    Outcome join(const inagg_event &event, Time now);
    Outcome leave(const inagg_event &event, Time now);
    // The parent's CONFIG or REFUSED for a JOIN that was passed on to it.
    Outcome configured(const inagg_event &event, Time now);
    Outcome refused_above(const inagg_event &event, Time now);
    // `ports` resolves names; throws Error when the job cannot be.
    Outcome add(const JobSpec &spec, const std::function<uint32_t(const std::string &)> &port_index, Time now);
    Outcome remove(uint16_t number);
    // The device has gone, and who was behind it.
    Outcome port_gone(uint32_t ifindex);
    // The port has come back under another number: its members' places are there.
    Outcome port_made_anew(uint32_t before, uint32_t ifindex);
    // The port's link has come or failed.
    Outcome link(uint32_t ifindex, bool up, Time now);
    // What is to be done about links that are down, and what messages may have been lost; to be called in each
    // tend_interval().
    Outcome tend(Time now);
    std::chrono::milliseconds tend_interval(Time now) const;
    // Removes jobs whose ranks do not come: whoever joins alone must not keep the slots.
    Outcome expire(Time now);
    // The job goes on without these ranks (a bitmap); one remains in any case.
    Outcome exclude(uint16_t number, uint64_t ranks, Time now);
    // Forgets who wanted to come back and has given up.
    Outcome forget_returning(Time now);
    // Packets for the job have been counted.
    void heard(uint16_t number, Time now);
    // Ranks, or switches below, have asked for the job's configuration, which they have: do those above know them still?
    Outcome announced(uint16_t number, Time now);

    Policy &policy() { return policy_; }
    const Policy &policy() const { return policy_; }
    const std::map<uint16_t, JobState> &jobs() const { return jobs_; }
    // Of the policy's slots, those that jobs have for themselves.
    uint32_t slots_used() const;
    // How the parents are reached, in the order of the policy; own_address is not filled in.
    const UpPorts &up_ports() const { return up_ports_; }

private:
    using Waiter = std::tuple<uint16_t, uint16_t, uint64_t>; // job, rank, nonce
    using Waiters = std::map<Waiter, Time>;                  // since when
    static Waiter waiter_of(const inagg_event &event) { return {event.job, event.rank, event.join.nonce}; }

    static Outcome reserve_again(uint16_t number, JobState &job, const Members &members);
    inagg_reason ended_for(const inagg_event &event) const;
    std::optional<Outcome> joins_again(JobState &job, const inagg_event &event, Time now);
    std::optional<Outcome> unfit(const inagg_event &event) const;
    uint32_t slots_on_the_way(const inagg_event &event, uint16_t elements) const;
    uint32_t usual_slots(uint8_t algorithm, uint32_t on_the_way) const;
    uint8_t blocks_here(uint8_t family, const inagg_job &record) const;
    uint16_t most_elements_here(uint8_t family, uint8_t algorithm, Stragglers stragglers) const;
    uint8_t flags_of(uint8_t algorithm, bool checked, bool big_endian) const;
    bool is_big_endian(const inagg_event &event) const;
    Outcome ask_parent(const inagg_event &event, Time now);
    Message passed_on(const inagg_event &event) const;
    bool from_parent(const inagg_event &event) const;
    void point_uplink(JobState &job, const inagg_event &event);
    bool is_asked_for(uint16_t number) const;
    bool goes_with(const JobState &job, const inagg_member &member, uint32_t ifindex) const;

    // On the way to another root; below it:
    uint16_t position_of(uint16_t number) const;
    const Neighbour &parent_of(uint16_t number) const { return policy_.parent_of(number, position_of(number)); }
    bool is_moving(uint16_t number, const JobState &job) const;
    Time left_at(uint16_t number, const JobState &job, Time now) const;
    std::optional<uint16_t> linked_position(uint16_t number, unsigned first) const;
    bool go_on_from(uint16_t number, JobState &job, unsigned position, const std::string &why, Outcome &outcome, Time now);
    void ask_for_adoption(uint16_t number, const JobState &job, Outcome &outcome) const;
    void leave_root(uint16_t number, const Neighbour &root, Outcome &outcome) const;
    Message adoption(uint16_t number, const JobState &job, uint16_t rank, const Neighbour &to, uint16_t position) const;
    Message repeated_join(uint16_t number, const JobState &job, uint16_t rank) const;
    std::optional<Time> in_trouble(uint16_t number, const JobState &job, Time now) const;
    void tend_below(uint16_t number, JobState &job, Outcome &outcome, Time now);
    Outcome told_where(const inagg_event &event, Time now);
    bool adopts(const inagg_event &config, const JobState &job) const;
    Outcome settle(const inagg_event &config, JobState &job);
    Outcome refused_by_next(const inagg_event &event, JobState &job, Time now);
    // At a root:
    Outcome adopt(const inagg_event &event, Time now);
    JobState *adopted(const inagg_event &event, const inagg_job &record, Outcome &outcome, Time now);
    void desert(uint16_t number, JobState &job, uint32_t rank, Outcome &outcome);
    std::optional<Time> cut_off_since(const JobState &job) const;
    std::optional<Time> hopeless(const JobState &job, Time now) const;
    void tend_root(uint16_t number, JobState &job, bool hello, Outcome &outcome, Time now);
    void tell_where(uint16_t number, const JobState &job, unsigned position, Outcome &outcome) const;
    void give_up(uint16_t number, JobState &job, Outcome &outcome);

    // Jobs that all parents know; below them:
    unsigned up_count() const;
    std::optional<unsigned> up_index(const inagg_event &event) const;
    bool can_be_asked(const JobState &job, unsigned up) const;
    bool is_run_of(const JobState &job, const inagg_event &event) const;
    std::optional<uint16_t> next_home(uint16_t number) const;
    bool learn_up_port(unsigned up, const inagg_event &event);
    bool is_learnt(unsigned up) const;
    void note_up(uint16_t number, JobState &job, unsigned up, bool knows, const std::string &why, Outcome &outcome);
    void refresh_up(uint16_t number, JobState &job, Outcome &outcome, Time now);
    void announce(uint16_t number, JobState &job, unsigned up, bool all, Outcome &outcome, Time now);
    void tend_parents(uint16_t number, JobState &job, Outcome &outcome, Time now);
    Outcome known_above(unsigned up, const inagg_event &event, JobState &job, Time now);
    Outcome lacking_above(unsigned up, const inagg_event &event, JobState &job, Time now);
    Outcome refused_by_one(unsigned up, const inagg_event &event, JobState &job, Time now);
    void take_leave(uint16_t number, const JobState &job, uint16_t rank, Outcome &outcome) const;
    std::optional<Time> lacks_parents(const JobState &job) const;
    // At one of them:
    bool gives_way(const JobState &job, const inagg_event &event) const;
    JobState *replace(const inagg_event &event, JobState &job, const inagg_job &record, Outcome &outcome, Time now);
    void tend_spread(uint16_t number, JobState &job, Outcome &outcome, Time now);
    bool is_abandoned(const JobState &job, Time now) const;
    void drop(uint16_t number, JobState &job, Outcome &outcome);

    Outcome join_new(const inagg_event &event, Outcome so_far, Time now);
    Outcome join_empty(JobState &job, const inagg_event &event, Time now);
    Outcome join_held(JobState &job, const inagg_event &event, Time now);
    static bool begins_anew(const JobState &job, const inagg_event &event);
    Outcome join_excluded(JobState &job, const inagg_event &event, Time now);
    Outcome come(JobState &job, const inagg_event &event, inagg_reason until_then, Time now);
    bool all_come(const JobState &job) const;
    Outcome go_on(uint16_t number, JobState &job, Time now);
    void announce_returning(uint16_t number, JobState &job, Outcome &outcome);
    void go_forward(JobState &job, const inagg_event &event) const;
    void seat_member(JobState &job, const inagg_event &event, Time now);
    Outcome restart_for(JobState &job, const inagg_event &event, Outcome so_far, Time now);
    Outcome seat(JobState &job, const inagg_event &event, Outcome so_far, Time now);
    Outcome refuse_late(const inagg_event &event, inagg_reason reason, std::string detail, Time now);

    JobState *create(uint16_t number, inagg_job record, Stragglers stragglers, Outcome &outcome, Time now,
                     std::optional<uint16_t> generation = {});
    JobState *create_below(const inagg_event &config, Outcome &outcome, Time now);
    std::optional<Outcome> beyond_port(const inagg_event &event, Outcome &so_far, Time now);
    size_t forming_behind(const inagg_event &event) const;
    bool is_alone_behind(const inagg_event &event, const JobState &job) const;
    bool is_behind(const inagg_member &member, const inagg_event &event) const;
    bool has_asked_enough(const inagg_event &event) const;
    // `above` is who has decided it, if not this switch.
    void erase(uint16_t number, Outcome &outcome, inagg_reason reason = INAGG_R_JOB, const Address &above = {});
    void renew(uint16_t number, JobState &job, Outcome &outcome, inagg_reason reason = INAGG_R_REPLACED);
    void vacate(uint16_t number, JobState &job, uint32_t rank, Outcome &outcome);
    void close_if_empty(uint16_t number, JobState &job, Outcome &outcome);
    bool make_room(const inagg_job &record, Outcome &outcome, Time now);
    bool erase_idle(const std::function<bool(const JobState &)> &may_go, Outcome &outcome, Time now);
    bool idle(const JobState &job, Time now) const { return now - job.heard > policy_.idle; }
    std::optional<uint32_t> free_index(const inagg_job &record) const;
    std::optional<uint32_t> free_slots(const inagg_job &record) const;
    bool has_buffers(const inagg_job &record) const;
    std::string what_is_full(const inagg_job &record) const;
    uint32_t pool_of(const inagg_job &record) const;
    bool in_one_pool(const inagg_job &a, const inagg_job &b) const;
    bool needs_no_slots(const inagg_job &record) const;
    uint16_t next_generation(uint16_t number);
    static void forget_waiter(Waiters &waiters);
    bool waited(const inagg_event &event, Time now, std::chrono::milliseconds long_enough);
    void retire(uint64_t nonce);
    bool retired(uint64_t nonce) const;

    Policy policy_;
    std::function<uint16_t()> random_;
    std::map<uint16_t, JobState> jobs_;
    std::unordered_map<uint16_t, uint16_t> generations_; // last one of each number, also of jobs that went
    std::map<uint32_t, Waiters> waiters_;                // by port, who cannot fill those of others
    // The parent, by job and rank; the latest JOIN.
    struct Asked {
        inagg_event event;
        Time at;
    };
    std::map<std::pair<uint16_t, uint16_t>, Asked> asked_;
    std::map<std::pair<uint32_t, uint16_t>, Time> wanted_; // with a parent: by port, jobs that were not here; when asked for last
    std::deque<uint64_t> retired_;                         // nonces whose late copies mean nothing
    std::map<uint32_t, Time> down_;                        // ports without a link, since when
    std::map<uint16_t, uint16_t> positions_;               // with a parent: of jobs that are not at the first
    Time next_hello_{};                                    // when a root tells again where its jobs are
    UpPorts up_ports_{};
};

// A member is a rank that has joined; the others' rows are empty or only reserved.
inline bool has_joined(const inagg_member &member) { return member.ifindex && member.nonce; }
Address sender_of(const inagg_event &event);
// Who refuses in a REFUSED: the sender, or one above it.
Address refuser_of(const inagg_event &event);
// Does what is sent to the member arrive where this JOIN came from? No checksum covers a MAC address: the frame that seated
// the rank may have been damaged there.
bool is_at(const inagg_member &member, const inagg_event &event);
uint32_t joined_count(const Members &members);
// The rank has gone: its seat is free, or reserved for its next run.
void empty_seat(inagg_member &member);
// How many of the ranks behind this switch have neither joined this run nor left it again.
int missing_count(const JobState &job);
// An answer to a sender that cannot be a worker would only help whoever forged it. `from_here`: workers may have a loopback
// address.
bool can_be_answered(const inagg_event &event, bool from_here);
// Bitmap of the members that blocks wait for and who are there to be waited for.
uint64_t present_ranks(const JobState &job);

// The ranks behind the switch that `rank` is behind; 0 if it is behind none, or if ranks of the job here are missing.
uint64_t subtree_of(const JobState &job, uint32_t rank);
// Another rank, before this one, stands for its switch.
bool is_represented(const JobState &job, uint32_t rank);

// Where sums of a rank, or of its switch, enter the tree in which floats are added: they are numbered in rank order.
uint8_t leaf_of(const JobState &job, uint32_t rank);
uint8_t children_of(const JobState &job);

// What its ranks send is added as floats, some of which wait for others outside the slot.
bool needs_buffers(const JobState &job);

// Blocks whose floats each of `jobs` jobs may have waiting in a switch with so many buffers, if its children are so many
// (PANAMA §4.2, "congestion window capping"): its part of all, less one that is left for the next job, which is there before
// the others hear that they have less now. 0: blocks need no buffers.
uint16_t window_cap(uint32_t buffers, uint32_t jobs, uint32_t children);
// Data slots of a job with so many elements per packet, of which a link would have a long queue if there were more: what it
// carries in 20 ms (the bandwidth-delay product, SwitchML §3.6, with a delay that switches which are computers allow), 16 at
// least.
uint32_t slots_of_link(uint64_t bits_per_second, uint16_t elements);

} // namespace inaggd
