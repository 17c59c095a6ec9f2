# SPDX-License-Identifier: BSD-2-Clause
"""Train a network on four workers whose gradients are summed in an XDP switch, on links that lose frames.

Beside it stands a single process that learns from the same batches. What counts is in `checks`.
"""
import argparse
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback

WORKERS = 4
LOSS = 0.01
ACCURACY_TOLERANCE = 0.005  # one image of 357 in 3 is 0.0028
LOSS_TOLERANCE = 0.001  # of the reference's loss, for each epoch
TIMEOUT = "80s"

HERE = pathlib.Path(__file__).resolve().parent


class Failure(Exception):
    """The demo cannot pass; the text says why."""


def train(build, folder, transport):
    """Run the workers; returns their reports and the counters of the links."""
    tool = build / "bin" / "inagg-netns"
    if not tool.exists():
        raise Failure(f"{tool} does not exist: run make first")
    if os.geteuid() != 0:
        raise Failure("network namespaces and XDP need root: run it as root")
    summary = folder / "links.json"
    command = [str(tool), "run", "--workers", str(WORKERS), "--loss", str(LOSS), "--transport", transport,
               "--timeout", TIMEOUT, "--no-prefix", "--quiet-ranks", "--json-summary", str(summary), "--",
               sys.executable, "-u", str(HERE / "worker.py"), "--reference", str(folder / "reference.json"),
               "--reports", str(folder)] + ["--bar"] * sys.stdout.isatty()
    print("$", shlex.join(command), flush=True)
    python = [str(HERE.parent.parent / "userspace" / "python"), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, python)),
                       INAGG_LIBRARY=str(build / "lib" / "libinagg.so"),
                       OPENBLAS_NUM_THREADS="1")  # four workers on few cores, and the same bits in all of them
    process = subprocess.Popen(command, env=environment)
    try:
        status = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if status:
        raise Failure(f"inagg-netns ended with status {status}; its messages are above")
    reports = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORKERS)]
    return reports, json.loads(summary.read_text())["total"]


def checks(reports, links, reference):
    """Pairs of a statement and whether it holds."""
    first = reports[0]
    blocks = first["stats"]["blocks"]
    additions = first["switch"]["additions"]
    resent = sum(report["stats"]["retransmissions"] for report in reports)
    drift = max(abs(ours - theirs) / theirs for (ours, _), (theirs, _) in zip(first["curve"], reference))
    accuracy, expected = first["curve"][-1][1], reference[-1][1]
    sums = sum(report["sums"] for report in reports)
    wrong = sum(report["wrong_sums"] for report in reports)
    worst = max(report["worst_error"] for report in reports)
    return [
        (f"links dropped {links['dropped']:,} of {links['frames']:,} frames", links["dropped"] > 0),
        (f"workers sent {resent:,} contributions again", resent > 0),
        (f"the switch made {additions:,} additions = {WORKERS} ranks x {blocks:,} blocks",
         additions == WORKERS * blocks and all(report["stats"]["blocks"] == blocks for report in reports)),
        (f"{sums - wrong:,} of {sums:,} gradients are the exact sum within fixed-point rounding"
         f" (worst: {worst:.0%} of the bound)", sums > 0 and wrong == 0),
        (f"all ranks have the same weights, bit for bit: {first['weights'][:16]}",
         len({report["weights"] for report in reports}) == 1),
        (f"every epoch's loss is within {LOSS_TOLERANCE:.1%} of the reference's (largest difference {drift:.1e})",
         drift <= LOSS_TOLERANCE),
        (f"final accuracy {accuracy:.2%} is within {ACCURACY_TOLERANCE:.1%} of the reference's {expected:.2%}",
         abs(accuracy - expected) <= ACCURACY_TOLERANCE),
        (f"it has learned: {accuracy:.2%} of images it has never seen are read right", accuracy >= 0.93),
    ]


def load_model():
    try:
        import model
    except ImportError as missing:
        raise Failure(f"{missing}: it takes NumPy and scikit-learn (make deps, or python3-sklearn)") from missing
    return model


def run(args):
    start = time.monotonic()
    model = load_model()
    with tempfile.TemporaryDirectory(prefix="inagg-demo-") as name:
        folder = pathlib.Path(name)
        print(f"A network {'-'.join(map(str, model.LAYERS))} learns to read handwritten digits (scikit-learn).")
        print("First alone, as the reference ...", flush=True)
        reference = model.train_alone()
        (folder / "reference.json").write_text(json.dumps(reference))
        print(f"... then on {WORKERS} workers through the switch, {LOSS:.0%} of all frames lost each way:", flush=True)
        reports, links = train(args.build.resolve(), folder, args.transport)
    print(f"\nChecks ({reports[0]['transport']} transport, {time.monotonic() - start:.0f} s):")
    failed = []
    for statement, holds in checks(reports, links, reference):
        print(f"  [{'ok' if holds else 'FAILED'}] {statement}")
        if not holds:
            failed.append(statement)
    if failed:
        raise Failure("; ".join(failed))


def end(*_):
    print("demo: FAIL ended by a signal", flush=True)
    sys.exit(128 + signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, nargs="?", default=pathlib.Path("build"), help="build folder")
    parser.add_argument("--transport", default="auto", help="udp, kernel, afxdp, xdp or auto")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    try:
        run(args)
    except Failure as failure:
        print(f"demo: FAIL {failure}")
        return 1
    except KeyboardInterrupt:
        print("demo: FAIL interrupted")
        return 130
    except Exception as error:
        traceback.print_exc()
        print(f"demo: FAIL {type(error).__name__}: {error}")
        return 1
    print("demo: PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
