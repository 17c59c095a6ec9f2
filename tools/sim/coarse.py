#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""inagg-sim's network without packets: rates instead, so that 16,384 hosts take seconds.

What is the same: leaves and spines, which hosts sum, trees' roots, and who sends to whom next (the draws are ns-3's, so a seed means
the same ones), blocks, windows, frames' lengths, acknowledgements. Links never drop (inagg-sim --buffer). Time goes in steps, a
quarter of a message on a free link. In each, all that move have max-min fair rates of what they ask for:

- trees: each leaf sends as far as its ranks' windows allow; a root has what all have sent; each leaf takes that at its own rate. Several
  trees of a job pass its network cards in turn, a window of each, and one that is slow keeps the others waiting when buffers are full;
- canary: a flow for each spine that slots prefer, since slots are chains of blocks that do not help one another. Its rate is at most its
  window over its round trip, with what queues on the way take (Little);
- messages of hosts without a job, and a ring's hops, are flows. A message waits where its preferred spine does not take it, and goes by
  a less loaded one when that buffer and then the long queue are full. A ring is as fast as its slowest hop, or, if that is less, as
  all of its hops with their delays on average;
- on the way up trees have their spine and the others yield; on the way down there is no choice.

To that comes a fixed time: what the first block takes on an empty path, that ranks do not begin at once, and of canary a window's time,
because leaders' results wait behind their own elements. No constant is fitted, but the rules were chosen with runs of inagg-sim with 64 to
1,024 hosts at hand: what it says of others is the check.

What is missing: canary's timers and what comes after them, one packet for each rank; packets that cannot go on and have others behind
them, except as above; losses. docs/SCALING.md says how far it is off.
"""

import argparse
import resource
import sys
import time

import numpy

INAGG, SEGMENT, ACK = 66 + 64, 66 + 20, 66 + 20  # headers on a link: frame.hpp
WARM_UP = 50e-6  # before the jobs begin
JITTER = 1e-6  # ranks begin within it
RANKS = 64  # that a packet of canary names
STEPS_OF_A_MESSAGE = 4
LIMIT = 10.0  # simulated seconds


class Draws:
    """ns-3's MRG32k3a (L'Ecuyer), first stream, the run being the seed."""

    M1, M2 = 4294967087, 4294944443

    def __init__(self, seed):
        self.x = self._substream(((0, 1, 0), (0, 0, 1), (-810728, 1403580, 0)), self.M1, seed)
        self.y = self._substream(((0, 1, 0), (0, 0, 1), (-1370589, 0, 527612)), self.M2, seed)

    @staticmethod
    def _substream(step, modulus, seed):
        power = numpy.array(step, dtype=object)
        for _ in range(76):  # substreams are 2^76 numbers apart
            power = power.dot(power) % modulus
        state = numpy.array([1, 1, 1], dtype=object)
        while seed:
            if seed & 1:
                state = power.dot(state) % modulus
            power, seed = power.dot(power) % modulus, seed >> 1
        return list(map(int, state))

    def below(self, n):
        x, y = self.x, self.y
        p, q = (1403580 * x[1] - 810728 * x[0]) % self.M1, (527612 * y[2] - 1370589 * y[0]) % self.M2
        self.x, self.y = [x[1], x[2], p], [y[1], y[2], q]
        return int((p - q if p > q else p - q + self.M1) / (self.M1 + 1) * n)

    def shuffled(self, n):
        row = list(range(n))
        for i in range(n, 1, -1):
            other = self.below(i)
            row[i - 1], row[other] = row[other], row[i - 1]
        return row


def max_min(capacity, demand, flow, link, weight):
    """Max-min fair rates of at most `demand`; which link keeps each from that, or -1; and what links carry.

    Edge i: `flow[i]`, which ascends, takes `weight[i]` times its rate of `link[i]`.

    All flows rise together until a link is full. A link where none of its flows stops earlier, elsewhere, settles at once what all of
    them get, so that many settle in one round.
    """
    rate, left, flows = demand.copy(), capacity.copy(), len(demand)
    blocked = numpy.full(flows, -1)
    limit_of = numpy.empty(flows)
    while flow.size:
        load = numpy.bincount(link, weight, len(capacity))
        level = numpy.maximum(left, 0) / numpy.where(load > 0, load, 1)
        first = numpy.flatnonzero(numpy.r_[True, flow[1:] != flow[:-1]])
        who, at = flow[first], level[link]
        reach = numpy.minimum.reduceat(at, first)
        limit_of[who] = limit = numpy.minimum(reach, demand[who])
        unsettled = numpy.bincount(link, limit_of[flow] < at * (1 - 1e-9), len(capacity)) > 0
        stops = numpy.logical_or.reduceat(~unsettled[link], first) | (demand[who] <= reach)
        rate[who[stops]] = limit[stops]
        full = ~unsettled[link]
        full[full] = rate[flow[full]] < demand[flow[full]]
        blocked[flow[full]] = link[full]
        stopped = numpy.zeros(flows, bool)
        stopped[who[stops]] = True
        gone = stopped[flow]
        left -= numpy.bincount(link[gone], weight[gone] * rate[flow[gone]], len(capacity))
        flow, link, weight = flow[~gone], link[~gone], weight[~gone]
    return rate, blocked, capacity - left


class Network:
    """Numbers of links: up and down between each leaf and spine, all up links of a leaf together, down links of hosts, others' own.

    All up links of a leaf together limit those that can choose one.
    """

    def __init__(self, options):
        # A rack has no spine: nothing crosses what is numbered here.
        self.leaves, self.spines, self.hosts = options.leaves, max(options.spines, 1), options.leaves * options.hosts
        self.hosts_each = options.hosts
        self.card, self.link = options.host_rate, options.link_rate  # bit/s of hosts' links, and of those between switches
        fabric = self.leaves * self.spines
        self.down_0, self.pool_0, self.host_0 = fabric, 2 * fabric, 2 * fabric + self.leaves
        self.capacity = numpy.full(self.host_0 + self.hosts, self.link)
        self.capacity[self.pool_0:self.host_0], self.capacity[self.host_0:] = self.link * self.spines, self.card

    def add_links(self, count):
        """Links of their own; gives the first one's number."""
        self.capacity = numpy.r_[self.capacity, numpy.full(count, self.card)]
        return len(self.capacity) - count

    def up(self, leaf, spine):
        return leaf * self.spines + spine

    def down(self, leaf, spine):
        return self.down_0 + leaf * self.spines + spine


def way(options, bits, crosses):
    """Seconds of a packet from host to host: two links, and two between switches if it leaves its leaf."""
    return (2 + 2 * crosses) * options.delay * 1e-9 + 2 * bits / options.host_rate + 2 * crosses * bits / options.link_rate


class Work:
    """What jobs have on switches: a tree, or canary's slots that prefer one spine. Each ends with its part of the job's blocks."""

    passes = 1  # of a block through network cards

    def __init__(self, options, network, jobs):
        self.network, self.slots, self.buffer = network, options.slots, options.buffer * 8
        self.block, self.frame = options.elements * 32, options.elements * 32 + INAGG * 8
        self.weight = self.frame / self.block
        self.blocks = -(-options.size // (4 * options.elements))
        rows, edges, cards = [], [], []
        for number, job in enumerate(jobs):
            leaves, ranks = numpy.unique(job["leaves"], return_counts=True)
            path = way(options, self.frame, len(leaves) > 1) * self.passes
            for spine, count, slots in self.parts(options, job):
                edges += [(len(rows), leaf, n / ranks.sum(), spine, len(cards) + i) for i, (leaf, n) in enumerate(zip(leaves, ranks))]
                rows.append((number, count * self.block, slots * self.block, path))
            cards += [len(leaves) > 1] * len(leaves)
            job["latency"] = JITTER + path + self.wait_at_first()
        job, total, self.window, self.path = (numpy.array(column, float) for column in zip(*rows))
        self.job, self.left = job.astype(int), total
        self.ended = numpy.zeros(len(rows))
        group, leaf, self.share, spine, card = (numpy.array(column) for column in zip(*edges))
        self.group, self.leaf, self.card, self.links = group, leaf, card, network.up(leaf, spine)  # down from down_0 on
        self.first = numpy.flatnonzero(numpy.r_[True, group[1:] != group[:-1]])
        self.crosses = numpy.array(cards)[card]
        self.rate = network.card / self.weight / numpy.bincount(self.job)[self.job]
        self.own_time = self.slots * self.frame / network.card  # of a window in a network card

    def wait_at_first(self):
        return 0.0

    def see(self, link, load):
        """What links carry."""

    def wait(self, up, down):
        """How long the queues of links take."""

    def seconds(self, jobs):
        return [self.ended[self.job == number].max() + job["latency"] for number, job in enumerate(jobs)]

    def count_down(self, rate, now, step):
        before, self.left, self.rate = self.left, self.left - rate * step, rate
        ends = (before > 0) & (self.left <= 1)
        self.ended[ends] = now + before[ends] / rate[ends]
        self.left[ends] = 0

    def by_link(self, amounts):
        """Of what crosses the fabric."""
        return numpy.bincount(self.links[self.crosses], amounts[self.crosses], self.network.down_0)


class Trees(Work):
    """Each leaf sends as far as its window allows beyond what it has had; the root has what all have sent, and each leaf takes that."""

    def __init__(self, options, network, jobs):
        super().__init__(options, network, jobs)
        self.cards = network.add_links(2 * (self.card.max() + 1))
        self.sent, self.had = numpy.zeros((2, len(self.group)))
        self.sending = self.taking = self.rate[self.group]
        self.burst = numpy.full(len(self.job), self.own_time)
        self.drain = self.burst.copy()

    def parts(self, options, job):
        """Root, blocks and slots."""
        return [(job["roots"][tree], -(-(self.blocks - tree) // options.trees), options.slots)
                for tree in range(min(options.trees, self.blocks))]

    def fixed(self):
        """What takes up links and does not yield."""
        return self.by_link(self.weight * self.sending)

    def yielding(self):
        return numpy.zeros(self.network.down_0)

    carried_up = fixed

    def turn(self):
        """Rate of a tree while all take turns.

        A rank opens the windows of its trees one after the other, and so they pass its network card for ever: a burst of each in turn.
        What a tree does not take at once waits in buffers, and what finds none keeps the bursts behind it waiting.
        """
        open_ = self.left > 0
        bursts, slowest = numpy.bincount(self.job, self.burst * open_), numpy.zeros(self.job.max() + 1)
        numpy.maximum.at(slowest, self.job, numpy.maximum(self.drain, self.path) * open_)
        alone = numpy.bincount(self.job, open_) < 2  # meets the others' rates in max_min()
        turn = numpy.where(alone, self.own_time, numpy.maximum(bursts, slowest))
        return self.window / turn[self.job]

    def edges(self, kept, others, step):
        n, count = self.network, len(self.group)
        open_, limit = (self.left > 0)[self.group], self.turn()[self.group]
        demand = numpy.r_[numpy.minimum((self.window[self.group] - self.sent + self.had) / step + self.taking, limit) * open_,
                          ((self.root() - self.had) / step + numpy.minimum.reduceat(self.sending, self.first)[self.group]) * open_]
        every, across = numpy.arange(count), numpy.flatnonzero(self.crosses)
        card = self.cards + 2 * self.card
        parts = [(every, card), (count + every, card + 1), (across, n.pool_0 + self.leaf[across]),
                 (across, self.links[across]), (count + across, n.down_0 + self.links[across])]
        return demand, [(flow, link, numpy.full(len(flow), self.weight)) for flow, link in parts]

    def root(self):
        return numpy.minimum.reduceat(self.sent, self.first)[self.group]

    def advance(self, rate, blocked, now, step):
        count = len(self.group)
        self.sending, before = rate[:count], self.had
        self.sent = numpy.minimum(self.sent + rate[:count] * step, self.had + rate[count:] * step + self.window[self.group])
        self.had = numpy.minimum(self.had + rate[count:] * step, self.root())
        self.taking = (self.had - before) / step
        least = numpy.minimum.reduceat(self.had, self.first) - numpy.minimum.reduceat(before, self.first)
        self.count_down(least / step, now, step)

    def see(self, link, load):
        """How fast bursts would pass links that others use as now."""
        n, across = self.network, self.crosses
        up, down = numpy.full((2, len(self.group)), n.link)
        up[across] = burst_share(n.link, self.links[across], (self.weight * self.sending)[across], link, load)
        down[across] = burst_share(n.link, n.down_0 + self.links[across], (self.weight * self.taking)[across], link, load)
        up, down = numpy.minimum.reduceat(up, self.first), numpy.minimum.reduceat(down, self.first)
        window = self.slots * self.frame
        # Whoever comes last holds room: on the way up a rank's in its leaf, on the way down also a leaf's in the spine.
        self.burst = numpy.maximum(self.own_time, numpy.maximum((window - self.buffer) / up, (window - 2 * self.buffer) / down))
        self.drain = window / numpy.minimum(up, down)

    def holds(self, blocked):
        return self.by_link(numpy.minimum((self.root() - self.had) * self.weight, self.buffer))


class Canary(Work):
    """A flow for each spine that slots of a job prefer."""

    passes = 2  # the leader sends the sum again

    def __init__(self, options, network, jobs):
        super().__init__(options, network, jobs)
        self.cards = network.add_links(self.card.max() + 1)
        self.trip, self.held = self.path.copy(), numpy.minimum(self.buffer, self.window * self.weight)

    def parts(self, options, job):
        """Spine, blocks and slots: each slot has every so manieth block, and its position says the spine."""
        slots = numpy.arange(min(options.slots, self.blocks))
        of_slot, spines = -(-(self.blocks - slots) // options.slots), slots % self.network.spines
        return [(spine, of_slot[spines == spine].sum(), (spines == spine).sum()) for spine in numpy.unique(spines)]

    def wait_at_first(self):
        """A leader's network card holds a window of its own elements before it sends the first result."""
        return min(self.slots, self.blocks) * self.frame / self.network.card

    def fixed(self):
        return numpy.zeros(self.network.down_0)

    def yielding(self):
        return self.by_link(self.weight * self.rate[self.group])

    carried_up = yielding

    def demand(self):
        """Closed loops: all of a job wait in their hosts' queues until what comes round is no more than the hosts' links carry."""
        jobs = self.job.max() + 1
        low, high = numpy.zeros(jobs), numpy.full(jobs, self.own_time)
        for _ in range(30):
            wait = (low + high) / 2
            rate = numpy.where(self.left > 0, self.window / (self.passes * wait[self.job] + self.trip), 0)
            over = numpy.bincount(self.job, rate * self.weight) > self.network.card
            low, high = numpy.where(over, wait, low), numpy.where(over, high, wait)
        return rate

    def edges(self, kept, others, step):
        """`kept`: the share that stays where it prefers to go, by up link; `others`: for each of ours, the spine that takes the rest."""
        n, w, every, across = self.network, self.weight, numpy.arange(len(self.job)), self.crosses
        group, leaf, links, share = (column[across] for column in (self.group, self.leaf, self.links, self.share))
        parts = [(every, self.cards + self.card[self.first], numpy.full(len(every), w)),
                 (group, n.pool_0 + leaf, numpy.full(len(group), w))]
        strays = 1 - kept[links]
        # To a leaf that leads come its share of sums, one by the spine that all prefer and one of each leaf that strays. To the
        # others come results, by the spine that their own sum went by.
        all_strays = numpy.bincount(group, strays, len(self.job))[group] - strays
        usual, more = (1 - share) * (1 - strays) + share, (1 - share) * strays + share * all_strays
        some = more > 0
        parts += [(group, n.down_0 + links, w * usual), (group[some], n.down(leaf, others[across])[some], w * more[some])]
        return self.demand(), parts

    def advance(self, rate, blocked, now, step):
        self.count_down(rate, now, step)

    def holds(self, blocked):
        """Bits that wait above links down."""
        return self.by_link(self.held[self.group] * (blocked[self.group] == self.network.down_0 + self.links))

    def wait(self, up, down):
        """The longest of all ways up, and of all ways down; sums also go down to the leader's leaf before, and its result up."""
        ups, downs = up[self.links] * self.crosses, down[self.links] * self.crosses
        self.trip = self.path + numpy.maximum.reduceat(ups, self.first) + numpy.maximum.reduceat(downs, self.first)
        self.trip += numpy.add.reduceat(self.share * (ups + downs), self.first)


class Messages:
    """Flows between hosts that go round what is loaded: rings' hops, and messages of hosts without a job."""

    def __init__(self, options, network, sources):
        self.network, self.source = network, numpy.array(sources, int)
        self.leaf = self.source // network.hosts_each
        # Acknowledgements take the way back: each host gets about as much as it sends.
        payload = options.elements * 32
        self.weight = (payload + 8 * (SEGMENT + ACK)) / payload
        self.line = network.card / self.weight
        self.first, self.second = numpy.zeros((2, len(self.source)))  # what the preferred spine and another carry
        self.to = self.source.copy()

    def send_to(self, which, to):
        n = self.network
        self.to[which] = to
        self.to_leaf = self.to // n.hosts_each
        self.crosses, self.preferred = self.leaf != self.to_leaf, self.to % n.spines
        self.up, self.down = n.up(self.leaf, self.preferred), n.up(self.to_leaf, self.preferred)
        self.back_up, self.back_down = (n.up(leaf, self.source % n.spines) for leaf in (self.to_leaf, self.leaf))

    def offered_up(self):
        return numpy.bincount(self.up[self.crosses], (self.weight * self.offered)[self.crosses], self.network.down_0)

    def carried_up(self):
        strays = self.second > 0
        links = numpy.r_[self.up[self.crosses], self.network.up(self.leaf, self.others)[strays]]
        return numpy.bincount(links, self.weight * numpy.r_[self.first[self.crosses], self.second[strays]], self.network.down_0)

    def kept(self, kept):
        return numpy.where(self.crosses, kept[self.up], 1)

    def edges(self, offset, others, demand):
        """Two flows of each: by the preferred spine, and by another."""
        n, count, self.others = self.network, len(self.source), others
        strays = demand[count:] > 0
        parts = []
        for base, which, spine in ((offset, self.crosses, self.preferred), (offset + count, strays, others)):
            number = numpy.flatnonzero(which)
            parts += [(base + number, n.pool_0 + self.leaf[which]), (base + number, n.down(self.to_leaf, spine)[which])]
        parts += [(offset + numpy.arange(count), n.host_0 + self.to),
                  (offset + count + numpy.flatnonzero(strays), n.host_0 + self.to[strays])]
        return [(flow, link, numpy.full(len(flow), self.weight)) for flow, link in parts]

    def take(self, rate):
        self.first, self.second = rate[:len(self.source)], rate[len(self.source):]


class Background(Messages):
    """Each host sends a message to one, then to another: the next of a row of permutations (Background in ring.cpp).

    What the preferred spine does not take waits: above the link down, and if its host is slow also below, then in the leaf before the
    link up. When there is a long queue there, and not before, more goes by another spine.
    """

    def __init__(self, options, hosts, draws, network):
        super().__init__(options, network, hosts)
        self.draws, self.orders, count, payload = draws, [], len(hosts), options.elements * 32
        self.message, self.buffer, self.long_queue = options.message * 8.0, options.buffer * 8.0, options.long_queue * 8.0
        self.trip = [way(options, payload + 8 * SEGMENT, crosses) + way(options, 8 * ACK, crosses) for crosses in (0, 1)]
        self.number, self.left = numpy.zeros(count, int), numpy.full(count, self.message)
        self.held, self.pause = numpy.zeros((2, count))  # what waits in the network, and time until the message begins
        self.at_host, self.offered = numpy.zeros(count, bool), numpy.full(count, self.line)
        self.turn(numpy.ones(count, bool))

    def turn(self, which):
        while len(self.orders) <= self.number.max(initial=0):
            order = numpy.array(self.draws.shuffled(len(self.source)))
            follows = numpy.empty_like(order)
            follows[order] = numpy.roll(order, -1)
            self.orders.append(follows)
        to = numpy.array([self.orders[n][i] for i, n in zip(numpy.flatnonzero(which), self.number[which])], int)
        self.send_to(which, self.source[to])

    def most_held(self):
        return self.buffer * numpy.where(self.at_host, 2, 1) + self.long_queue

    def offer(self, kept, step):
        stays = self.kept(kept)
        self.fed = numpy.minimum(self.line * (1 - numpy.minimum(self.pause / step, 1)), numpy.maximum(self.left - self.held, 0) / step)
        full = self.crosses & (self.held >= 0.99 * self.most_held())
        asked = numpy.r_[numpy.minimum(self.held / step + self.fed * stays, self.line),
                         numpy.where(full, numpy.maximum(self.fed - self.first, 0), self.fed * (1 - stays))]
        self.fed = self.fed * stays  # what tries the preferred one
        self.offered = numpy.where(self.left > self.held, self.line, 0)
        return asked

    def advance(self, rate, blocked, step, waits):
        """`waits`: how long the queues of links up and down take."""
        count = len(self.source)
        self.take(rate)
        self.at_host = blocked[:count] >= self.network.host_0
        given = (self.first + self.second) * step
        self.held = numpy.clip(self.held + (self.fed - self.first) * step, 0, numpy.minimum(self.most_held(), self.left - given))
        # What was not held up did not need all of the step.
        needed = numpy.where((blocked[:count] < 0) & (self.left <= given + 1), numpy.minimum(self.left / self.line, step), step)
        self.left = self.left - given
        self.pause = numpy.maximum(self.pause - step, 0)
        ends = self.left <= 1
        if not ends.any():
            return
        # The next follows when the last acknowledgement is back.
        trip = numpy.where(self.crosses, self.trip[1] + waits[0][self.back_up] + waits[1][self.back_down], self.trip[0])
        self.number[ends], self.left[ends], self.held[ends] = self.number[ends] + 1, self.message, 0
        self.turn(ends)
        self.pause[ends] = (trip + self.crosses * waits[1][self.down] - (step - needed))[ends].clip(0)
        self.first[ends] = self.second[ends] = 0

    def holds(self):
        """Bits that wait before links up and down."""
        above = numpy.maximum(self.held - self.at_host * self.buffer, 0) * self.crosses
        count = self.network.down_0
        up = numpy.bincount(self.up, numpy.clip(above - self.buffer, 0, self.long_queue), count)
        return numpy.minimum(up, self.long_queue), numpy.bincount(self.down, numpy.minimum(above, self.buffer), count)


class Rings(Messages):
    """All jobs' hops. A job has 2 (n - 1) steps, in each a part of the tensor over each hop."""

    def __init__(self, options, network, jobs):
        super().__init__(options, network, numpy.concatenate([job["hosts"] for job in jobs]))
        self.job = numpy.repeat(numpy.arange(len(jobs)), [len(job["hosts"]) for job in jobs])
        size = numpy.bincount(self.job)
        self.part, self.left = -(-options.size // size) * 8.0, 2.0 * (size - 1)
        self.long = self.part[self.job] > 8 * (options.buffer + options.long_queue)  # or else queues hold all of a part
        self.offered = numpy.full(len(self.source), self.line)
        self.first = self.offered.copy()
        self.send_to(slice(None), numpy.concatenate([numpy.roll(job["hosts"], -1) for job in jobs]))
        # The first segment passes all links, the others follow it.
        segment = options.elements * 32 + 8 * SEGMENT
        self.latency = way(options, segment, self.crosses) - segment / options.host_rate
        self.ended = numpy.zeros(len(jobs))

    def offer(self, kept, step):
        stays = self.kept(kept)
        more = numpy.maximum(self.line - self.first, 0) * (self.crosses & self.long)
        return numpy.r_[self.line * stays, numpy.maximum(more, self.line * (1 - stays))]

    def advance(self, rate, now, step):
        """A part goes on when it is there, and when the one before has left: a max-plus system, whose slowest cycle counts."""
        self.take(rate)
        took = self.part[self.job] / numpy.minimum(self.first + self.second, self.line)
        slowest = numpy.zeros(len(self.part))
        numpy.maximum.at(slowest, self.job, took)
        mean = numpy.bincount(self.job, took + self.latency) / numpy.bincount(self.job)
        pace = 1 / numpy.maximum(slowest, mean)
        self.offered = (self.part * pace)[self.job]  # a hop that waits for its part offers none
        ends = (self.left > 0) & (self.left <= pace * step)
        self.ended[ends] = now + self.left[ends] / pace[ends]
        self.left = numpy.where(ends, 0, self.left - pace * step)

    def seconds(self, jobs):
        return list(self.ended + JITTER)


def burst_share(capacity, links, own, link, load):
    """What a link would give to one that sends as fast as it can, when each other one takes no more than now: `own` is among `load`."""
    order = numpy.argsort(link, kind="stable")
    link, load = link[order], load[order]
    start, end = numpy.searchsorted(link, links), numpy.searchsorted(link, links, "right")
    pair = numpy.repeat(numpy.arange(len(links)), end - start)
    place = numpy.arange(len(pair)) - numpy.repeat(numpy.cumsum(end - start) - (end - start), end - start) + start[pair]
    low, high = numpy.zeros(len(links)), numpy.full(len(links), capacity)
    for _ in range(30):
        level = (low + high) / 2
        taken = numpy.bincount(pair, numpy.minimum(load[place], level[pair]), len(links)) - numpy.minimum(own, level) + level
        low, high = numpy.where(taken > capacity, low, level), numpy.where(taken > capacity, level, high)
    return low


class Model:
    def __init__(self, options):
        self.network, self.draws = Network(options), Draws(options.seed)
        self.random = numpy.random.default_rng(options.seed)  # of what packets decide: which of equally loaded links
        self.jobs, idle = place(options, self.draws)
        for _ in range(self.network.hosts):
            self.draws.below(1001)  # when ranks begin
        self.work = {"ring": Rings, "canary": Canary, "switchml": Trees}[options.algorithm](options, self.network, self.jobs)
        busy = options.background == "permutation" and len(idle) > 1
        self.background = Background(options, idle, self.draws, self.network) if busy else None
        self.step = options.message * 8 / options.host_rate / STEPS_OF_A_MESSAGE
        self.steps, self.sent = 0, 0.0
        self.waits = numpy.zeros((2, self.network.down_0))

    def run(self):
        if self.background:
            for _ in range(round(WARM_UP / self.step)):
                self.advance(None, 0)
        self.sent, now = 0.0, 0.0
        while (self.work.left > 0).any():
            if now > LIMIT:
                raise TimeoutError(f"not done after {LIMIT} simulated seconds")
            self.advance(self.work, now)
            now += self.step
        self.until = now
        return self.work.seconds(self.jobs)

    def advance(self, work, now):
        """One step: what all want, what they get, and where it waits."""
        groups, rings = (work, None) if isinstance(work, Work) else (None, work)
        messages = [m for m in (rings, self.background) if m]
        kept, ranked = self.loads(groups, messages)
        demand, edges, start = [], [], []
        if groups:
            wanted, edges = groups.edges(kept, self.other_spines(ranked, groups.leaf, groups.crosses), self.step)
            demand.append(wanted)
        for m in messages:
            wanted = m.offer(kept, self.step)
            start.append(sum(map(len, demand)))
            edges += m.edges(start[-1], self.other_spines(ranked, m.leaf, wanted[len(m.source):] > 0), wanted)
            demand.append(wanted)
        flow, link, weight = (numpy.concatenate(column) for column in zip(*edges))
        order = numpy.argsort(flow, kind="stable")
        flow, link, weight = flow[order], link[order], weight[order]
        rate, blocked, carried = max_min(self.network.capacity, numpy.concatenate(demand), flow, link, weight)
        if groups:
            groups.advance(rate[:len(demand[0])], blocked, now, self.step)
            groups.see(link, weight * rate[flow])
        for m, at in zip(messages, start):
            part = slice(at, at + 2 * len(m.source))
            if m is rings:
                m.advance(rate[part], now, self.step)
            else:
                m.advance(rate[part], blocked[part], self.step, self.waits)
                self.sent += rate[part].sum() * self.step
        self.queue(groups, messages, blocked, carried)
        self.steps += 1

    def queue(self, groups, messages, blocked, carried):
        """How long packets wait (Little): what is held before each link by all that cannot go on, over what passes."""
        n = self.network
        held_up, held_down, up = numpy.zeros((3, n.down_0))
        for m in messages:
            up += m.carried_up()
        if self.background:
            held_up, held_down = self.background.holds()
        if groups:
            held_down, up = held_down + groups.holds(blocked), up + groups.carried_up()
        self.waits = held_up / numpy.maximum(up, 1e9), held_down / numpy.maximum(carried[n.down_0:2 * n.down_0], 1e9)
        if groups:
            groups.wait(*self.waits)

    def loads(self, groups, messages):
        """By up link: the share of what prefers it that stays; by leaf: spines, the least loaded first."""
        n = self.network
        fixed, offered = numpy.zeros((2, n.down_0))
        if groups:
            fixed, offered = groups.fixed(), groups.yielding()
        for m in messages:
            offered = offered + m.offered_up()
        kept = numpy.minimum(1, numpy.maximum(n.link - fixed, 0) / numpy.maximum(offered, 1))
        load = (fixed + offered).reshape(n.leaves, n.spines)
        return kept, numpy.argsort(load + self.random.random(load.shape), axis=1)

    def other_spines(self, ranked, leaf, which):
        """For each flow that strays another of its leaf's least loaded spines."""
        taken = numpy.zeros(len(leaf), int)
        number = numpy.flatnonzero(which)
        number = number[numpy.argsort(leaf[number], kind="stable")]
        if len(number):
            first = numpy.searchsorted(leaf[number], leaf[number])
            taken[number] = ranked[leaf[number], (numpy.arange(len(number)) - first) % ranked.shape[1]]
        return taken


def place(options, draws):
    """As Experiment::place_jobs() does: hosts of jobs with their trees' roots, and the hosts without a job."""
    count, ranks = options.leaves * options.hosts, options.ranks
    row = draws.shuffled(count)
    idle, row = row[ranks:], row[:ranks]
    if options.placement == "packed":
        order = draws.shuffled(options.leaves)
        row.sort(key=lambda host: order[host // options.hosts])
    jobs = []
    for job in range(options.jobs):
        hosts = numpy.array(row[ranks * job // options.jobs:ranks * (job + 1) // options.jobs])
        roots = [] if options.algorithm == "ring" else draws.shuffled(max(options.spines, 1))
        jobs.append({"hosts": hosts, "leaves": hosts // options.hosts, "roots": roots})
    return jobs, idle


def run(options):
    """What parse() returned; gives names and values, those of inagg-sim."""
    before = time.monotonic()
    model = Model(options)
    seconds = model.run()
    rates = [options.size * 8 / one / 1e9 for one in seconds]
    names = ("algorithm", "trees", "leaves", "spines", "hosts", "ranks", "jobs", "size", "elements", "slots", "placement", "background",
             "seed")
    row = {name: getattr(options, name) for name in names}
    sent = model.sent / model.until / len(model.background.source) / 1e9 if model.background else 0.0
    return row | {"gbps_mean": sum(rates) / len(rates), "gbps_each": " ".join(f"{rate:.2f}" for rate in rates), "gbps_min": min(rates),
                  "us_mean": sum(seconds) / len(seconds) * 1e6, "us_max": max(seconds) * 1e6, "background_gbps": sent,
                  "steps": model.steps, "wall_s": time.monotonic() - before,
                  "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def number_of_bytes(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    digits, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    if not digits.isdigit() or not int(digits):
        raise argparse.ArgumentTypeError(f"{text}: a number of bytes, such as 4M, is needed")
    return int(digits) * unit


def rate(text):
    units = {"gbit": 1e9, "mbit": 1e6}
    digits, unit = text[:-4], units.get(text[-4:])
    if unit is None or not digits.isdigit() or not int(digits):
        raise argparse.ArgumentTypeError(f"{text}: a rate, such as 100gbit, is needed")
    return int(digits) * unit


def parse(arguments):
    """Options as inagg-sim names them. Exits with the value that is wrong."""
    parser = argparse.ArgumentParser(prog="coarse.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, text in (("leaves", 1, "leaf switches"), ("spines", 0, "each linked to all leaves"), ("hosts", 4, "of each leaf"),
                                ("jobs", 1, "they are shared out over so many"), ("trees", 1, "of each job, of switchml"),
                                ("slots", 64, "blocks in flight, of each tree"), ("elements", 832, "of a packet"),
                                ("delay", 300, "of a link, ns"), ("seed", 1, "the same gives the same")):
        parser.add_argument(f"--{name}", type=int, default=default, help=text)
    parser.add_argument("--host-rate", type=rate, default=100e9, help="of hosts' links, such as 100gbit")
    parser.add_argument("--link-rate", type=rate, default=100e9, help="of links between switches")
    parser.add_argument("--ranks", type=int, help="hosts that take part in some job; default: all")
    parser.add_argument("--size", type=number_of_bytes, default=4 << 20, help="bytes of each job's tensor")
    parser.add_argument("--message", type=number_of_bytes, default=256 << 10, help="bytes that a host sends before it takes another peer")
    parser.add_argument("--buffer", type=number_of_bytes, default=64 << 10, help="bytes where a link ends")
    parser.add_argument("--long-queue", type=number_of_bytes, default=32 << 10, help="bytes of a queue that packets on their way up avoid")
    parser.add_argument("--algorithm", choices=("switchml", "canary", "ring"), default="switchml")
    parser.add_argument("--background", choices=("none", "permutation"), default="none")
    parser.add_argument("--placement", choices=("packed", "scattered"), default="packed")
    options = parser.parse_args([str(argument) for argument in arguments])
    check(options, parser.error)
    return options


def check(options, refuse):
    """What is wrong, with its value."""
    hosts = options.leaves * options.hosts
    options.ranks = hosts if options.ranks is None else options.ranks
    for name in ("leaves", "hosts", "jobs", "trees", "slots", "elements", "seed"):
        if getattr(options, name) < 1:
            refuse(f"--{name} {getattr(options, name)}: at least 1")
    for name in ("spines", "delay"):
        if getattr(options, name) < 0:
            refuse(f"--{name} {getattr(options, name)}: at least 0")
    if options.leaves > 1 and not options.spines:
        refuse(f"--leaves {options.leaves}: need --spines to connect them")
    if options.ranks > hosts:
        refuse(f"--ranks {options.ranks}: there are only {hosts} hosts")
    if options.ranks // options.jobs < 2:
        refuse(f"--jobs {options.jobs}: {options.ranks} ranks are fewer than 2 each")
    if options.algorithm == "canary" and -(-options.ranks // options.jobs) > RANKS:
        refuse(f"--ranks {options.ranks}: canary's jobs have at most {RANKS} ranks; take --jobs {-(-options.ranks // RANKS)}")
    if options.algorithm != "switchml" and options.trees > 1:
        refuse(f"--trees {options.trees}: only switchml has several")
    if options.trees > max(options.spines, 1):
        refuse(f"--trees {options.trees}: there are only {options.spines} spines")


def main():
    try:
        row = run(parse(sys.argv[1:]))
    except TimeoutError as error:
        sys.exit(f"coarse.py: {error}")
    for name, value in row.items():
        print(f"{name:<16} {value:.4f}" if isinstance(value, float) else f"{name:<16} {value}")


if __name__ == "__main__":
    main()
