#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A rank of a job whose sums depend on the order of additions: `tree_sums.py ROUNDS ELEMENTS RACK [RACK...]`, with the number
of ranks in each rack.

Every rank knows what all of them bring, so it can add as the switches are to: in float32, the ranks of a rack, and then the
racks, in a binary tree. All rounds must give these very bits, and what they differ from the true sum by is bounded."""

import sys

import numpy as np

import inagg

EPSILON = np.finfo(np.float32).eps / 2  # of one rounding


def numbers(rank, elements):
    """Of all magnitudes within 2^20, so that most additions round."""
    random = np.random.default_rng(rank)
    return (random.standard_normal(elements) * 2.0 ** random.integers(-10, 10, elements)).astype(np.float32)


def tree_sum(terms):
    """PANAMA's adder tree: pairs, pairs of pairs, ...; who has no partner goes on alone."""
    while len(terms) > 1:
        terms = [terms[i] + terms[i + 1] if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]


def main():
    rounds, elements, *racks = map(int, sys.argv[1:])
    with inagg.Communicator() as comm:
        terms = [numbers(rank, elements) for rank in range(comm.size)]
        assert sum(racks) == comm.size
        first = np.cumsum([0, *racks])
        expected = tree_sum([tree_sum(terms[first[i]:first[i + 1]]) for i in range(len(racks))])
        for done in range(rounds):
            result = comm.allreduce(terms[comm.rank])
            different = np.flatnonzero(result.view(np.uint32) != expected.view(np.uint32))
            assert not different.size, f"round {done}: {different.size} elements, the first at {different[0]}"
        exact = sum(term.astype(np.longdouble) for term in terms)
        depth = np.ceil(np.log2(comm.size)) + len(racks)
        bound = depth * EPSILON * sum(abs(term.astype(np.longdouble)) for term in terms)
        assert np.all(abs(expected - exact) <= bound)
        order = sum(terms[1:], terms[0])
        print(f"{rounds} rounds, {np.count_nonzero(order != expected)} of {elements} elements depend on the order")


main()
