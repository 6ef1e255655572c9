"""Claims about `tests.oracles`: each agrees with a published number, and each catches a broken answer."""

from math import comb

import pytest

from adjoint import Plan, plan
from tests.adjoint.facts import FACTS, Fact
from tests.oracles import (
    cheapest_plan,
    cheapest_prefix,
    held_after,
    optimal_first_offsets,
    price_of_keeping_all,
    reversal_table,
    shortest_reversal,
    shortest_split_reversal,
    stores_of_sparse_rule,
)

SHORT = [fact for fact in FACTS if fact.n <= 100]


@pytest.mark.parametrize("fact", SHORT, ids=str)
def test_the_dynamic_programme_meets_published_counts(fact: Fact):
    assert reversal_table(fact.n, fact.s)[fact.s][fact.n] == fact.advances


@pytest.mark.parametrize("fact", [fact for fact in SHORT if fact.n <= 10], ids=str)
def test_the_search_meets_published_counts(fact: Fact):
    assert shortest_reversal(fact.n, fact.s) == fact.advances


def test_the_dynamic_programme_catches_a_closed_form_with_one_sweep_too_many():
    n, s, t = 10, 3, 3
    assert (
        t * n - comb(s + t, s + 1) == 15 == reversal_table(n, s)[s][n]
    )  # at a full chain both sweeps give the optimum
    assert (t + 1) * n - comb(s + t + 1, s + 1) != reversal_table(n, s)[s][n]


def test_the_offsets_catch_one_that_is_too_far():
    table = reversal_table(8, 3)
    assert optimal_first_offsets(table, 8, 3) == [2, 3, 4]
    assert 5 + table[2][3] + table[3][5] > table[3][8]


def test_the_search_catches_a_missing_state():
    assert shortest_reversal(8, 2, (0, 4), working=None) < shortest_reversal(8, 2, (0,), working=None)


def test_the_search_needs_state_0():
    with pytest.raises(AssertionError, match="no reversal exists"):
        shortest_reversal(3, 2, (1,), working=None)


def test_a_split_reversal_is_dearer_than_a_joined_one():
    assert shortest_split_reversal(6, 2) > shortest_reversal(6, 2)


def test_the_rule_catches_a_slot_that_is_not_reused():
    events = stores_of_sparse_rule(3, 60)
    assert len(held_after(events, 60)) == 3
    renumbered = [(state, number, []) for number, (state, _, _) in enumerate(events)]
    assert len(held_after(renumbered, 60)) > 3


def test_the_rule_catches_a_slot_that_is_not_freed():
    events = stores_of_sparse_rule(8, 3700)
    unfreed = [(state, slot, []) for state, slot, _ in events]
    assert len(held_after(events, 3604)) < len(held_after(unfreed, 3604)) == 8


def test_the_plan_search_catches_a_plan_that_keeps_all():
    stored, steps, slots = (0, 9, 13), 18, 3
    table = reversal_table(steps, slots)
    assert price_of_keeping_all(stored, steps, slots, table) > cheapest_plan(stored, steps, slots, table)
    assert plan(stored, steps, slots) != Plan(stored, 13, price_of_keeping_all(stored, steps, slots, table))


def test_the_search_of_prefixes_is_dearer_where_an_old_state_is_in_the_way():
    stored, steps, slots = (0, 1, 10), 17, 3
    table = reversal_table(steps, slots)
    assert cheapest_plan(stored, steps, slots, table) < cheapest_prefix(stored, steps, slots, table)[0]
