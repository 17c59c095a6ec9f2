# SPDX-License-Identifier: BSD-2-Clause
"""What takes part in the benchmark, and how one measurement of it is made.

Every contender runs under inagg-netns: inagg with its switch, the peers on a plain Linux bridge between
the same veths, segmentation offload on. All report the maximum over ranks of the median time.
"""
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TRANSPORTS = ("udp", "afxdp", "xdp")
CUBIC = str(HERE / "cubic-rank")
# What a transport with "+key" or "+fresh" has beside the transport.
KEY = ["env", "INAGG_KEY=000102030405060708090a0b0c0d0e0f"]
FRESH = ["--tensors", "3"]  # each call's scale is another than those before, from which scales are guessed
RINGS = ("mpi-ring", "gloo-ring")
PEERS = RINGS + ("mpi-default", "gloo-bcube")
CONTENDERS = TRANSPORTS + PEERS
MPI_ALGORITHMS = {
    "default": [], "ring": ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4"]}
TIMEOUT = 180  # seconds for one measurement
SCRIPT_TIMEOUT = 3600


class Failed(Exception):
    """A measurement that gave no number; the text says why. `output` is what it had printed."""

    def __init__(self, text, output=""):
        super().__init__(text)
        self.output = output


@dataclasses.dataclass(frozen=True)
class Network:
    """The links of a measurement."""
    workers: int
    mtu: int = 1500
    rate: str = ""
    loss: float = 0.0

    def options(self):
        """As inagg-netns takes them."""
        options = ["--workers", str(self.workers), "--mtu", str(self.mtu)]
        if self.rate:
            options += ["--rate", self.rate]
        if self.loss:
            options += ["--loss", f"{self.loss:.10f}".rstrip("0")]
        return options


def text_of_size(size):
    """4096 -> 4K"""
    for unit, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def size_of_text(text):
    """4K -> 4096"""
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    return int(text if factor == 1 else text[:-1]) * factor


def run(command, timeout=TIMEOUT):
    """Standard output of a command; raises Failed with its last words. At the limit it is asked to end, with all that it has
    started."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True)
    except OSError as error:
        raise Failed(str(error)) from error
    late = False
    try:
        output, said = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(process.pid, signal.SIGTERM)
        output, said = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    if late:
        raise Failed(f"not finished after {timeout} s", output)
    if process.returncode:
        lines = [line for line in said.splitlines() if "[info]" not in line]
        raise Failed("; ".join(lines[-4:]) or f"status {process.returncode}", output)
    return output


def json_lines(text):
    """All objects, one a line; other lines are skipped."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Runner:
    """Makes measurements with the programs of one build folder."""

    def __init__(self, build):
        self.build = build
        self.bin = build.resolve() / "bin"

    def missing(self, contender):
        """Why the contender cannot run here; empty if it can."""
        if contender.startswith("mpi-") and not (self.bin / "mpi-allreduce").exists():
            return "Open MPI is not installed (openmpi-bin, libopenmpi-dev), or was not when this was built"
        if contender.startswith("gloo-") and not (self.bin / "gloo-allreduce").exists():
            return "Gloo is not installed (libgloo-dev), or was not when this was built"
        return ""

    def netns(self, network, *options):
        """The start of a command line that puts a command on every worker."""
        return [str(self.bin / "inagg-netns"), "run", *network.options(), "--no-prefix", "--quiet-ranks",
                "--timeout", f"{TIMEOUT - 10}s", *options, "--"]

    def allreduce_command(self, contender, network, size, iterations, folder="DIRECTORY"):
        """The command of one measurement. FOLDER is where the ranks of a peer meet: new and empty."""
        transport, _, more = contender.partition("+")
        if transport in TRANSPORTS:
            return self.netns(network, "--transport", transport) + (KEY if more == "key" else []) + [
                str(self.bin / "inagg-perf"), "allreduce", "-b", text_of_size(size), "-e", text_of_size(size),
                "-n", str(iterations), "-w", str(iterations // 5 + 1), "--check", "--check-iterations", "1", "--json",
                *(FRESH if more == "fresh" else [])]
        library, algorithm = contender.split("-")
        if library == "mpi":
            start = ["mpirun", *MPI_ALGORITHMS[algorithm], CUBIC]
        else:
            start = [CUBIC, str(HERE / "gloo-rank"), str(folder), algorithm]
        return self.netns(network, "--switch", "none") + start + [
            str(self.bin / f"{library}-allreduce"), f"{size}:{iterations}"]

    def allreduce(self, contender, network, size, iterations):
        """Time of one allreduce of float32 in microseconds."""
        with tempfile.TemporaryDirectory(prefix="inagg-bench-") as folder:
            rows = json_lines(run(self.allreduce_command(contender, network, size, iterations, folder)))
        times = [row["time_us"] for row in rows if "time_us" in row]
        if len(times) != 1:
            raise Failed(f"printed {len(times)} times instead of one")
        if any(row.get("wrong") for row in rows):
            raise Failed("summed wrongly")
        return times[0]

    def repeat_command(self, contender, network, size, iterations):
        """The command to show: it repeats the measurement."""
        if contender.partition("+")[0] in TRANSPORTS:
            return shlex.join(self.allreduce_command(contender, network, size, iterations)).replace(
                str(self.bin), str(self.build / "bin"))
        command = f"tools/bench/run {self.build} --measure {contender} --workers {network.workers} --mtu {network.mtu}"
        command += f" --size {text_of_size(size)} --iterations {iterations}"
        return command + (f" --rate {network.rate}" if network.rate else "")

    def between_two(self, mtu, switch, *command):
        """The same for a program of which rank 1 prints what it finds; SWITCH is "inaggd", or "none": a plain bridge."""
        return [option for option in self.netns(Network(2, mtu), "--switch", switch) if option != "--quiet-ranks"] + list(command)

    def ping_pong_command(self, mtu):
        """sockperf through the bridge: the largest datagrams that one packet carries."""
        return self.between_two(mtu, "none", str(HERE / "ping-rank"), str(mtu - 28), "2")

    def ping_pong(self, mtu):
        """Median time of a datagram and its answer in microseconds."""
        output = run(self.ping_pong_command(mtu))
        median = re.search(r"percentile 50\.000 =\s*([0-9.]+)", output)
        if not median:
            raise Failed("sockperf printed no median", output)
        return float(median[1])

    def tcp_command(self, switch, seconds):
        """iperf3 through the ports, with ("inaggd") or without ("none") the switch on them."""
        return self.between_two(1500, switch, CUBIC, str(HERE / "tcp-rank"), str(seconds))

    def tcp(self, switch, seconds):
        """Gbit/s of one TCP connection."""
        rows = [row for row in json_lines(run(self.tcp_command(switch, seconds))) if "end" in row]
        if len(rows) != 1:
            raise Failed("iperf3 printed no result")
        return rows[0]["end"]["sum_received"]["bits_per_second"] / 1e9

    def script_command(self, script, *options):
        """A script of this folder that prints rows by itself."""
        return [f"tools/bench/{script}", str(self.build), *map(str, options)]

    def script(self, script, *options):
        """Rows of such a script."""
        return json_lines(run([str(HERE / script), str(self.build), *map(str, options)], timeout=SCRIPT_TIMEOUT))

    def switch_command(self, rounds, *options):
        return [str(self.build / "bin" / "bench-switch"), "--rounds", str(rounds), *options]

    def switch(self, rounds):
        """Rows of bench-switch."""
        return json_lines(run(self.switch_command(rounds), timeout=900))
