"""Where an interrupted reversal goes on, and how the stores come to hold what it needs there.

The newest milestone says how many steps are turned; a schedule gives the same actions every time, so executing it on
integers up to there says which state every slot held. States that were kept on disk are there still; those that were
in memory, or whose file was damaged and removed, are computed again from the newest older state that is left, in one
sweep. Without a milestone the forward pass goes on from the newest state that is left.
As every state is computed by the same steps from the same state, the adjoint is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from adjoint.actions import Action, Advance, Apply, Discard, Store, Turn
from adjoint.driver import Driver
from adjoint.machine import Content, Machine
from adjoint.openended import forward_pass
from adjoint.store import Key
from adjoint.timeline import Address


def after_turns(actions: Iterator[Action], steps: int, turned: int) -> tuple[Machine, Iterator[Action]]:
    """Takes actions off a reversal until so many steps are turned, or the last state is delivered if none is.

    Returns:
        The position there, and the actions that follow. What is discarded there at once is discarded already.
    """
    position = Machine(steps, None)
    is_there = steps == 0
    for action in actions:
        if is_there and not isinstance(action, Discard):
            return position, chain([action], actions)
        position.execute(action)
        if position.left == steps - turned:
            is_there = is_there or (position.working == steps if turned == 0 else isinstance(action, Turn | Apply))
    return position, actions


def after_store(actions: Iterator[Action], steps: int, newest: tuple[int, Key]) -> Machine | None:
    """Takes actions off a forward pass until this state has been stored, or answers None if it never is."""
    tier, key = newest
    position = Machine(steps, None)
    for action in forward_pass(actions):
        if isinstance(action, Advance) and action.start >= key.state:
            return None
        position.execute(action)
        if action == Store(key.state, key.slot, tier):
            return position
    return None


def kept(driver: Driver) -> dict[tuple[int, Key], None]:
    """All states and tapes that the stores hold, by tier and key."""
    keys = [store.keys() for store in driver.stores]
    return dict.fromkeys((tier, key) for tier, here in enumerate(keys) for key in here)


def newest_kept(driver: Driver) -> tuple[int, Key] | None:
    """The kept state with the greatest index."""
    states = [held for held in kept(driver) if not held[1].is_tape]
    return max(states, key=lambda held: held[1].state, default=None)


def fill(driver: Driver, wanted: dict[Address, Content], initial: Any) -> None:
    """Makes the stores hold what these addresses should, and nothing else; leaves no working state.

    Args:
        driver: its stores are filled, and its `recomputed` counts the steps that this takes.
        wanted: the state or the tape of each address.
        initial: state 0, which is used if no store holds it. A step may change it in place, so it serves once.
    """
    there = kept(driver)
    keys = {(tier, Key(slot, *content)) for (tier, slot), content in wanted.items()}
    # By index, and a state before the tape of the step that starts from it.
    lost = sorted(keys - there.keys(), key=lambda held: (held[1].state, held[1].is_tape))
    working, value, made = -1, None, None
    for tier, key in lost:
        if made is None or made[0] != key[1:]:
            older = [held for held in there if held[1].state <= key.state and not held[1].is_tape]
            source = max(older, key=lambda held: held[1].state, default=None)
            if source is not None and source[1].state > working:
                working, value = source[1].state, driver.store(source[0]).load(source[1])
            elif working < 0:
                working, value = 0, initial
            value = driver.chain.run(working, key.state, value)
            driver.recomputed += key.state - working + key.is_tape
            working, product = key.state, value
            if key.is_tape:
                value, product = driver.chain.taped(key.state, value)
                working += 1
            made = (key[1:], product)
        driver.store(tier).keep(key, made[1])
        there[tier, key] = None
    for tier, key in there:
        if (tier, key) not in keys:
            driver.store(tier).drop(key)
