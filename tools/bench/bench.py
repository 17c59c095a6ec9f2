# SPDX-License-Identifier: BSD-2-Clause
"""Measure inagg beside its peers; print tables and write BUILD/bench/results.json.

Contenders take turns within each round, so that what else the machine does hits all alike; values are
medians over the rounds. A figure is a list entry {name, value, unit, peer, ratio, command}; ratio is the
peer's time over ours (larger is better for inagg) unless the name says otherwise.
"""
import argparse
import collections
import dataclasses
import importlib.util
import json
import os
import pathlib
import shlex
import statistics
import sys
import time

from contenders import (CONTENDERS, PEERS, RINGS, TRANSPORTS, Failed, Network, Runner, json_lines, size_of_text, text_of_size)

HEADER_BYTES = {"ethernet": 14, "ip": 20, "udp": 8, "inagg": 64}
PARTS = ("switch", "free", "limited", "loss", "tcp", "stragglers", "training", "tenants", "ddp", "verify")
VERIFYING = ("udp", "afxdp")
PING_PONG = "ping-pong"
SMALL = 4 << 10  # bytes: few enough blocks that their scale is guessed, and that a round trip is most of their time
# What figures are to reach: at least, or at most.
BARS = {"switch_add_vs_copy_352": ("most", 1.8), "allreduce_4K_n8_vs_best_ring": ("least", 5),
        "allreduce_4K_n8_vs_ping_pong": ("most", 3),
        "allreduce_4M_n8_vs_best_ring": ("least", 1), "allreduce_64M_n8_vs_best_ring": ("least", 1),
        "limited_link_n8_fraction": ("least", 0.9), "loss_1pct_inflation": ("most", 1.5)}
# And what their ratios are to reach, at least: a bound over ours, the ideal's or another's time over ours.
RATIO_BARS = {**{f"straggler_{blocks}_p99_ms_{expiry}": 1 for blocks in (20, 4096) for expiry in (2, 5, 10, 20)},
              "training_p16_vs_ideal": 1 / 1.1, "training_p16_vs_switchml": 1.4}
SUMMARY = (*BARS, "switch_add_vs_copy_352_net", "allreduce_64M_n8_vs_best_peer", "allreduce_4K_n8_vs_best_peer",
           "allreduce_4K_n8_fresh_vs_best_ring", "tcp_with_switch_vs_without", *RATIO_BARS, "training_p16_vs_gloo")
# Iterations that take about a second with eight workers on two cores.
ITERATIONS = {4 << 10: 200, 256 << 10: 50, 4 << 20: 12, 64 << 20: 3}


@dataclasses.dataclass
class Plan:
    """How much is measured."""
    rounds: int = 3
    switch_rounds: int = 31
    workers: tuple = (2, 4, 8)
    mtus: tuple = (1500, 3498)
    sizes: tuple = (4 << 10, 256 << 10, 4 << 20, 64 << 20)
    rates: tuple = ("100mbit", "500mbit", "1gbit")  # the first is slow enough for two cores and eight workers
    limited_workers: tuple = (2, 4, 8)
    limited_size: int = 8 << 20
    losses: tuple = (0.0001, 0.001, 0.01)
    loss_sizes: tuple = (4 << 20, 64 << 20)
    tcp_seconds: int = 5
    straggler_options: tuple = ("--sweeps", 1, 4)
    training_options: tuple = ()
    tenants_options: tuple = ()
    ddp_options: tuple = ("--rates", "unlimited", "100mbit", "--epochs", 2, "--images", 6000)
    verify_workers: tuple = (2, 8)
    verify_sizes: tuple = (4 << 10, 4 << 20)


QUICK = Plan(rounds=1, switch_rounds=7, workers=(2, 8), mtus=(1500,), rates=("100mbit",), limited_workers=(8,),
             limited_size=4 << 20, losses=(0.01,), loss_sizes=(4 << 20,), tcp_seconds=2,
             straggler_options=("--expiries", 10, "--blocks", 400, "--least-calls", 5),
             training_options=("--probabilities", 0, 0.16, "--epochs", 3),
             tenants_options=("--jobs", 4, "--losses", 0.01, "--ecn", "5ms", "--seconds", 3),
             ddp_options=("--rates", "100mbit", "--losses", 0.01, "--epochs", 1, "--images", 3000),
             verify_workers=(2,), verify_sizes=(4 << 20,))


def busy_fraction(seconds=0.2):
    """Share of all cores that something used just now."""
    def sample():
        numbers = [int(field) for field in open("/proc/stat").readline().split()[1:]]
        return sum(numbers), numbers[3] + numbers[4]
    total, idle = sample()
    time.sleep(seconds)
    later, later_idle = sample()
    return 1 - (later_idle - idle) / max(1, later - total)


def rate_of_text(text):
    """500mbit -> 5e8"""
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)):
        if text.endswith(unit):
            return float(text[:-len(unit)]) * factor
    raise ValueError(f"{text}: want a rate like 500mbit")


def tcp_share(mtu):
    """Bits of payload in a bit of full Ethernet frames of TCP over IPv4, with time stamps."""
    return (mtu - 20 - 20 - 12) / (mtu + HEADER_BYTES["ethernet"])


def payload_share(mtu):
    """Bits of tensor in a bit of full Ethernet frames of inagg."""
    headers = sum(HEADER_BYTES.values()) - HEADER_BYTES["ethernet"]
    elements = min((mtu - headers) // 4 // 32 * 32, 832)
    return elements * 4 / (elements * 4 + headers + HEADER_BYTES["ethernet"])


class Bench:
    def __init__(self, build, plan, parts):
        self.plan, self.parts = plan, parts
        self.build = build
        self.runner = Runner(build)
        self.results = []
        self.absent = {}
        self.disturbed = self.measurements = 0

    def add(self, name, value, unit, peer="", ratio=None, command="", **more):
        """One figure; None where nothing could be measured."""
        rounded = [None if number is None else float(f"{number:.5g}") for number in (value, ratio)]
        self.results.append({"name": name, "value": rounded[0], "unit": unit, "peer": peer, "ratio": rounded[1],
                             "command": command, **more})

    def conditions(self):
        """What the figures depend on beside the programs."""
        cores, kernel = os.cpu_count(), os.uname().release
        policy = "SCHED_OTHER (trio's sweeps SCHED_FIFO), more ranks than cores where workers > cores"
        self.add("conditions", cores, "cores", f"Linux {kernel}; {policy}; TCP cubic; peers on a plain bridge"
                 " between the same veths, segmentation offload on; Open MPI with mpi_yield_when_idle",
                 plan=dataclasses.asdict(self.plan), parts=self.parts)
        print(f"# {cores} cores, Linux {kernel}, {policy}, TCP cubic", flush=True)

    def contenders(self):
        """All that can run here; the others are reported once as absent."""
        present = []
        for contender in CONTENDERS:
            reason = self.runner.missing(contender)
            if not reason:
                present.append(contender)
            elif contender not in self.absent:
                self.absent[contender] = reason
                self.add(f"absent_{contender}", None, "", error=reason)
                print(f"# {contender}: absent: {reason}", flush=True)
        return present

    def measure(self, what, function):
        """function(), or the Failed it raised; notes whether the machine was busy with something else, before or after."""
        self.measurements += 1
        busy = busy_fraction() > 0.1
        try:
            return function()
        except Failed as error:
            print(f"# {what}: {error}", flush=True)
            return error
        finally:
            self.disturbed += busy or busy_fraction() > 0.1

    def interleaved(self, cases):
        """cases: {key: function}. All functions take turns; {key: median, or Failed where any turn was}."""
        values, errors = collections.defaultdict(list), collections.defaultdict(list)
        for _ in range(self.plan.rounds):
            for key, function in cases.items():
                value = self.measure(key, function)
                if isinstance(value, Failed):
                    errors[key].append(value)
                else:
                    values[key].append(value)
        return {key: Failed(f"{len(errors[key])} of {self.plan.rounds} turns: {errors[key][-1]}") if errors[key]
                else statistics.median(values[key]) for key in cases}

    @staticmethod
    def is_small(network, size):
        return size <= SMALL and not network.rate

    def times(self, network, size, contenders):
        """{contender: time or Failed} of one allreduce, and of a ping-pong beside a small one."""
        iterations = ITERATIONS.get(size, 3) if not network.rate else 3
        cases = {contender: lambda contender=contender: self.runner.allreduce(contender, network, size, iterations)
                 for contender in contenders}
        if self.is_small(network, size):
            cases[PING_PONG] = lambda: self.runner.ping_pong(network.mtu)
        return self.interleaved(cases), iterations

    # (a)

    def switch(self):
        print("\n== XDP switch beside a program that only copies: ns per element, BPF_PROG_TEST_RUN")
        command = shlex.join(self.runner.switch_command(self.plan.switch_rounds))
        rows = self.measure("bench-switch", lambda: self.runner.switch(self.plan.switch_rounds))
        if isinstance(rows, Failed):
            self.add("switch_add_vs_copy_352", None, "ns/element", command=command, error=str(rows))
            return
        print(f"{'type':>9} {'elements':>8} {'ranks':>5} {'checked':>7} {'switch':>8} {'copy':>8} {'ratio':>6} {'with harness':>13}")
        for row in rows:
            checked = "_checked" if row["checked"] else ""
            net, with_harness = row["ratio"], row["ratio_with_driver"]
            print(f"{row['dtype']:>9} {row['elements']:>8} {row['ranks']:>5} {'yes' if checked else 'no':>7}"
                  f" {row['switch_ns_per_element']:>8.3f} {row['copy_ns_per_element']:>8.3f} {net:>6.2f} {with_harness:>13.2f}")
            only = (f"--elements {row['elements']} --ranks {row['ranks']} --dtype {row['dtype']}"
                    + ("" if checked else " --unchecked"))
            figures = {f"switch_{row['dtype']}_{row['elements']}_r{row['ranks']}{checked}":
                       (row["switch_ns_per_element"], "ns/element", net)}
            if (row["dtype"], row["elements"], row["ranks"], row["checked"]) == ("fixed32", 352, 8, False):
                # The bar is for what BPF_PROG_TEST_RUN says of both, its own time included.
                figures["switch_add_vs_copy_352"] = (with_harness, "our time over the copy's", with_harness)
                figures["switch_add_vs_copy_352_net"] = (net, "without the harness's", net)
            for name, (value, unit, ratio) in figures.items():
                self.add(name, value, unit, f"copy: {row['copy_ns_per_element']:.4g} ns/element net", ratio, f"{command} {only}",
                         ratio_with_harness=with_harness)

    # (b)

    def row(self, label, network, size, prefix):
        """One line of a table of times, and its figures; returns the times."""
        present = self.contenders()
        if self.is_small(network, size):
            present += [f"{transport}+fresh" for transport in TRANSPORTS]
        times, iterations = self.times(network, size, present)
        good = {name: value for name, value in times.items() if not isinstance(value, Failed)}
        ring = min(RINGS, key=good.get) if good.keys() >= set(RINGS) else None
        cells = "".join(f"{good[name]:>12.1f}" if name in good else f"{'-':>12}" for name in CONTENDERS)
        print(f"{label}{cells}", flush=True)
        if PING_PONG in times:
            self.add(f"{prefix}_{PING_PONG}", good.get(PING_PONG), "us", command=shlex.join(self.runner.ping_pong_command(network.mtu)),
                     **({} if PING_PONG in good else {"error": str(times[PING_PONG])}))
        for name in present:
            value = good.get(name)
            self.add(f"{prefix}_{name}", value, "us", f"{ring}: {good[ring]:.5g} us" if ring else "",
                     good[ring] / value if ring and value else None,
                     self.runner.repeat_command(name, network, size, iterations),
                     gbps=size * 8 / value / 1e3 if value else None,
                     **({} if value else {"error": str(times[name])}))
        return good

    def table_head(self, title, columns):
        print(f"\n== {title}: time in us, maximum over ranks of the median")
        print(columns + "".join(f"{name:>12}" for name in CONTENDERS))

    def free(self):
        self.table_head("allreduce of float32, links free (peers: plain bridge, offloads on)",
                        f"{'workers':>7} {'mtu':>5} {'size':>6}")
        best = {}
        for workers in self.plan.workers:
            for mtu in self.plan.mtus:
                for size in self.plan.sizes:
                    network = Network(workers, mtu)
                    good = self.row(f"{workers:>7} {mtu:>5} {text_of_size(size):>6}", network, size,
                                    f"allreduce_{text_of_size(size)}_n{workers}_mtu{mtu}")
                    best[workers, mtu, size] = good
        for size in self.plan.sizes:
            for workers in self.plan.workers:
                self.versus(best, workers, size)

    def versus(self, best, workers, size):
        """Our best transport at our best MTU against the best ring, and the best peer, at theirs: where all of those were
        measured, since without one the other would be called the best."""
        measured = {mtu: best[workers, mtu, size] for mtu in self.plan.mtus}

        def fastest(names):
            return min(((times[name], name, mtu) for mtu, times in measured.items() for name in names if name in times),
                       default=None)

        contenders = {"": TRANSPORTS}
        if size <= SMALL:
            contenders["_fresh"] = [f"{transport}+fresh" for transport in TRANSPORTS]
        for kind, ours in ((kind, fastest(names)) for kind, names in contenders.items()):
            for suffix, names in (("best_ring", RINGS), ("best_peer", PEERS)):
                lacking = sorted({name for times in measured.values() for name in names if name not in times})
                theirs = fastest(names) if not lacking else None
                ratio = theirs[0] / ours[0] if ours and theirs else None
                peer = f"{theirs[1]} at MTU {theirs[2]}: {theirs[0]:.5g} us" if theirs else f"not measured: {', '.join(lacking)}"
                command = ours and self.runner.repeat_command(ours[1], Network(workers, ours[2]), size, ITERATIONS[size])
                self.add(f"allreduce_{text_of_size(size)}_n{workers}{kind}_vs_{suffix}", ratio, "their time over ours",
                         peer, ratio, command or "", ours=f"{ours[1]} at MTU {ours[2]}: {ours[0]:.5g} us" if ours else "none measured")
        if size <= SMALL:
            self.versus_ping_pong(workers, size, fastest(TRANSPORTS), fastest([PING_PONG]))

    def versus_ping_pong(self, workers, size, ours, theirs):
        """Beside a datagram and its answer, which a sum of one packet cannot be faster than."""
        ratio = ours[0] / theirs[0] if ours and theirs else None
        self.add(f"allreduce_{text_of_size(size)}_n{workers}_vs_ping_pong", ratio, "our time over a UDP ping-pong's",
                 f"2 workers at MTU {theirs[2]}: {theirs[0]:.5g} us" if theirs else "not measured", ratio,
                 shlex.join(self.runner.ping_pong_command(theirs[2])) if theirs else "",
                 ours=f"{ours[1]} at MTU {ours[2]}: {ours[0]:.5g} us" if ours else "none measured")

    def limited(self):
        size = self.plan.limited_size
        self.table_head(f"allreduce of {text_of_size(size)} float32, links limited",
                        f"{'workers':>7} {'mtu':>5} {'rate':>8}")
        for rate in self.plan.rates:
            for mtu in self.plan.mtus:
                for workers in self.plan.limited_workers:
                    network = Network(workers, mtu, rate)
                    good = self.row(f"{workers:>7} {mtu:>5} {rate:>8}", network, size,
                                    f"limited_{rate}_n{workers}_mtu{mtu}")
                    self.fraction(network, size, good)

    def fraction(self, network, size, good):
        """Goodput over the rate at which the link can carry tensor."""
        payload = rate_of_text(network.rate) * payload_share(network.mtu)
        goodput = {name: size * 8 / time_us * 1e6 / payload for name, time_us in good.items()}
        ours = max((name for name in TRANSPORTS if name in goodput), key=goodput.get, default=None)
        ring = max(RINGS, key=goodput.get) if goodput.keys() >= set(RINGS) else None
        # A ring's frames have less of headers.
        bound = network.workers / (2 * (network.workers - 1)) * tcp_share(network.mtu) / payload_share(network.mtu)
        name = f"limited_link_n{network.workers}_fraction"
        first = (network.rate, network.mtu) == (self.plan.rates[0], self.plan.mtus[0])
        if not first:
            name += f"_{network.rate}_mtu{network.mtu}"
        self.add(name, goodput[ours] if ours else None, "goodput over payload rate",
                 f"{ring}: {goodput[ring]:.3g}; no ring can exceed {bound:.3g}" if ring else "none measured",
                 goodput[ours] / goodput[ring] if ours and ring else None,
                 self.runner.repeat_command(ours, network, size, 3) if ours else "", ours=ours)

    # (c)

    def loss(self):
        """Completion time under loss, relative to links that take the same path and lose nothing."""
        print("\n== completion time under loss, relative to none (4 workers, MTU 1500)")
        none = 1e-9  # keeps the program that drops frames in the path
        print(f"{'size':>6} {'transport':>9}" + "".join(f"{loss:>10.2%}" for loss in self.plan.losses))
        for size in self.plan.loss_sizes:
            cases = {(transport, loss): lambda t=transport, p=loss: self.runner.allreduce(
                t, Network(4, 1500, loss=p), size, ITERATIONS[size] * 2)
                for transport in TRANSPORTS for loss in (0, none, *self.plan.losses)}
            times = self.interleaved(cases)
            for transport in TRANSPORTS:
                self.inflation(size, transport, none, times)
        self.headline_loss(none)

    def inflation(self, size, transport, none, times):
        base, plain = times[transport, none], times[transport, 0]
        cells = ""
        for loss in self.plan.losses:
            value = times[transport, loss]
            measured = not isinstance(value, Failed) and not isinstance(base, Failed)
            ratio = value / base if measured else None
            cells += f"{ratio:>10.2f}" if measured else f"{'-':>10}"
            self.add(f"loss_{loss * 100:g}pct_{text_of_size(size)}_{transport}", ratio, "time over time without loss",
                     f"no loss: {base:.5g} us" if measured else "", ratio,
                     self.runner.repeat_command(transport, Network(4, 1500, loss=loss), size, ITERATIONS[size] * 2),
                     base_command=self.runner.repeat_command(transport, Network(4, 1500, loss=none), size,
                                                             ITERATIONS[size] * 2),
                     over_links_without_impairments=value / plain if measured and not isinstance(plain, Failed) else None,
                     **({} if measured else {"error": str(value if isinstance(value, Failed) else base)}))
        print(f"{text_of_size(size):>6} {transport:>9}{cells}", flush=True)
        self.loss_times = getattr(self, "loss_times", {})
        if not isinstance(base, Failed):
            self.loss_times[size, transport] = base

    def headline_loss(self, none):
        """loss_1pct_inflation: the largest tensor, the transport that is fastest without loss."""
        size = self.plan.loss_sizes[-1]
        usable = [transport for transport in TRANSPORTS if (size, transport) in getattr(self, "loss_times", {})]
        best = min(usable, key=lambda transport: self.loss_times[size, transport], default=None)
        for loss in self.plan.losses:
            name = f"loss_{loss * 100:g}pct"
            same = [result for result in self.results if result["name"] == f"{name}_{text_of_size(size)}_{best}"]
            figure = dict(same[0]) if same else {"value": None, "unit": "", "peer": "", "ratio": None, "command": ""}
            self.results.append({**figure, "name": f"{name}_inflation", "ours": best})

    def tcp(self):
        print("\n== ordinary TCP between two workers (iperf3, cubic): Gbit/s")
        seconds = self.plan.tcp_seconds
        rates = self.interleaved({switch: lambda switch=switch: self.runner.tcp(switch, seconds)
                                  for switch in ("none", "inaggd")})
        for label, switch in (("without the switch", "none"), ("with the switch attached", "inaggd")):
            value = rates[switch]
            print(f"{label:>26}: " + (f"{value:.2f}" if not isinstance(value, Failed) else str(value)))
        measured = not any(isinstance(value, Failed) for value in rates.values())
        self.add("tcp_with_switch_vs_without", rates["inaggd"] if measured else None, "Gbit/s",
                 f"plain bridge: {rates['none']:.4g} Gbit/s" if measured else "",
                 rates["inaggd"] / rates["none"] if measured else None,
                 shlex.join(self.runner.tcp_command("inaggd", seconds)), ratio_is="with over without")

    # (d)

    def script(self, name, *options):
        """Rows of a script, those before it failed if it did, and its command; it draws what it measured."""
        folder = self.build / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        plot = ["--plot", folder / f"{name}.png"] if importlib.util.find_spec("matplotlib") else []
        if not plot:
            print(f"# {name}: no plot: matplotlib is not installed (python3-matplotlib)")
        rows = self.measure(name, lambda: self.runner.script(name, *options, *plot))
        command = shlex.join(self.runner.script_command(name, *options))
        if isinstance(rows, Failed):
            self.add(f"{name}_failed", None, "", command=command, error=str(rows))
            rows = json_lines(rows.output)
        return rows, command

    def stragglers(self):
        print("\n== one of six ranks asleep: from when a block leaves another one to its result there")
        rows, command = self.script("stragglers", "--rounds", self.plan.rounds, *self.plan.straggler_options)
        print(f"{'blocks':>6} {'expiry':>7} {'sweeps':>6} {'median':>8} {'p99':>8} {'most':>8} {'bound':>8}, from the last"
              " to contribute: median, p99, ms")
        for row in rows:
            print(f"{row['window']:>6} {row['expiry_ms']:>4} ms {row['sweeps']:>6} {row['median_ms']:>8.1f}"
                  f" {row['p99_ms']:>8.1f} {row['most_ms']:>8.1f} {row['bound_ms']:>8.1f}"
                  f"  {row['sweep_median_ms']:>8.1f} {row['sweep_p99_ms']:>8.1f}", flush=True)
            sweeps = "" if row["sweeps"] == 4 else f"_sweeps{row['sweeps']}"
            self.add(f"straggler_{row['window']}_p99_ms_{row['expiry_ms']}{sweeps}", row["p99_ms"], "ms",
                     f"bound: {row['bound_ms']:.4g} ms", row["bound_ms"] / row["p99_ms"], command, ratio_is="bound over ours",
                     row=row)
        if rows:
            self.add("straggler_lost", sum(row["overflows"] for row in rows), "packets", "0: no ring was too small", None, command)

    def training(self):
        print("\n== training with slow workers: mean iteration, and time to an accuracy")
        rows, command = self.script("training", *self.plan.training_options)
        if not rows:
            return
        print(f"{'p':>6} {'contender':>9} {'iteration':>12} {'accuracy':>9} {'reference':>9} {'to ' + format(rows[0]['target'], '.0%'):>9}")
        for row in rows:
            reached = "-" if row["target_s"] is None else f"{row['target_s']:.1f} s"
            print(f"{row['probability']:>6.0%} {row['contender']:>9} {row['iteration_ms']:>9.1f} ms {row['accuracy']:>9.1%}"
                  f" {row['reference']:>9.1%} {reached:>9}", flush=True)
        self.training_figures({(row["contender"], round(row["probability"] * 100)): row for row in rows}, command)

    def training_figures(self, rows, command):
        """trio beside the others with the same slow workers, and beside the ideal: the fastest with none."""
        ideal = min((row for (_, percent), row in rows.items() if not percent), key=lambda row: row["iteration_ms"])
        for contender, percent in rows:
            row, ours = rows[contender, percent], rows.get(("trio", percent))
            self.add(f"training_p{percent}_{contender}", row["iteration_ms"], "ms an iteration",
                     f"{ideal['contender']} with nobody slow: {ideal['iteration_ms']:.4g} ms",
                     ideal["iteration_ms"] / row["iteration_ms"], command,
                     **{key: row[key] for key in ("accuracy", "reference", "target", "target_s", "skipped")})
            versus = {"trio": ("ideal", ideal)}.get(contender, (contender, row))
            if ours:
                self.add(f"training_p{percent}_vs_{versus[0]}", ours["iteration_ms"], "ms an iteration",
                         f"{versus[0]}: {versus[1]['iteration_ms']:.4g} ms",
                         versus[1]["iteration_ms"] / ours["iteration_ms"], command)

    def tenants(self):
        print("\n== atp: jobs that share slots, with a server behind")
        rows, command = self.script("tenants", "--rounds", self.plan.rounds, *self.plan.tenants_options)
        goodput = {(row["jobs"], row["fraction"], row["scheme"]): row["goodput_mbit"]
                   for row in rows if row["name"] == "tenants_slots"}
        for row in rows:
            name, value, unit, peer, ratio = self.tenants_figure(row, goodput)
            print(f"{name:>40} {value:>9.4g} {unit:<34} {peer}", flush=True)
            self.add(name, value, unit, peer, ratio, command, ratio_is="ours over the peer's", row=row)

    @staticmethod
    def tenants_figure(row, goodput):
        """Name, value, unit, peer (or what the paper says) and ratio."""
        kind, paper = row["name"], f"the paper: {row.get('paper')}"
        if kind == "tenants_slots":
            other = goodput.get((row["jobs"], row["fraction"], "partitioned"))
            return (f"{kind}_{row['scheme']}_n{row['jobs']}_{row['fraction']:g}", row["goodput_mbit"],
                    f"Mbit/s, Jain {row['jain']}", f"partitioned: {other} Mbit/s", row["goodput_mbit"] / other if other else None)
        if kind == "tenants_equals":
            return f"{kind}_n{row['jobs']}_{row['loss']:g}", row["jain"], "Jain, on a quarter of the slots", "", None
        if kind == "tenants_racks":
            return kind, row["ratio"], "of rack-only packets", paper, row["ratio"] * 3
        if kind == "tenants_loss":
            return f"{kind}_{row['algorithm']}_{row['loss']:g}", row["normalized"], "of the rate without loss", paper, None
        if kind == "tenants_windows":
            control = "with" if row["control"] else "without"
            return f"{kind}_{control}_control", row["goodput_mbit"], "Mbit/s", paper, None
        if kind == "tenants_greedy":
            return (f"{kind}_{row['algorithm']}", row["beside_greedy_mbit"], "Mbit/s beside a greedy job",
                    f"beside a heedful one: {row['beside_heedful_mbit']} Mbit/s", row["ratio"])
        return f"{kind}_{row['ecn']}", row["tcp_share"], f"TCP's share of {row['link_mbit']} Mbit/s", paper, None

    def verify(self):
        """What it costs that results are verified."""
        print("\n== time of an allreduce with a key, relative to none (MTU 1500)")
        for workers in self.plan.verify_workers:
            for size in self.plan.verify_sizes:
                network = Network(workers, 1500)
                cases = {name: lambda n=name, w=network, s=size: self.runner.allreduce(n, w, s, ITERATIONS[s] * 4)
                         for transport in VERIFYING for name in (transport, f"{transport}+key")}
                times = self.interleaved(cases)
                for transport in VERIFYING:
                    plain, keyed = times[transport], times[f"{transport}+key"]
                    name = f"verify_{workers}w_{text_of_size(size)}_{transport}"
                    if failed := next((time for time in (plain, keyed) if isinstance(time, Failed)), None):
                        self.add(name, None, "time over time without a key", error=str(failed))
                        continue
                    print(f"{workers} workers, {text_of_size(size):>4} {transport:>6} {keyed / plain:>6.3f}", flush=True)
                    self.add(name, keyed / plain, "time over time without a key",
                             f"no key: {plain:.5g} us", keyed / plain,
                             self.runner.repeat_command(f"{transport}+key", network, size, ITERATIONS[size] * 4))

    def ddp(self):
        print("\n== PyTorch, a convolutional network with DistributedDataParallel: median iteration")
        rows, command = self.script("ddp", "--rounds", self.plan.rounds, *self.plan.ddp_options)
        gloo = {(row["rate"], row["loss"]): row for row in rows if row["backend"] == "gloo"}
        for row in (row for row in rows if row["backend"] == "inagg"):
            other = gloo[row["rate"], row["loss"]]
            name, peer = f"ddp_{row['rate']}_loss{row['loss']:g}", f"gloo: {other['iteration_ms']:.4g} ms"
            print(f"{name:>24} {row['iteration_ms']:>8.1f} ms  {peer:<16} accuracy {row['accuracy']:.1%} and"
                  f" {other['accuracy']:.1%}", flush=True)
            self.add(name, row["iteration_ms"], "ms an iteration", peer, other["iteration_ms"] / row["iteration_ms"], command,
                     accuracy=row["accuracy"], in_switch=row["in_switch"])

    def write(self):
        """results.json; where it is."""
        folder = self.build / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "results.json"
        busy = {"name": "disturbed", "value": self.disturbed, "unit": f"of {self.measurements} measurements", "peer": "",
                "ratio": None, "command": ""}
        path.write_text(json.dumps([*self.results, busy], indent=1) + "\n")
        return path

    def summary(self):
        """The figures that others rely on. Are all there?"""
        print("\n== summary")
        complete = True
        for result in self.results:
            if result["name"] not in SUMMARY:
                complete = complete and "error" not in result
                continue
            complete = complete and result["value"] is not None
            value = "-" if result["value"] is None else f"{result['value']:.4g}"
            print(f"{result['name']:>34} {value:>9} {result['unit']:<28} {verdict(result):<32} {result['peer']}")
        if self.disturbed:
            print(f"# before or after {self.disturbed} of {self.measurements} measurements the machine was busy with"
                  " something else: repeat on an idle one before quoting")
        if not complete:
            print("# some of it could not be measured: see \"error\" in the results")
        return complete


def verdict(result):
    """Does a figure reach what it is to reach?"""
    name = result["name"]
    if name in RATIO_BARS:
        kind, bar, value, what = "least", RATIO_BARS[name], result["ratio"], ", as a ratio"
    else:
        (kind, bar), value, what = BARS.get(name, ("", None)), result["value"], ""
    if bar is None or value is None:
        return ""
    meets = value <= bar if kind == "most" else value >= bar
    return f"{'meets' if meets else 'MISSES'} at {kind} {bar:.3g}{what}"


def one_measurement(args, build):
    """--measure: repeat a single value."""
    network = Network(args.workers, args.mtu, args.rate)
    try:
        size = size_of_text(args.size)
        time_us = Runner(build).allreduce(args.measure, network, size, args.iterations)
    except Failed as error:
        sys.exit(f"bench: {args.measure}: {error}")
    print(f"{args.measure}: {time_us:.1f} us, {size * 8 / time_us / 1e3:.3f} Gbit/s")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, nargs="?", default=pathlib.Path("build"), help="build folder")
    parser.add_argument("--quick", action="store_true", help="fewer cases and one round: a few minutes")
    parser.add_argument("--only", type=lambda text: text.split(","), default=PARTS, metavar="PART,...",
                        help="of " + ", ".join(PARTS))
    parser.add_argument("--rounds", type=int, help="rounds that the contenders take turns in")
    one = parser.add_argument_group("one measurement")
    one.add_argument("--measure", choices=(*CONTENDERS, *(f"{transport}+fresh" for transport in TRANSPORTS),
                                               *(f"{transport}+key" for transport in VERIFYING)),
                     help="only this contender, with what follows")
    one.add_argument("--workers", type=int, default=8)
    one.add_argument("--mtu", type=int, default=1500)
    one.add_argument("--rate", default="")
    one.add_argument("--size", default="64M")
    one.add_argument("--iterations", type=int, default=3)
    args = parser.parse_args()
    for part in args.only:
        if part not in PARTS:
            parser.error(f"--only {part}: want some of {', '.join(PARTS)}")
    return args


def main():
    args = parse_arguments()
    if os.geteuid() != 0:
        sys.exit("bench: network namespaces and XDP need root: run it as root")
    if not (args.build / "bin" / "inagg-netns").exists():
        sys.exit(f"bench: {args.build / 'bin'} has no inagg-netns: run make first")
    if args.measure:
        return one_measurement(args, args.build)
    plan = QUICK if args.quick else Plan()
    if args.rounds:
        plan = dataclasses.replace(plan, rounds=args.rounds)
    bench = Bench(args.build, plan, args.only)
    started = time.monotonic()
    bench.conditions()
    status = 0
    try:
        for part in args.only:
            try:
                getattr(bench, part)()
            finally:
                path = bench.write()
    except KeyboardInterrupt:
        print("\n# interrupted: what has been measured is kept")
        status = 130
    complete = bench.summary()
    print(f"# {path}\n# {time.monotonic() - started:.0f} s")
    return status or (0 if complete else 1)


if __name__ == "__main__":
    sys.exit(main())
