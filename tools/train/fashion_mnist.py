#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Trains a small convolutional network on Fashion-MNIST with DistributedDataParallel: plain PyTorch.

Run it on each rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, as torchrun does:

    torchrun --nproc-per-node 2 tools/train/fashion_mnist.py --backend gloo
    inagg-netns run --workers 4 -- tools/train/fashion_mnist.py --backend inagg

Each rank prints a line of JSON at the end: loss by iteration, accuracy by epoch, time per iteration, a hash of the
weights and, with inagg, what went through the switch.
"""

import argparse
import gzip
import hashlib
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DATA = Path("/usr/share/datasets/fashion-mnist")  # Debian: dataset-fashion-mnist


def load(part, count):
    """The first `count` images of a part of the data, and what they show."""
    with gzip.open(DATA / f"{part}-images-idx3-ubyte.gz") as file:
        images = torch.frombuffer(bytearray(file.read(16 + count * 28 * 28)), dtype=torch.uint8, offset=16)
    with gzip.open(DATA / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = torch.frombuffer(bytearray(file.read(8 + count)), dtype=torch.uint8, offset=8)
    return TensorDataset(images.view(-1, 1, 28, 28).float() / 255, labels.long())


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 256), nn.ReLU(), nn.Linear(256, 10))


def train_epoch(model, optimizer, batches):
    """Losses, averaged over the ranks, and seconds, by iteration."""
    losses, seconds = [], []
    model.train()
    for images, labels in batches:
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        seconds.append(time.perf_counter() - start)
    mean = torch.stack(losses)
    dist.all_reduce(mean)
    return (mean / dist.get_world_size()).tolist(), seconds


@torch.no_grad()
def accuracy(model, batches):
    """Part of all ranks' images that is recognised."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64)
    for images, labels in batches:
        counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)])
    dist.all_reduce(counts)
    return counts[0].item() / counts[1].item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="gloo", help="of torch.distributed: gloo, inagg, ...")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=12000, help="of 60000 to learn from")
    parser.add_argument("--tests", type=int, default=2000, help="of 10000 to test with")
    parser.add_argument("--batch", type=int, default=32, help="images of each rank in an iteration")
    parser.add_argument("--rate", type=float, default=0.02, help="of learning")
    parser.add_argument("--bucket", type=float, default=1, help="MiB of gradients that DDP sends together")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(2)
    if arguments.backend == "inagg":
        import inagg.torch
    dist.init_process_group(arguments.backend)
    train, test = load("train", arguments.images), load("t10k", arguments.tests)
    sampler = DistributedSampler(train, seed=2)
    train_batches = DataLoader(train, arguments.batch, sampler=sampler, drop_last=True)
    test_batches = DataLoader(test, 100, sampler=DistributedSampler(test, shuffle=False))
    model = DistributedDataParallel(network(), bucket_cap_mb=arguments.bucket)
    optimizer = torch.optim.SGD(model.parameters(), arguments.rate, momentum=0.9)

    losses, seconds, accuracies = [], [], []
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        more_losses, more_seconds = train_epoch(model, optimizer, train_batches)
        losses += more_losses
        seconds += more_seconds
        accuracies.append(accuracy(model.module, test_batches))
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {statistics.mean(more_losses):.4f}, accuracy {accuracies[-1]:.2%}, "
                  f"{statistics.median(more_seconds) * 1e3:.1f} ms per iteration", file=sys.stderr)

    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    report = {"rank": dist.get_rank(), "backend": dist.get_backend(), "loss": losses, "accuracy": accuracies,
              "iteration_ms": statistics.median(seconds) * 1e3, "weights": hashlib.sha256(weights).hexdigest(),
              "weight_bytes": len(weights)}
    if dist.get_backend() == "inagg":
        report["stats"] = inagg_stats()
    print(json.dumps(report), flush=True)


def inagg_stats():
    import inagg.torch

    return inagg.torch.stats()


if __name__ == "__main__":
    main()
    # Not while there is a model: if its end is that of Gloo's group, torch 1.13 may wait for itself for ever.
    dist.destroy_process_group()
