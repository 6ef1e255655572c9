"""A network that ponders each letter, against Python loops that ponder the same, and trained."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.dynloop.adapter import Backend

WORDS = np.array([[1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
LENGTHS = np.array([4, 2, 0])


@pytest.fixture(scope="module")
def pondering(story: Callable[[str], Any]) -> Any:
    return story("ponder")


def python_loops(pondering: Any, network: Any, word: np.ndarray, length: int) -> tuple[Any, Any, list[int]]:
    """The oracle: state and cost after a word, and how many steps each letter took (Graves 2016, section 2)."""
    state, cost, counts = jnp.zeros(pondering.SIZE), jnp.zeros(()), []
    for letter in word[:length]:
        states, chances = [state], []
        while True:
            fresh = network.fresh if not chances else 0 * network.fresh
            states.append(jnp.tanh(network.cell @ states[-1] + letter * network.letter + fresh + network.bias))
            chance = jax.nn.sigmoid(network.halt @ states[-1] + network.halt_bias)
            if sum(chances) + chance > 1 - pondering.RESERVE or len(chances) + 1 >= pondering.MOST_PONDERED:
                break
            chances.append(chance)
        rest = 1 - sum(chances)
        state = sum(c * s for c, s in zip([*chances, rest], states[1:], strict=True))
        cost, counts = cost + len(states) - 1 + rest, [*counts, len(states) - 1]
    return state, cost, counts


def test_readings_and_their_gradient_equal_the_python_loops(pondering: Any, backend: Backend) -> None:
    born = pondering.newborn()
    plain = born._replace(halt=4 * born.halt, halt_bias=np.array(-0.7))
    network = type(plain)(*map(backend.asarray, plain))
    words, lengths = backend.asarray(WORDS), backend.asarray(LENGTHS, "int32")
    vmap = import_module(backend.library).vmap
    counts = [python_loops(pondering, plain, *word)[2] for word in zip(WORDS, LENGTHS, strict=True)]
    assert len({count for row in counts for count in row}) > 1, "letters must be pondered for different times"

    def total(*parts: Any) -> Any:
        reading = vmap(lambda w, n: pondering.read(backend.xp, type(plain)(*parts), w, n, 2))(words, lengths)
        return (reading.state.sum(-1) ** 2 + reading.cost).sum()

    def expected(network: Any) -> Any:
        read = [python_loops(pondering, network, *word)[:2] for word in zip(WORDS, LENGTHS, strict=True)]
        return sum(jnp.sum(state) ** 2 + cost for state, cost in read)

    value, slope = jax.value_and_grad(expected)(jax.tree.map(jnp.asarray, plain))
    np.testing.assert_allclose(backend.value(total, *network), value, rtol=1e-12)
    for found, exact in zip(backend.grad(total, tuple(range(7)))(*network), slope, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-12)


def test_network_that_never_halts_is_stopped(pondering: Any, backend: Backend) -> None:
    plain = pondering.newborn()._replace(halt_bias=np.array(-50.0))
    network = type(plain)(*map(backend.asarray, plain))
    thought = pondering.ponder(backend.xp, network, 0 * network.bias, 1.0, 0)
    assert int(thought.steps) == pondering.MOST_PONDERED


def test_trained_network_knows_all_words(pondering: Any, capsys: Any, tmp_path: Any) -> None:
    letters, lengths, odd = pondering.words()
    assert len(letters) == 2 + 4 + 8 + 16
    logit, _ = pondering.logits(pondering.newborn(), jnp.asarray(letters), jnp.asarray(lengths))
    assert np.mean((np.asarray(logit) > 0) == (odd > 0.5)) < 0.8, "one that has learnt nothing must not know them"
    pondering.main([str(tmp_path / "ponder.png")])
    assert "knows 30 of 30 words" in capsys.readouterr().out
    assert (tmp_path / "ponder.png").read_bytes().startswith(b"\x89PNG")


def test_several_words_at_once_are_refused(pondering: Any) -> None:
    with pytest.raises(ValueError, match="must be one word"):
        pondering.read(jnp, pondering.newborn(), jnp.ones((2, 4)), 4)
