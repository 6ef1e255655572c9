"""How long does a network think? One that reads words of any length, and ponders each letter while it likes.

Is the number of ones in a word odd? Each word has its own length, and for each letter the network runs its cell again
and again until its chances of halting sum to nearly one: adaptive computation time (Graves 2016). Two loops whose
lengths the data decide, one inside of the other; the gradient goes through all of their steps, and says too what
thinking costs. This file trains the network on all words of one to four letters, and prints how many of them it knows.

`python examples/ponder.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both.
"""

import sys
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import dynloop

Array = Any

SIZE, LONGEST = 8, 4
# Halting when this little of the chance is left; and after so many steps in any case.
RESERVE, MOST_PONDERED = 0.01, 10
# What a ponder step costs beside the error, and how the network is trained (Kingma and Ba 2015).
PRICE, RATE, UPDATES = 1e-3, 0.02, 400


class Network(NamedTuple):
    """What is trained."""

    cell: Array  # [SIZE, SIZE], from state to state
    letter: Array  # [SIZE], by the letter, -1 or 1
    fresh: Array  # [SIZE], added in the first step that ponders a letter
    bias: Array  # [SIZE]
    halt: Array  # [SIZE], to the logit of the chance to halt
    halt_bias: Array
    answer: Array  # [SIZE], to the logit of "odd"


class Thought(NamedTuple):
    """What goes from step to step while one letter is pondered."""

    state: Array  # [SIZE]
    mean: Array  # [SIZE], of the states so far, each by its chance to be the last
    spent: Array  # the sum of these chances
    rest: Array  # what was left for the last step
    steps: Array  # how many steps there have been


class Reading(NamedTuple):
    """What goes from letter to letter."""

    state: Array  # [SIZE]
    cost: Array  # steps and rests so far, Graves 2016, equation 10


def ponder(xp: Any, network: Network, state: Array, letter: Array, checkpoints: Any = 8) -> Thought:
    """The last thought about one letter, after `state` [SIZE]."""

    def body(thought: Thought) -> Thought:
        fresh = xp.where(thought.steps == 0, 1.0, 0.0) * network.fresh
        state = xp.tanh(network.cell @ thought.state + letter * network.letter + fresh + network.bias)
        chance = 1 / (1 + xp.exp(-(network.halt @ state + network.halt_bias)))
        halts = (thought.spent + chance > 1 - RESERVE) | (thought.steps + 1 >= MOST_PONDERED)
        rest = 1 - thought.spent
        weight = xp.where(halts, rest, chance)
        return Thought(
            state=state,
            mean=thought.mean + weight * state,
            spent=xp.where(halts, 0 * rest + 1, thought.spent + chance),
            rest=xp.where(halts, rest, 0 * rest),
            steps=thought.steps + 1,
        )

    zero = 0 * network.halt_bias
    first = Thought(state, 0 * state, zero, zero, 0)
    return dynloop.while_loop(lambda thought: thought.spent < 1, body, first, checkpoints=checkpoints)


def read(xp: Any, network: Network, word: Array, length: Array, checkpoints: Any = 8) -> Reading:
    """What is thought of the first `length` letters of a word [LONGEST] of -1 and 1, and what it cost to think."""
    if word.ndim != 1:
        raise ValueError(f"read: word must be one word, [letters]; got {tuple(word.shape)}; use vmap for several")
    places = xp.arange(word.shape[0])

    def body(place: Array, reading: Reading) -> Reading:
        letter = xp.where(places == place, word, 0 * word).sum()
        thought = ponder(xp, network, reading.state, letter, checkpoints)
        return Reading(thought.mean, reading.cost + thought.steps + thought.rest)

    first = Reading(0 * network.bias, 0 * network.halt_bias)
    return dynloop.fori_loop(0, length, body, first, checkpoints=checkpoints)


def words() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All words of one to LONGEST letters, [words, LONGEST], their lengths, and whether their ones are odd."""
    all_words = [word for length in range(1, LONGEST + 1) for word in product((-1.0, 1.0), repeat=length)]
    padded = np.array([[*word, *(LONGEST - len(word)) * [0.0]] for word in all_words])
    odd = np.array([sum(letter > 0 for letter in word) % 2 for word in all_words], float)
    return padded, np.array([len(word) for word in all_words], np.int32), odd


def newborn(seed: int = 0) -> Network:
    """A network that has learnt nothing, and halts readily."""
    draw = np.random.default_rng(seed)
    vector = lambda: draw.normal(size=SIZE) / np.sqrt(SIZE)
    cell = draw.normal(size=(SIZE, SIZE)) / np.sqrt(SIZE)
    return Network(cell, 2 * vector(), vector(), vector(), vector(), np.array(0.5), vector())


@jax.jit
def logits(network: Network, words: Array, lengths: Array) -> tuple[Array, Array]:
    """For each word on JAX, the logit of "odd" and the cost of thinking."""
    reading = jax.vmap(lambda word, length: read(jnp, network, word, length))(words, lengths)
    return reading.state @ network.answer, reading.cost


def loss(network: Network, words: Array, lengths: Array, odd: Array) -> Array:
    """The mean cross entropy, and the price of thinking."""
    logit, cost = logits(network, words, lengths)
    return jnp.mean(jnp.logaddexp(0.0, logit) - odd * logit + PRICE * cost)


@partial(jax.jit, static_argnames="updates")
def train(network: Network, words: Array, lengths: Array, odd: Array, updates: int = UPDATES) -> Network:
    """The network after so many updates by Adam, on all words at once."""

    def update(index: Array, carry: tuple[Network, Network, Network]) -> tuple[Network, Network, Network]:
        network, first, second = carry
        slope = jax.grad(loss)(network, words, lengths, odd)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, second, slope)
        size = RATE * jnp.sqrt(1 - 0.99 ** (index + 1.0)) / (1 - 0.9 ** (index + 1.0))
        moved = jax.tree.map(lambda p, m, v: p - size * m / (jnp.sqrt(v) + 1e-8), network, first, second)
        return moved, first, second

    network = jax.tree.map(jnp.asarray, network)
    zero = jax.tree.map(jnp.zeros_like, network)
    return dynloop.fori_loop(0, updates, update, (network, zero, zero), checkpoints=0)[0]


def draw(network: Network, picture: str) -> None:
    """How long each word was thought about."""
    letters, lengths, _ = words()
    _, cost = logits(network, jnp.asarray(letters), jnp.asarray(lengths))
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(lengths, np.asarray(cost), "o", alpha=0.5)
    axes.set(xlabel="letters of the word", ylabel="ponder steps and rests")
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints how many words the trained network knows, of how many, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    letters, lengths, odd = words()
    network = train(newborn(), letters, lengths, odd)
    logit, cost = logits(network, jnp.asarray(letters), jnp.asarray(lengths))
    known = int(np.sum((np.asarray(logit) > 0) == (odd > 0.5)))
    print(f"knows {known} of {len(odd)} words, at {float(jnp.mean(cost / lengths)):.2f} steps and rests a letter")
    if arguments:
        draw(network, arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
