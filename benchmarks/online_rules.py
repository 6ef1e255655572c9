"""Which states to store while nobody knows the number of steps: four rules, each judged by what it costs.

    pip install -e .
    python benchmarks/online_rules.py

A rule tells, for each step, whether its state is stored, and which stored state makes room for it. When the loop has
stopped after n steps, the cheapest reversal from what is stored is searched among all subsets of it, so that no rule
suffers from how `adjoint.plan` chooses; what is printed is its evaluations, divided by the least possible had n been
known: P(n + 1, s) + n (Griewank & Walther 2000).

profile       the simple one: every state far enough from the last one; what goes has the shortest gap around it,
              divided by the slots that are left there.
greedy        every state; what goes is what makes the reversal of the steps so far cheapest.
Algorithm II  of Stumm & Walther 2010, for beta(s, 2) to beta(s, 3) - 1 steps, as `adjoint.Bounded` has it.
Online        `adjoint.Online`: far enough from the last one, judged by the cost as the greedy rule does, and thinned.
"""

from collections.abc import Callable, Iterator
from math import exp, inf, log
from statistics import fmean

import adjoint

LONGEST = 20_000
SLOTS = (4, 8, 16)
Event = tuple[int, int | None]
"""A state that is stored, and the one that makes room for it."""


def profile(s: int, limit: int) -> Iterator[Event]:
    stored: list[int] = []
    for i in range(limit):
        if stored and i - stored[-1] < max(1, i // (2 * s)):
            continue
        gone = None
        if len(stored) == s:
            places = [*stored, i]
            gone = stored.pop(min(range(1, s), key=lambda j: (places[j + 1] - places[j - 1]) / (s - j + 1)))
        stored.append(i)
        yield i, gone


def greedy(s: int, limit: int) -> Iterator[Event]:
    stored: list[int] = []
    for i in range(limit):
        if len(stored) < s:
            stored.append(i)
            yield i, None
            continue
        left = {j: [*stored[:j], *stored[j + 1 :], i] for j in range(1, s)}
        best = min(left, key=lambda j: adjoint.plan(left[j], i + 1, s).advances)
        if adjoint.plan(left[best], i + 1, s).advances < adjoint.plan(stored, i + 1, s).advances:
            gone, stored = stored[best], left[best]
            yield i, gone


def algorithm_ii(s: int, limit: int) -> Iterator[Event]:
    held: dict[int, int] = {}
    for action in adjoint.Bounded(s, adjoint.beta(s, 3) - 1).actions(limit):
        if isinstance(action, adjoint.Store):
            yield action.state, held.get(action.slot)
            held[action.slot] = action.state
        elif isinstance(action, adjoint.Advance) and action.stop == limit:
            return


def online(s: int, limit: int) -> Iterator[Event]:
    table = adjoint.store_table(s, limit)
    held: dict[int, int] = {}
    for state, slot, freed in zip(table.states[:-1], table.slots, table.freed, strict=False):
        yield state, held.get(slot)
        held[slot] = state
        for gone in freed:
            if gone >= 0:
                yield -1, held.pop(gone)


RULES: dict[str, Callable[[int, int], Iterator[Event]]] = {
    "profile": profile,
    "greedy": greedy,
    "Algorithm II": algorithm_ii,
    "Online": online,
}


def cheapest(stored: list[int], n: int, s: int) -> int:
    """The least advances of a reversal of n steps from any subset of these states, state 0 among them."""
    count = len(stored)
    best = [[inf] * (s + 1) for _ in range(count)]
    for a in range(count - 1, -1, -1):
        for rank in range(min(a, s - 1), -1, -1):
            last, m = n - stored[a], s - rank
            # The first sweep may start from the newest state, though dropped, if that lies before its first store.
            ahead = stored[-1] - stored[a]
            spared = ahead if last > 1 and ahead <= adjoint.first_offset_range(last, m)[1] else 0
            best[a][rank] = adjoint.advances(last, m) - spared
            for b in range(a + 1, count if rank + 1 < s else a + 1):
                best[a][rank] = min(best[a][rank], adjoint.advances(stored[b] - stored[a], m) + best[b][rank + 1])
    return int(best[0][0])


def ratios(events: list[Event], s: int, lengths: list[int]) -> list[float]:
    """What the rule costs for each number of steps, over the least possible."""
    found, stored, at = [], [], 0
    for n in lengths:
        while at < len(events) and events[at][0] < n:
            state, gone = events[at]
            stored = [x for x in stored if x != gone] + [state] * (state >= 0)
            at += 1
        least = adjoint.advances(n + 1, s) + n
        found.append((2 * n + cheapest(stored, n, s)) / least)
    return found


def spaced(first: int, last: int, count: int) -> list[int]:
    """Numbers of steps, evenly in the logarithm."""
    return sorted({round(exp(log(first) + (log(last) - log(first)) * k / (count - 1))) for k in range(count)})


def line(s: int, name: str, lengths: list[int], events: list[Event]) -> str:
    found = ratios(events, s, lengths)
    stores = sum(0 <= state < lengths[-1] for state, _ in events)
    return f"{s:3}  {name:13} {lengths[0]:5}..{lengths[-1]:<6} {max(found):7.4f} {fmean(found):8.4f} {stores:7}"


def main() -> None:
    print("  s  rule          steps            worst     mean  stores")
    for s in SLOTS:
        short = spaced(adjoint.beta(s, 2), adjoint.beta(s, 3) - 1, 100)
        long = spaced(s + 1, LONGEST, 200)
        for name, rule in RULES.items():
            print(line(s, name, short, list(rule(s, short[-1]))))
        for name, rule in RULES.items():
            if name != "Algorithm II":
                print(line(s, name, long, list(rule(s, LONGEST))), flush=True)


if __name__ == "__main__":
    main()
