// SPDX-License-Identifier: BSD-2-Clause
#include "session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace inagg::mpi {

namespace {

// Not destroyed at exit: a program that ends without MPI_Finalize may have threads of ours in MPI.
Session *session = nullptr;

// FNV-1a: the same on all ranks, whatever built their libraries.
uint64_t hash_of(const std::string &text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char byte : text)
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    return hash;
}

// On all ranks?
bool is_alike(const std::string &text) {
    const uint64_t own = hash_of(text);
    std::array<uint64_t, 2> most = {own, ~own}; // the least, too
    PMPI_Allreduce(MPI_IN_PLACE, most.data(), 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return most[0] == ~most[1];
}

Settings settings_or_abort() {
    int ranks;
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    try {
        return read_settings(ranks);
    } catch (const std::exception &error) {
        fmt::print(stderr, "inagg: {}\n", error.what());
        PMPI_Abort(MPI_COMM_WORLD, 2);
        throw;
    }
}

// A spawned application would use the job numbers of the one that spawned it.
bool was_spawned() {
    MPI_Comm parent;
    PMPI_Comm_get_parent(&parent);
    return parent != MPI_COMM_NULL;
}

} // namespace

void Session::begin(int thread_level) {
    Settings settings = settings_or_abort();
    if (settings.off.empty() && thread_level != MPI_THREAD_MULTIPLE)
        settings.off = "this MPI library has no MPI_THREAD_MULTIPLE";
    session = new Session(settings);
    // MPI_Finalize deletes the attributes of MPI_COMM_SELF first, while MPI still works, and the oldest one
    // last.
    int keyval;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end, &keyval, nullptr);
    PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, session);
    PMPI_Comm_free_keyval(&keyval); // with the attribute
}

Session *Session::current() { return session && session->settings_.off.empty() ? session : nullptr; }

Session::Session(const Settings &settings) : settings_(settings) {
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    PMPI_Comm_size(MPI_COMM_WORLD, &size_);
    agree();
    if (!settings_.off.empty())
        return;
    PMPI_Comm_dup(MPI_COMM_WORLD, &world_);
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval_, nullptr);
    numbers_ = std::make_unique<JobNumbers>(settings, rank_, size_);
    progress_ = std::make_unique<MpiProgress>(world_);
}

// Whether a call is offloaded has to be alike on all ranks, so what decides about it has to be.
void Session::agree() {
    if (was_spawned())
        settings_.off = "this application was spawned by another one";
    if (!is_alike(fingerprint(settings_)))
        settings_.off = "the ranks' INAGG_ variables differ: pass them on to all, as with mpirun -x";
}

int Session::end(MPI_Comm, int, void *, void *) {
    // Each waits for the others that leave: in the same order everywhere.
    std::vector<Offload *> offloads;
    for (const auto &[offload, owned] : session->offloads_)
        offloads.push_back(offload);
    std::ranges::sort(offloads, {}, &Offload::job);
    for (Offload *offload : offloads)
        offload->finish();
    session->progress_.reset();
    session->print_report();
    delete std::exchange(session, nullptr);
    return MPI_SUCCESS;
}

Offload &Session::offload(MPI_Comm comm) {
    void *attribute;
    int found;
    PMPI_Comm_get_attr(comm, keyval_, &attribute, &found);
    if (found)
        return *static_cast<Offload *>(attribute);
    auto made = std::make_unique<Offload>(*this, comm);
    Offload &offload = *made;
    {
        const std::lock_guard lock(mutex_);
        offloads_.emplace(&offload, std::move(made));
    }
    PMPI_Comm_set_attr(comm, keyval_, &offload);
    return offload;
}

// The communicator is freed. After the session has ended its attributes mean nothing.
int Session::forget(MPI_Comm, int, void *attribute, void *) {
    if (!session)
        return MPI_SUCCESS;
    auto *const offload = static_cast<Offload *>(attribute);
    offload->dissolve();
    const std::lock_guard lock(session->mutex_);
    session->offloads_.erase(offload);
    return MPI_SUCCESS;
}

int Session::next_tag() {
    const std::lock_guard lock(mutex_);
    constexpr int portable_limit = 32768; // MPI_TAG_UB is at least one less; what is used again is long done
    return (rank_ + size_ * tags_++) % portable_limit;
}

void Session::print_report() const {
    const nlohmann::json total = report_.total();
    if (rank_ != 0)
        return;
    if (settings_.prints_report)
        fmt::print(stderr, "{}\n", settings_.off.empty() ? summary(total) : "inagg: all is left to MPI: " + settings_.off);
    if (!settings_.report_file.empty() && !(std::ofstream(settings_.report_file) << total.dump() << std::endl))
        fmt::print(stderr, "inagg: INAGG_MPI_REPORT: cannot write '{}'\n", settings_.report_file);
}

} // namespace inagg::mpi
