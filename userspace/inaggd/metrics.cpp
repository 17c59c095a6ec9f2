// SPDX-License-Identifier: BSD-2-Clause
#include "metrics.hpp"

#include "counters.hpp"
#include "desk.hpp"
#include "error.hpp"
#include "http_address.hpp"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

namespace inaggd {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr std::chrono::seconds scrape_limit{5}; // half of Prometheus's own
constexpr std::chrono::milliseconds fresh_for{100};

MetricFamily family(std::string name, std::string help, MetricType type) {
    return {.name = std::move(name), .help = std::move(help), .type = type, .metric = {}};
}

// Exact up to 2^53.
void put(MetricFamily &family, Labels labels, uint64_t value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = static_cast<double>(value);
    family.metric.push_back(std::move(metric));
}

void add_counters(Metrics &metrics, const std::vector<MetricsRow> &rows) {
    for (const Counter &counter : counters()) {
        MetricFamily &all =
            metrics.emplace_back(family(fmt::format("inagg_job_{}_total", counter.name), counter.help, MetricType::Counter));
        for (const MetricsRow &row : rows)
            put(all, {{"inagg_job", row.job}}, row.stats.*counter.value);
    }
}

// Also of reasons that there were none of: a series that begins with its first drop hides it from rate().
void add_drops(Metrics &metrics, const std::vector<MetricsRow> &rows) {
    MetricFamily &drops =
        metrics.emplace_back(family("inagg_job_drops_total", "Packets dropped, by reason.", MetricType::Counter));
    for (const MetricsRow &row : rows)
        for (const ReasonName &reason : reasons())
            put(drops, {{"inagg_job", row.job}, {"reason", std::string(reason.name)}}, row.stats.drops[reason.number]);
}

void add_attendance(Metrics &metrics, const std::vector<MetricsRow> &rows) {
    MetricFamily heard = family("inagg_job_rank_packets_total", "Packets heard of a rank of a trio job.", MetricType::Counter);
    MetricFamily missed =
        family("inagg_job_rank_missed_total", "Blocks of a trio job that were decided without the rank.", MetricType::Counter);
    for (const MetricsRow &row : rows)
        for (uint32_t rank = 0; row.attendance && rank < INAGG_MAX_RANKS; rank++)
            if (row.attendance->heard[rank] || row.attendance->missed[rank]) {
                const Labels labels = {{"inagg_job", row.job}, {"rank", fmt::format("{}", rank)}};
                put(heard, labels, row.attendance->heard[rank]);
                put(missed, labels, row.attendance->missed[rank]);
            }
    metrics.push_back(std::move(heard));
    metrics.push_back(std::move(missed));
}

void add_jobs(Metrics &metrics, const JobBook &book) {
    MetricFamily info = family("inagg_job_info", "Always 1; the job's algorithm.", MetricType::Gauge);
    MetricFamily ranks = family("inagg_job_ranks", "Ranks that the job has.", MetricType::Gauge);
    MetricFamily joined = family("inagg_job_ranks_joined", "Ranks that have joined at this switch.", MetricType::Gauge);
    MetricFamily slots = family("inagg_job_slots", "Blocks that may be in flight.", MetricType::Gauge);
    for (const auto &[number, job] : book.jobs()) {
        const Labels labels = {{"inagg_job", fmt::format("{}", number)}};
        put(info, {labels.front(), {"algorithm", algorithm_name(job.record.algorithm)}}, 1);
        put(ranks, labels, job.record.size);
        put(joined, labels, joined_count(job.members));
        put(slots, labels, job.record.slots);
    }
    for (MetricFamily *each : {&info, &ranks, &joined, &slots})
        metrics.push_back(std::move(*each));
}

void add_switch(Metrics &metrics, const JobBook &book) {
    const auto gauge = [&](const char *name, const char *help, uint64_t value) {
        put(metrics.emplace_back(family(name, help, MetricType::Gauge)), {}, value);
    };
    gauge("inagg_jobs", "Jobs of the switch.", book.jobs().size());
    gauge("inagg_slots", "Slots that the switch has.", book.policy().slots);
    gauge("inagg_slots_used", "Slots that jobs have for themselves.", book.slots_used());
}

} // namespace

Metrics metrics_of(const JobBook &book, const std::vector<MetricsRow> &rows) {
    Metrics metrics;
    add_switch(metrics, book);
    add_jobs(metrics, book);
    add_counters(metrics, rows);
    add_drops(metrics, rows);
    add_attendance(metrics, rows);
    return metrics;
}

// What threads that answer scrapes wait at.
class MetricsServer::Desk final : public prometheus::Collectable, public inaggd::Desk<Metrics> {
public:
    Desk() : inaggd::Desk<Metrics>(fresh_for) {}
    Metrics Collect() const override { return ask(scrape_limit); }
};

MetricsServer::MetricsServer(const std::string &where, std::function<Metrics()> collect)
    : collect_(std::move(collect)), desk_(std::make_shared<Desk>()) {
    need_own_address("--metrics", where);
    try {
        exposer_ = std::make_unique<prometheus::Exposer>(where);
    } catch (const std::exception &) { // which does not say why
        throw Error("--metrics {}: cannot listen there; does another program?", where);
    }
    exposer_->RegisterCollectable(desk_);
}

MetricsServer::~MetricsServer() { desk_->close(); }

int MetricsServer::fd() const { return desk_->bell(); }

void MetricsServer::serve() { desk_->answer(collect_); }

} // namespace inaggd
