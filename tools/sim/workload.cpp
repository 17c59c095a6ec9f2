// SPDX-License-Identifier: BSD-2-Clause
#include "workload.hpp"

#include <ns3/simulator.h>

#include <cmath>

namespace sim {
namespace {

constexpr uint32_t workload_bits = 3u << 30;

struct Point {
    double bytes, share; // of flows that are no larger
};

// DCTCP (SIGCOMM 2010), Figure 4, as simulated by pFabric (SIGCOMM 2013): a cluster for web search.
constexpr Point websearch[] = {{0, 0},      {10e3, .15}, {20e3, .2}, {30e3, .3}, {50e3, .4},  {80e3, .53},
                               {200e3, .6}, {1e6, .7},   {2e6, .8},  {5e6, .9},  {10e6, .97}, {30e6, 1}};
// VL2 (SIGCOMM 2009), Figure 2, likewise, in packets of 1460 bytes: a cluster for data mining.
constexpr Point datamining[] = {{0, 0},           {1460, .5},         {2 * 1460, .6},        {3 * 1460, .7},      {7 * 1460, .8},
                                {267 * 1460, .9}, {2107 * 1460, .95}, {66667 * 1460.0, .99}, {666667 * 1460.0, 1}};

template <size_t n> double at(const Point (&points)[n], double share) {
    size_t i = 1;
    while (i + 1 < n && points[i].share < share)
        i++;
    const Point &a = points[i - 1], &b = points[i];
    return a.bytes + (b.bytes - a.bytes) * (share - a.share) / (b.share - a.share);
}

double size_at(Sizes sizes, double share, double largest) {
    const double bytes = sizes == Sizes::websearch ? at(websearch, share) : at(datamining, share);
    return std::clamp(bytes, 1.0, largest);
}

double mean_size(Sizes sizes, double largest) {
    constexpr int steps = 200'000;
    if (sizes == Sizes::both)
        return (mean_size(Sizes::websearch, largest) + mean_size(Sizes::datamining, largest)) / 2;
    double sum = 0;
    for (int i = 0; i < steps; i++)
        sum += size_at(sizes, (i + 0.5) / steps, largest);
    return sum / steps;
}

} // namespace

// Random numbers of its own, so that other traffic meets the same flows whatever it is.
Workload::Workload(const std::vector<Host *> &hosts, const Load &load, uint64_t link_rate, const Transport &transport,
                   uint64_t seed)
    : hosts_(hosts), load_(load), transport_(transport), random_(ns3::CreateObject<ns3::UniformRandomVariable>()) {
    random_->SetStream(static_cast<int64_t>(1000 + seed));
    const double bits = 8 * mean_size(load.sizes, static_cast<double>(load.largest));
    gap_ns_ = bits * 1e9 / (static_cast<double>(link_rate) * static_cast<double>(hosts.size()) * load.share);
    for (Host *host : hosts)
        host->flows().on_message([this](uint32_t, uint32_t message) { arrived(message); });
}

void Workload::start() { ns3::Simulator::Schedule(ns3::NanoSeconds(1), &Workload::arrive, this); }

Sizes Workload::pick() {
    if (load_.sizes != Sizes::both)
        return load_.sizes;
    return random_->GetValue() < 0.5 ? Sizes::websearch : Sizes::datamining;
}

uint64_t Workload::size() {
    const Sizes sizes = pick();
    return static_cast<uint64_t>(std::ceil(size_at(sizes, random_->GetValue(), static_cast<double>(load_.largest))));
}

void Workload::arrive() {
    const auto count = static_cast<uint32_t>(hosts_.size());
    const auto from = static_cast<uint32_t>(random_->GetInteger(0, count - 1));
    const uint32_t to = (from + 1 + static_cast<uint32_t>(random_->GetInteger(0, count - 2))) % count;
    const uint64_t bytes = size();
    const uint32_t message = workload_bits | next_++;
    if (now_ns() >= from_ns_ && now_ns() < until_ns_) {
        running_[message] = flows_.size();
        flows_.push_back({bytes, now_ns(), 0});
        left_++;
    }
    hosts_[from]->flows().send(hosts_[to]->number(), message, bytes, transport_, {});
    const double gap = -std::log(1 - random_->GetValue()) * gap_ns_;
    ns3::Simulator::Schedule(ns3::NanoSeconds(static_cast<uint64_t>(gap) + 1), &Workload::arrive, this);
}

void Workload::arrived(uint32_t message) {
    const auto found = running_.find(message);
    if (found == running_.end())
        return;
    Finished &flow = flows_[found->second];
    flow.took_ns = now_ns() - flow.started_ns;
    running_.erase(found);
    left_--;
}

} // namespace sim
