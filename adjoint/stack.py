"""How often binomial checkpointing writes and reads the slot at each place of its stack (Stumm & Walther 2009).

Place r holds the (r + 1)-th oldest state. Which places are busy decides which of them deserve fast memory.
A chain that is split leaves two. At each split of the optimal reversal with the fewest stores (`first_offset`) one of
them belongs to a family whose traffic is a binomial coefficient, so that a single chain is followed:

* full chains of beta(s, t) steps: place r > 0 is written C(r + t - 1, r) times, and read C(r + t, r + 1) times;
* chains of beta(s, t - 1) + beta(s - 1, t - 1) steps, the shortest that need t sweeps at the right of a split:
  written C(r + t - 2, r) times, and read C(r + t, r + 1) - C(r + t - 2, r - 1) times.

Place 0 is read t times in both; its one store comes from outside.
"""

from __future__ import annotations

from math import comb

from adjoint.binomial import beta, first_offset, repetition


def traffic_by_place(n: int, s: int) -> list[tuple[int, int]]:
    """Stores and restores at each place in a joined reversal of n steps with s slots.

    Returns:
        One pair for each slot in use, from place 0; no pair for n <= 1.

    Cost: O(s (s + t)) operations, t being the number of sweeps.

    >>> traffic_by_place(10, 3)
    [(1, 2), (2, 3), (3, 4)]
    """
    if n <= 1:
        return []
    places = min(s, n - 1)
    stores, restores = [1] + [0] * (places - 1), [0] * places
    place, t = 0, repetition(n, s)
    while n > 1:
        if s == 1:
            restores[place] += n - 1
            break
        k = first_offset(n, s, t)
        restores[place] += 1
        # The chain on the right has its own first state in a slot, unless it is turned at once.
        if n - k > 1:
            stores[place + 1] += 1
        full, second, third = beta(s, t - 1), beta(s - 1, t - 1), beta(s - 2, t - 1)
        if s >= n - 1:
            # One step is left of the split, and costs no more than its restore.
            n, s, place = n - 1, s - 1, place + 1
        elif full + third < n < full + second + third:
            add_shortest(stores, restores, place + 1, s - 1, t)
            n, t = k, t - 1
        else:
            add_full(stores, restores, place, s, t - 1 if k == full else t - 2)
            n, s, place = n - k, s - 1, place + 1
    return list(zip(stores, restores, strict=True))


def add_full(stores: list[int], restores: list[int], place: int, s: int, t: int) -> None:
    """Adds the traffic of a chain of beta(s, t) steps whose first state is stored already."""
    for r in range(min(s, len(stores) - place)):
        stores[place + r] += comb(r + t - 1, r) if r else 0
        restores[place + r] += comb(r + t, r + 1)


def add_shortest(stores: list[int], restores: list[int], place: int, s: int, t: int) -> None:
    """Adds the traffic of a chain of beta(s, t - 1) + beta(s - 1, t - 1) steps whose first state is stored already."""
    for r in range(min(s, len(stores) - place)):
        stores[place + r] += comb(r + t - 2, r) if r else 0
        restores[place + r] += comb(r + t, r + 1) - (comb(r + t - 2, r - 1) if r else 0)
