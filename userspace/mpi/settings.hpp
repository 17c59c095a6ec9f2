// SPDX-License-Identifier: BSD-2-Clause
// What the environment says to the MPI library; the INAGG_ variables of a rank are libinagg's.
#pragma once

#include <cstdint>
#include <string>

namespace inagg::mpi {

// How sums of float travel.
enum class FloatSums {
    exact,   // as FLOAT64: exact, rounded to double and then to float
    float32, // as libinagg's FLOAT32, in fewer bytes: fixed point, or with panama IEEE 754 additions
};

struct Settings {
    std::string off;        // why nothing is offloaded; empty: something is
    uint64_t min_bytes = 0; // of a call
    uint64_t max_bytes = UINT64_MAX;
    FloatSums float_sums = FloatSums::exact;
    bool verified = false;     // results are, and so only sums are offloaded
    uint32_t first_job = 0;    // job numbers: from here on
    uint32_t jobs = 1024;      // so many
    uint16_t trees = 1;        // numbers that a job takes
    bool prints_report = true; // at exit
    std::string report_file;   // "": none
};

// Of an application of so many ranks. Throws std::runtime_error that names a variable with a bad value.
Settings read_settings(int ranks);

// Alike on all ranks if what they would offload is.
std::string fingerprint(const Settings &settings);

} // namespace inagg::mpi
