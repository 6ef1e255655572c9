"""Where an interrupted reversal goes on, and how the stores come to hold what it needs there.

The newest milestone says how many steps are turned; a schedule gives the same actions every time, so executing it on
integers up to there says which state every slot held. States that were kept on disk are there still; those that were
in memory, or whose file was damaged and removed, are computed again from the newest older state that is left, in one
sweep. Without a milestone the forward pass goes on from the newest state that is left.
As every state is computed by the same steps from the same state, the adjoint is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adjoint.actions import Action, Advance, Store, Turn
from adjoint.driver import Address, Driver, Position, address
from adjoint.openended import forward_pass
from adjoint.store import Key


def after_turns(actions: Iterator[Action], steps: int, turned: int) -> Position:
    """Takes actions off a reversal until so many steps are turned, or the last state is delivered if none is."""
    position = Position(steps)
    if turned == 0 and steps == 0:
        return position
    for action in actions:
        position.execute(action)
        is_delivered = isinstance(action, Advance) and action.stop == steps and turned == 0
        if is_delivered or (isinstance(action, Turn) and position.turned == turned):
            return position
    raise AssertionError("a milestone is made after a turn, or after the last state was delivered")


def after_store(actions: Iterator[Action], steps: int, newest: tuple[int, Key]) -> Position | None:
    """Takes actions off a forward pass until this state has been stored, or answers None if it never is."""
    tier, key = newest
    position = Position(steps)
    for action in forward_pass(actions):
        if isinstance(action, Advance) and action.start >= key.state:
            return None
        position.execute(action)
        if isinstance(action, Store) and address(action) == (tier, key.slot) and action.state == key.state:
            return position
    return None


def kept(driver: Driver) -> dict[tuple[int, Key], None]:
    """All states that the stores hold, by tier and key."""
    keys = [store.keys() for store in driver.stores]
    return dict.fromkeys((tier, key) for tier, here in enumerate(keys) for key in here)


def newest_kept(driver: Driver) -> tuple[int, Key] | None:
    """The kept state with the greatest index."""
    return max(kept(driver), key=lambda held: held[1].state, default=None)


def fill(driver: Driver, wanted: dict[Address, int], initial: Any) -> None:
    """Makes the stores hold what these addresses should, and nothing else; leaves no working state.

    Args:
        driver: its stores are filled, and its `recomputed` counts the steps that this takes.
        wanted: the state of each address.
        initial: state 0, which is used if no store holds it. A step may change it in place, so it serves once.
    """
    there = kept(driver)
    lost: dict[int, list[Address]] = {}
    for (tier, slot), state in sorted(wanted.items(), key=lambda item: item[1]):
        if (tier, Key(slot, state)) not in there:
            lost.setdefault(state, []).append((tier, slot))
    working, value = -1, None
    for state, addresses in lost.items():
        source = max((held for held in there if held[1].state <= state), key=lambda held: held[1].state, default=None)
        if source is not None and source[1].state > working:
            working, value = source[1].state, driver.store(source[0]).load(source[1])
        elif working < 0:
            working, value = 0, initial
        value = driver.chain.run(working, state, value)
        driver.recomputed += state - working
        working = state
        for tier, slot in addresses:
            driver.store(tier).keep(Key(slot, state), value)
            there[tier, Key(slot, state)] = None
    for tier, key in there:
        if wanted.get((tier, key.slot)) != key.state:
            driver.store(tier).drop(key)
