"""Random programs mean the same before and after `@dynloop.loop`, and the same again where they are staged."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, settings

import dynloop
from tests.syntax.programs import defined, outcome, programs

INPUTS = [(0, 1, 2), (7, -3, 4), (52, 11, 0)]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much]


def check_plain(text: str) -> None:
    original, rewritten = defined(text), dynloop.loop(defined(text))
    for numbers in INPUTS:
        expected = outcome(original, *numbers, [5, 6, 7])
        assert outcome(rewritten, *numbers, [5, 6, 7]) == expected, dynloop.source(rewritten)


def check_jit(text: str) -> None:
    original = defined(text)
    compiled = jax.jit(dynloop.loop(defined(text)), static_argnums=4)
    for numbers in INPUTS[:2]:
        expected, _ = outcome(original, *numbers, [5, 6, 7])
        found = compiled(*numbers, jnp.array([5, 6, 7]), None)
        for x, y in zip(expected, found, strict=True):
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@settings(max_examples=500, suppress_health_check=SLOW)
@given(text=programs(is_staged=False))
def test_a_plain_program_means_what_it_meant(text: str) -> None:
    check_plain(text)


@settings(max_examples=60, suppress_health_check=SLOW)
@given(text=programs(is_staged=True))
def test_a_staged_program_means_what_it_meant(text: str) -> None:
    check_jit(text)
