// SPDX-License-Identifier: BSD-2-Clause
// What Python sees: a class for inagg.torch, which everybody else meets as a process group.
#include "process_group.hpp"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/functional.h>

using inagg::ProcessGroupInagg;

namespace {

c10::intrusive_ptr<ProcessGroupInagg> create(const ProcessGroupInagg::MakeGloo &make_gloo, int rank, int size, int number,
                                             std::chrono::milliseconds timeout, const std::string &scope) {
    return c10::make_intrusive<ProcessGroupInagg>(make_gloo, rank, size, ProcessGroupInagg::Settings{number, timeout, scope});
}

// By what was done: (calls, bytes).
std::map<std::string, std::pair<uint64_t, uint64_t>> numbers(const inagg::Counters::Table &table) {
    std::map<std::string, std::pair<uint64_t, uint64_t>> numbers;
    for (const auto &[what, traffic] : table)
        numbers[what] = {traffic.calls, traffic.bytes};
    return numbers;
}

} // namespace

PYBIND11_MODULE(inagg_torch, module) {
    module.doc() = "The process group of inagg.torch.";
    using Released = py::call_guard<py::gil_scoped_release>;
    py::class_<ProcessGroupInagg, c10d::ProcessGroup, c10::intrusive_ptr<ProcessGroupInagg>>(module, "ProcessGroupInagg")
        .def(py::init(&create), py::arg("make_gloo"), py::arg("rank"), py::arg("size"), py::arg("number"), py::arg("timeout"),
             py::arg("scope"), Released())
        .def("join", &ProcessGroupInagg::join, Released(), "Join the job now, not at the first call.")
        .def("leave", &ProcessGroupInagg::leave, Released(), "Finish what is under way and leave the job.")
        .def("job", &ProcessGroupInagg::job, "Its number.")
        .def("transport", &ProcessGroupInagg::transport, Released(), "Its name; empty before the group has joined.")
        .def(
            "carried", [](const ProcessGroupInagg &group) { return numbers(group.counters().carried()); },
            "What went through the switch: calls and bytes by operation.")
        .def(
            "delegated", [](const ProcessGroupInagg &group) { return numbers(group.counters().delegated()); },
            "What went to Gloo: calls and bytes by operation and reason.")
        .def(
            "counters",
            [](ProcessGroupInagg &group) {
                const inagg_stats_t stats = [&] {
                    const py::gil_scoped_release released;
                    return group.stats();
                }();
                return py::bytes(reinterpret_cast<const char *>(&stats), sizeof(stats));
            },
            "libinagg's counters: the bytes of an inagg_stats_t.");
}
