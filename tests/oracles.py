"""Plain and slow answers to the questions that `adjoint` answers by formula: each test's independent judge.

Nothing here is imported from `adjoint`. A chain of n steps has the states 0..n; a slot count includes state 0's slot.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, combinations, pairwise
from typing import Any

Costs = list[list[int]]


def reversal_table(steps: int, slots: int, advance_price: int = 1, store_price: int = 0) -> Costs:
    """table[s][n]: the least price of reversing n steps with s slots, joined, by dynamic programming.

    Price: `advance_price` per advance and `store_price` per store after state 0's. A right gap of one step is turned
    from the working state, without a store.
    """
    table: Costs = [[]]
    for s in range(1, slots + 1):
        row = [0, 0]
        for n in range(2, steps + 1):
            unstored = (n - 1) * advance_price + row[n - 1]
            between = range(1, n - 1) if s > 1 else ()
            stored = [k * advance_price + store_price + table[s - 1][n - k] + row[k] for k in between]
            row.append(min([unstored, *stored]))
        table.append(row)
    return table


def optimal_first_offsets(table: Costs, n: int, s: int) -> list[int]:
    """Every offset at which the first checkpoint costs no more advances than the best one."""
    right = table[s - 1] if s > 1 else [0, 0]
    offsets = range(1, n) if s > 1 else [n - 1]
    prices = {k: k + right[n - k] + table[s][k] for k in offsets}
    return [k for k, price in prices.items() if price == table[s][n]]


def shortest_reversal(n: int, s: int, stored: tuple[int, ...] = (0,), working: int | None = 0) -> int:
    """The least advances of any reversal at all, by Dijkstra's search over (steps left, working state, stored states).

    No structure is assumed: the working state may be stored at any time, in a free slot or over any stored state, and
    any stored state may be restored at any time. It starts with these stored states and this working state.
    """
    first = (n, working, frozenset(stored))
    paid = {first: 0}
    queue = [(0, 0, first)]
    serial = 0
    while queue:
        price, _, node = heapq.heappop(queue)
        if price > paid[node]:
            continue
        left, at, held = node
        if left == 0:
            return price
        moves: list[tuple[int, tuple[int, int | None, frozenset[int]]]] = [(0, (left, state, held)) for state in held]
        if at is not None and at < left - 1:
            moves.append((1, (left, at + 1, held)))
        if at == left - 1:
            moves.append((0, (left - 1, None, held)))
        if at is not None and at not in held:
            if len(held) < s:
                moves.append((0, (left, at, held | {at})))
            moves += [(0, (left, at, held - {state} | {at})) for state in held]
        for extra, following in moves:
            if price + extra < paid.get(following, price + extra + 1):
                paid[following] = price + extra
                serial += 1
                heapq.heappush(queue, (price + extra, serial, following))
    raise AssertionError("state 0 was lost: no reversal exists")


def shortest_split_reversal(n: int, s: int) -> int:
    """The least advances with the forward pass to state n counted, over every set of states it may leave stored."""
    sets = [(0, *rest) for k in range(min(s, n)) for rest in combinations(range(1, n), k)]
    return n + min(shortest_reversal(n, s, stored, working=None) for stored in sets)


@cache
def least_advances(n: int, s: int) -> int:
    """The least advances, summed up: lengthening a chain to n steps adds t where C(s+t-1, s) < n <= C(s+t, s)."""
    total, length, reach, t = 0, 1, 1, 0
    while length < n:
        t += 1
        reach = reach * (s + t) // t
        total += t * (min(n, reach) - length)
        length = min(n, reach)
    return total


def stores_of_sparse_rule(slots: int, limit: int) -> list[tuple[int, int, list[int]]]:
    """(state, slot, slots freed besides) of every online store before state `limit`: each choice priced afresh."""

    def price(states: list[int], end: int) -> int:
        gaps = [right - left for left, right in pairwise([*states, end])]
        return sum(least_advances(gap, slots - rank) for rank, gap in enumerate(gaps))

    def best_drop(states: list[int], end: int) -> tuple[int, int]:
        """The price without the state of that rank, the least there is; of equals the smallest rank."""
        gaps = [right - left for left, right in pairwise([*states, end])]
        # What the gaps below a place cost as they are, and those beyond it with a slot more.
        below = [0, *accumulate(least_advances(gap, slots - rank) for rank, gap in enumerate(gaps))]
        richer = [least_advances(gap, slots - rank + 1) for rank, gap in enumerate(gaps)]
        beyond = [0, *accumulate(reversed(richer))][::-1]
        prices = (
            (below[j - 1] + least_advances(gaps[j - 1] + gaps[j], slots - j + 1) + beyond[j + 1], j)
            for j in range(1, len(states) - 1)
        )
        return min(prices)

    held: list[int] = []
    place: dict[int, int] = {}
    free: list[int] = []
    events: list[tuple[int, int, list[int]]] = []
    for i in range(limit):
        if held and i - held[-1] < max(1, i // ((10 if held[-1] < 2**17 else 3) * slots)):
            continue
        offered, freed = [*held, i], list[int]()
        if len(held) < slots:
            place[i] = free.pop() if free else i
        elif slots == 1 or price(held, i + 1) <= best_drop(offered, i + 1)[0]:
            continue
        else:
            place[i] = place.pop(offered.pop(best_drop(offered, i + 1)[1]))
        while len(offered) > 2 and len(freed) < 2:
            cost, j = best_drop(offered, i + 1)
            if cost >= price(offered, i + 1):
                break
            freed.append(place.pop(offered.pop(j)))
        free += freed
        held = offered
        events.append((i, place[i], freed))
    return events


def held_after(events: list[tuple[int, int, list[int]]], steps: int) -> dict[int, int]:
    """Slot -> state after a forward pass of so many steps."""
    held: dict[int, int] = {}
    for state, slot, freed in events:
        if state < steps:
            held[slot] = state
            for gone in freed:
                del held[gone]
    return held


def cheapest_prefix(stored: tuple[int, ...], n: int, s: int, table: Costs) -> tuple[int, int, int]:
    """Of all numbers of oldest states to keep: the least advances, the greatest such number, where the sweep starts.

    The first sweep of the newest gap starts from the newest stored state if one step more is still an optimal split.
    """
    options: list[tuple[int, int, int]] = []
    for k in range(1, len(stored) + 1):
        kept, m, length = stored[:k], s - k + 1, n - stored[k - 1]
        starts = [kept[-1]]
        if length > m + 1:
            offsets = optimal_first_offsets(table, length, m)
            starts += [state for state in stored[-1:] if state - kept[-1] < offsets[-1]]
        options.append((price_of_keeping_all(kept, n, s, table) - starts[-1] + kept[-1], -k, starts[-1]))
    price, negative, start = min(options)
    return price, -negative, start


def cheapest_plan(stored: tuple[int, ...], n: int, s: int, table: Costs) -> int:
    """The least advances over every subset of the stored states that may be kept: dropped ones as many as you like.

    Gap i of the kept ones costs table[s - i]; the newest gap is first swept from the last stored state at which its
    first checkpoint may lie, or before it, if it is too long for one slot a state.
    """
    prices: list[int] = []
    for k in range(len(stored)):
        for rest in combinations(stored[1:], k):
            kept = [0, *rest]
            m, length = s - k, n - kept[-1]
            price = sum(table[s - rank][right - left] for rank, (left, right) in enumerate(pairwise([*kept, n])))
            start = kept[-1]
            if length > m + 1:
                furthest = kept[-1] + optimal_first_offsets(table, length, m)[-1]
                start = max(state for state in stored if kept[-1] <= state <= furthest)
            prices.append(price - (start - kept[-1]))
    return min(prices)


def price_of_keeping_all(stored: tuple[int, ...], n: int, s: int, table: Costs) -> int:
    """The advances of a reversal that drops no stored state."""
    return sum(table[s - rank][right - left] for rank, (left, right) in enumerate(pairwise([*stored, n])))


def unrolled(cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """The loop itself, in Python: its value and, differentiated by the array library, every derivative."""
    carry = init
    while cond(carry):
        carry = body(carry)
    return carry


def indexed(lower: int, upper: int, body: Callable[[int, Any], Any], init: Any) -> Any:
    """`carry = body(i, carry)` for each index, in Python."""
    carry = init
    for i in range(lower, upper):
        carry = body(i, carry)
    return carry


def scanned(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    rows: Sequence[Any],
    until: Callable[[Any], Any] | None = None,
    *,
    reverse: bool = False,
) -> tuple[Any, list[Any]]:
    """A scan in Python: the carry, and each row's y, None where the scan stopped before it."""
    carry, ys = init, [None] * len(rows)
    for at in reversed(range(len(rows))) if reverse else range(len(rows)):
        if until is not None and until(carry):
            break
        carry, ys[at] = step(carry, rows[at])
    return carry, ys
