"""Plain and slow answers on tiers, tapes and unequal steps: exhaustive searches, recurrences that try everything.

Nothing here is imported from `adjoint`. A chain of n steps has the states 0..n; a slot count includes state 0's slot.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

Held = frozenset[tuple[str, int]]
"""What a tier holds: states and tapes, by their numbers."""


class Rooms(NamedTuple):
    """The capacity of each tier, and what a write to it and a read from it cost."""

    capacities: tuple[int, ...]
    writes: tuple[float, ...]
    reads: tuple[float, ...]


class Node(NamedTuple):
    """Where a reversal stands: the steps left to turn, the working state, and what each tier holds."""

    left: int
    at: int | None
    held: tuple[Held, ...]


def cheapest_reversal(costs: Sequence[float], rooms: Rooms, tapes: bool = False) -> float:
    """The least cost of any reversal at all, by Dijkstra's search: evaluations, writes and reads.

    No structure is assumed: anything may be written at any time, to a free slot or over anything, and read at any time.
    It is joined, and begins with working state 0 and nothing in a slot.
    """
    first = Node(len(costs), 0, tuple(frozenset[tuple[str, int]]() for _ in rooms.capacities))
    paid: dict[Node, float] = {first: 0}
    queue: list[tuple[float, int, Node]] = [(0, 0, first)]
    serial = 0
    while queue:
        price, _, node = heapq.heappop(queue)
        if price > paid[node]:
            continue
        if node.left == 0:
            return price
        for extra, following in moves(node, costs, rooms, tapes):
            if price + extra < paid.get(following, price + extra + 1):
                paid[following] = price + extra
                serial += 1
                heapq.heappush(queue, (price + extra, serial, following))
    raise AssertionError("no reversal exists")


def moves(node: Node, costs: Sequence[float], rooms: Rooms, tapes: bool) -> Iterator[tuple[float, Node]]:
    """Everything that can be done next, and what it costs."""
    left, at, held = node
    for tier, read in enumerate(rooms.reads):
        for kind, number in held[tier]:
            if kind == "state":
                yield read, Node(left, number, held)
            elif number == left - 1:
                yield read, Node(left - 1, at, useful(held, left - 1))
    if at is None:
        return
    if at == left - 1:
        yield costs[at], Node(left - 1, None, useful(held, left - 1))
    if at < left - 1:
        yield costs[at], Node(left, at + 1, held)
    for tier, write in enumerate(rooms.writes):
        for rest in with_room(held[tier], rooms.capacities[tier]):
            yield write, Node(left, at, (*held[:tier], rest | {("state", at)}, *held[tier + 1 :]))
            if tapes:
                taped = (*held[:tier], rest | {("tape", at)}, *held[tier + 1 :])
                yield write + costs[at], Node(left, at + 1 if at + 1 < left else None, taped)


def useful(held: tuple[Held, ...], left: int) -> tuple[Held, ...]:
    """What is held, without what serves no step that is left to turn."""
    return tuple(frozenset(item for item in tier if item[1] < left) for tier in held)


def with_room(tier: Held, capacity: int) -> Iterator[Held]:
    """A tier with room for one thing more."""
    if len(tier) < capacity:
        yield tier
    yield from (tier - {item} for item in tier)


def fewest_mixed_evaluations(n: int, s: int) -> int:
    """M(n, s): the recurrence of Maddison 2024, every split tried."""

    @cache
    def least(length: int, slots: int) -> int:
        if length == 1:
            return 1
        if slots == 0:
            return 10**9
        taped = 1 + least(length - 1, slots - 1)
        return min(
            [taped, *(i + least(length - i, slots - 1) + least(i, slots) for i in range(2, length))], default=taped
        )

    # With one slot, the last split leaves one step on the right, which needs none.
    return least(n, s)


def least_weighted_work(costs: Sequence[float], s: int) -> float:
    """The least cost of advances that reverse a joined chain of unequal steps with s slots, every split tried."""

    @cache
    def least(i: int, j: int, slots: int) -> float:
        if j - i <= 1:
            return 0
        splits = range(i + 1, j) if slots > 1 else [j - 1]
        return min(sum(costs[i:k]) + least(k, j, slots - 1) + least(i, k, slots) for k in splits)

    return least(0, len(costs), s)


def least_hierarchical_cost(n: int, rooms: Rooms, step_cost: float) -> float:
    """Advances, writes and reads if older states lie in slower tiers (Herrmann & Pallez 2020), every split tried."""
    base: list[float] = [0, 0, *[1e18] * (n - 1)]
    for capacity, write, read in zip(*rooms, strict=True):
        right = base
        for _ in range(capacity):
            stored = [0.0, 0.0]
            for length in range(2, n + 1):
                again = [j * step_cost + right[length - j] + read + stored[j] for j in range(1, length)]
                stored.append(min(base[length], *again))
            right = [0, 0, *(min(base[length], write + stored[length]) for length in range(2, n + 1))]
        base = right
    return base[n]


def least_tiered_cost(n: int, rooms: Rooms, step_cost: float) -> float:
    """Advances, writes and reads of the least stack-like reversal, whatever tier each stored state goes to.

    Unlike `adjoint.hierarchy`, older states may lie in faster tiers, and a state may move to another tier when read.
    """
    tiers = range(len(rooms.capacities))

    def changed(free: tuple[int, ...], tier: int, by: int) -> tuple[int, ...]:
        return tuple(slots + by * (k == tier) for k, slots in enumerate(free))

    @cache
    def fresh(length: int, free: tuple[int, ...]) -> float:
        if length == 1:
            return 0
        return min([rooms.writes[k] + swept(k, length, changed(free, k, -1)) for k in tiers if free[k]], default=1e9)

    @cache
    def swept(tier: int, length: int, free: tuple[int, ...]) -> float:
        again = (fresh(length - j, free) + rooms.reads[tier] + stored(tier, j, free) for j in range(1, length))
        return min(j * step_cost + rest for j, rest in enumerate(again, 1))

    @cache
    def stored(tier: int, length: int, free: tuple[int, ...]) -> float:
        if length == 1:
            return 0
        elsewhere = [
            rooms.writes[k] + swept(k, length, changed(changed(free, tier, 1), k, -1))
            for k in tiers
            if k != tier and free[k]
        ]
        return min([swept(tier, length, free), *elsewhere])

    return fresh(n, rooms.capacities)
