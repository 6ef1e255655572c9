"""Drives any schedule with the user's own steps: adjoints by hand, for steps that no compiler takes.

A state may be anything: an array of any library, an object, the name of a file that a simulator wrote. Three functions
say what a step is, what its adjoint is and, if nobody knows the number of steps, when to stop.
`reverse` does the whole; `resume` does it too, and goes on from what an interrupted run has left in its stores;
`forward` keeps the states of one forward pass for as many reversals as are asked for.
That a schedule tells a driver what to do, and knows no state, is the idea of Griewank & Walther 2000 (Algorithm 799);
that the number of steps may become known last, of Wang, Moin & Iaccarino 2009 and Stumm & Walther 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.chain import Advance, Apply, Chain, Record, Turn, Until, checked_function
from adjoint.driver import Driver
from adjoint.replay import HasActions
from adjoint.run import Reversal, Run
from adjoint.store import Key, StateStore


def reverse(
    schedule: HasActions,
    steps: int | None,
    advance: Advance,
    turn: Turn,
    state: Any,
    cotangent: Any,
    *,
    store: StateStore | Sequence[StateStore] | None = None,
    until: Until | None = None,
    record: Record | None = None,
    apply: Apply | None = None,
) -> Reversal:
    """Runs a chain of steps forward and reverses it, keeping the states that a schedule says.

    Args:
        schedule: which states to keep and which steps to redo.
        steps: n, or None if only the states can tell; the schedule must then be an online one.
        advance: maps (step, state) to the next state. It may change its state in place, and return it. A `Span` runs
            many steps in one call. Without `steps` and `until` it raises StopIteration where there is no next state.
        turn: maps (step, state, cotangent) to the cotangent in front of the step, state being the one that the step
            starts from, and cotangent the one behind the step. It may change both in place. Cotangents are as opaque
            as states: a pair may hold a parameter's gradient beside the state's, a list many adjoints at once.
        state: state 0. If advance changes states in place, it changes this one.
        cotangent: the cotangent of the last state, or a function that makes it from the last state.
        store: where states are kept: one store, or one for each tier of the schedule, the fastest first; by default
            a `MemoryStore()` each. The last one also keeps what `resume` needs.
        until: maps (step, state) to whether the chain ends with this state; asked before every step, the first one
            too. Only without `steps`.
        record: maps (step, state) to the next state and the step's tape; only for schedules that keep tapes (`Mixed`).
        apply: maps (step, tape, cotangent) to the cotangent in front of the step; only for such schedules.

    Returns:
        The cotangent of state 0, the last state, and counts.

    Raises:
        StepError: one of the functions failed; it says at which step. `resume` can go on.
        StoreError, StateError: a store cannot keep a state.
        InvariantError: the schedule's actions are wrong; nothing was done on their account.
        ScheduleError: an argument is wrong, or the schedule has no answer for this number of steps.

    Cost: `schedule.cost(steps)`: that many evaluations and slots, and the time of the stores.

    The derivative of 100 steps of the logistic map, with three states kept:

    >>> from adjoint import Binomial
    >>> result = reverse(
    ...     Binomial(3), 100, lambda i, x: 2.5 * x * (1 - x), lambda i, x, bar: 2.5 * (1 - 2 * x) * bar, 0.3, 1.0)
    >>> f"{result.state:.4f} {result.cotangent:.1e} {result.advances}"
    '0.6000 -4.4e-31 497'

    The number of steps unknown:

    >>> from adjoint import Online
    >>> halve, until = lambda i, x: x / 2, lambda i, x: x < 1
    >>> reverse(Online(3), None, halve, lambda i, x, bar: bar / 2, 100.0, 1.0, until=until).steps
    7
    """
    run = Run(schedule, steps, Chain(advance, turn, until, record, apply), state, cotangent, store)
    return run.carry_out(is_new=True)


def resume(
    schedule: HasActions,
    steps: int | None,
    advance: Advance,
    turn: Turn,
    state: Any,
    cotangent: Any,
    *,
    store: StateStore | Sequence[StateStore],
    until: Until | None = None,
    record: Record | None = None,
    apply: Apply | None = None,
) -> Reversal:
    """Goes on with a reversal that was interrupted: by a kill, a failing step, a full disk. Begins it if there is none.

    Everything is given as it was to `reverse`; what the last store recorded says how far the run had come. The answer
    is the same bit for bit, if the steps are deterministic. So a program that calls `resume` instead of `reverse` may
    be killed and started again at any time. A run that is finished gives its answer again, without a step.

    Args:
        schedule: as for `reverse`.
        steps: as for `reverse`.
        advance: as for `reverse`.
        turn: as for `reverse`.
        state: as for `reverse`; it is used if no store holds state 0.
        cotangent: as for `reverse`.
        store: the stores of the interrupted run: a `DiskStore` of the same folder, or in the same process the very
            `MemoryStore`. States that did not survive are computed again.
        until: as for `reverse`.
        record: as for `reverse`.
        apply: as for `reverse`.

    Returns:
        As `reverse`; the counts are those of this call.

    Raises:
        StoreError: the store belongs to another run, or what it holds is damaged; the error says what to do.
        Otherwise as `reverse`.

    Cost: at most one sweep over the steps for the states that did not survive, and what was left of the run.

    >>> from adjoint import Binomial, MemoryStore, StepError
    >>> broken = iter([True])
    >>> def turn(i, x, bar):
    ...     if i == 4 and next(broken, False):
    ...         raise OSError("licence server not found")
    ...     return 2 * bar
    >>> run = (Binomial(3), 10, lambda i, x: 2 * x, turn, 1.0, 1.0)
    >>> store = MemoryStore()
    >>> try:
    ...     reverse(*run, store=store)
    ... except StepError as error:
    ...     print(error)
    turn failed at step 4: OSError: licence server not found; what was stored is intact, and resume can go on from it.
    >>> result = resume(*run, store=store)
    >>> result.cotangent, result.turns
    (1024.0, 5)
    """
    run = Run(schedule, steps, Chain(advance, turn, until, record, apply), state, cotangent, store)
    return run.carry_out(is_new=False)


def forward(
    schedule: HasActions,
    steps: int | None,
    advance: Advance,
    state: Any,
    *,
    store: StateStore | Sequence[StateStore] | None = None,
    until: Until | None = None,
    record: Record | None = None,
) -> Forward:
    """Runs a chain forward once, keeping states, for any number of reversals of it, one after the other.

    For cotangents that become known one by one, such as the rows of a Jacobian that an iteration asks for. Cotangents
    that are known together cost less as a list in one `reverse`.

    Args:
        schedule: as for `reverse`; it delivers the last state before the first turn (see `Schedule`).
        steps: as for `reverse`.
        advance: as for `reverse`.
        state: as for `reverse`.
        store: as for `reverse`.
        until: as for `reverse`.
        record: as for `reverse`.

    Returns:
        The run: its last state, its number of steps, and its method `reverse`.

    Raises:
        As `reverse`; and ScheduleError for a joined schedule.

    Cost: the forward pass once. The states that it kept stay, so up to twice the schedule's slots are in use.

    >>> from adjoint import Binomial
    >>> with forward(Binomial(3), 10, lambda i, x: 2 * x, 1.0) as run:
    ...     [run.reverse(lambda i, x, bar: 2 * bar, cotangent).cotangent for cotangent in (1.0, 3.0)]
    [1024.0, 3072.0]
    """
    return Forward(Run(schedule, steps, Chain(advance, None, until, record), state, None, store))


class Forward:
    """A forward pass whose states are kept, as `forward` makes it; it may be reversed any number of times.

    Leaving its `with` block, or `end()`, closes the stores.

    >>> from adjoint import StoreAll
    >>> with forward(StoreAll(), 3, lambda i, x: 2 * x, 1.0) as run:
    ...     run.steps, run.state, run.reverse(lambda i, x, bar: 2 * bar, 1.0).turns
    (3, 8.0, 3)
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        run.begin(is_new=True)
        try:
            driver = run.driver
            driver.is_resumable = False
            actions = run.go_forward(is_new=True)
            while not driver.is_delivered:
                driver.execute(next(actions))
        except BaseException:
            run.end()
            raise
        self.steps = driver.position.steps
        self.state = driver.last
        held = driver.position.held.items()
        self.kept = frozenset((tier, Key(slot, *content)) for (tier, slot), content in held)

    def reverse(self, turn: Turn, cotangent: Any, *, apply: Apply | None = None) -> Reversal:
        """Reverses the run.

        Args:
            turn: as for `adjoint.reverse`.
            cotangent: as for `adjoint.reverse`.
            apply: as for `adjoint.reverse`.

        Returns:
            As `adjoint.reverse`; the plain steps of the forward pass are not counted again.
        """
        checked_function("turn", turn, "a function of (step, state, cotangent)")
        run = self.run
        chain = Chain(run.driver.chain.advance, turn, record=run.driver.chain.record, apply=apply)
        driver = run.driver = Driver(chain, run.stores, None, chain.seed(self.steps, cotangent, self.state))
        driver.protected = self.kept
        driver.is_resumable = False
        driver.is_delivered = True
        driver.last = self.state
        driver.follow(run.go_back_to(self.steps, 0))
        return run.result()

    def end(self) -> None:
        """Closes the stores."""
        self.run.end()

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *failure: object) -> None:
        self.end()
