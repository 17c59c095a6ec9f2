# SPDX-License-Identifier: BSD-2-Clause
"""One of the demo's workers: a quarter of every batch, gradients summed in the switch.

Started once per rank by inagg-netns. Rank 0 shows the progress. Every rank checks every sum: it knows
all data and all weights, so it can compute what the other ranks have sent. The findings go to
REPORTS/RANK.json, where demo.py reads them.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import time

import numpy as np
from tqdm import tqdm

import inagg
import model


def sum_bound(parts):
    """Largest error that fixed point and float32 may cause in the sum of these vectors.

    The ranks agree on 2**E above all magnitudes (SwitchML, Theorem 2): each contribution is rounded to a
    multiple of 2**(E - 30 + log2 ranks), and the sum once more to float32.
    """
    ranks = len(parts)
    exponent = int(np.frexp(np.abs(parts).max())[1])
    fixed = ranks * 2.0 ** (exponent - 30 + np.ceil(np.log2(ranks)))
    return fixed + np.abs(parts.sum(axis=0, dtype=np.float64)) * 2.0 ** -24


class Worker:
    def __init__(self, comm, args):
        self.comm = comm
        self.reference = json.load(open(args.reference))
        self.bar = args.bar
        self.network = model.Network(model.SEED if comm.rank == 0 else 1000 + comm.rank)
        self.sums = self.wrong_sums = 0
        self.worst = 0.0
        comm.broadcast(self.network.weights, root=0)

    def share(self, images, labels, rank):
        """What one rank contributes: the gradient and loss of every size-th image of the batch."""
        size = self.comm.size
        gradient, loss = self.network.gradient(images[rank::size], labels[rank::size])
        return np.append(gradient, np.float32(loss))

    def step(self, images, labels):
        """One global batch; returns its mean loss."""
        parts = np.stack([self.share(images, labels, rank) for rank in range(self.comm.size)])
        total = self.comm.allreduce(parts[self.comm.rank])
        error = np.abs(total.astype(np.float64) - parts.sum(axis=0, dtype=np.float64))
        bound = sum_bound(parts)
        self.sums += 1
        self.wrong_sums += bool((error > bound).any())
        self.worst = max(self.worst, float((error[bound > 0] / bound[bound > 0]).max(initial=0)))
        self.network.step(total[:-1])
        return float(total[-1])

    def train(self):
        """The curve: (loss, accuracy) by epoch."""
        images, labels, test_images, test_labels = model.load_data()
        steps = len(labels) // model.BATCH
        showing = self.comm.rank == 0
        curve = []
        with tqdm(total=model.EPOCHS * steps, disable=not (showing and self.bar), file=sys.stdout, unit="step", ncols=78) as bar:
            for epoch in range(model.EPOCHS):
                bar.set_description(f"epoch {epoch + 1}/{model.EPOCHS}", refresh=False)
                losses = []
                for batch in model.batches(images, labels, epoch):
                    losses.append(self.step(*batch))
                    bar.update()
                curve.append((float(np.mean(losses)), self.network.accuracy(test_images, test_labels)))
                if showing:
                    tqdm.write(self.line(epoch, *curve[-1]))
        return curve

    def line(self, epoch, loss, accuracy):
        """An epoch beside the same epoch of the reference."""
        reference_loss, reference_accuracy = self.reference[epoch]
        return (f"epoch {epoch + 1:2}   loss {loss:.5f} ({reference_loss:.5f} alone)"
                f"   accuracy {accuracy:6.2%} ({reference_accuracy:6.2%} alone)")


def switch_counters():
    """The switch's own counters of this job."""
    output = subprocess.run(["inaggctl", "stats", "--json"], check=True, capture_output=True, text=True).stdout
    job = int(os.environ["INAGG_JOB"])
    return next(row for row in json.loads(output) if row["job"] == job)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", required=True)
    parser.add_argument("--reports", required=True)
    parser.add_argument("--bar", action="store_true", help="show a progress bar, on a terminal")
    args = parser.parse_args()
    with inagg.Communicator() as comm:
        worker = Worker(comm, args)
        curve = worker.train()
        comm.barrier()  # every block is complete now, and nobody sends another one
        report = {
            "rank": comm.rank,
            "transport": comm.transport,
            "curve": curve,
            "sums": worker.sums,
            "wrong_sums": worker.wrong_sums,
            "worst_error": worker.worst,
            "weights": hashlib.sha256(worker.network.weights.tobytes()).hexdigest(),
            "stats": comm.stats(),
            "switch": switch_counters() if comm.rank == 0 else None,
        }
        with open(f"{args.reports}/{comm.rank}.json", "w") as file:
            json.dump(report, file)
        while not os.path.exists(f"{args.reports}/0.json"):  # it has the switch's counters; ranks leave with one block more
            time.sleep(0.01)


if __name__ == "__main__":
    main()
