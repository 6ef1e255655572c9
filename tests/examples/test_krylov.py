"""Conjugate gradients and Lanczos's process against SciPy, and their gradients against linear algebra."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.dynloop.adapter import Backend


@pytest.fixture
def krylov(story: Callable[[str], Any]) -> Any:
    return story("krylov")


def test_solution_equals_numpy(krylov: Any, backend: Backend) -> None:
    matrix = krylov.membrane()
    b = krylov.load(len(matrix))
    stiffness = backend.asarray(matrix)
    result = backend.value(
        lambda b: krylov.conjugate_gradients(backend.xp, lambda x: stiffness @ x, b), backend.asarray(b)
    )
    np.testing.assert_allclose(result.carry.x, np.linalg.solve(matrix, b), rtol=0, atol=1e-10)
    # As many steps as there are tones in exact arithmetic, and one or two for rounding.
    assert int(result.steps) <= krylov.different_tones(matrix) + 2


def test_gradients_of_the_solution_equal_the_closed_form(krylov: Any, backend: Backend) -> None:
    b, v = krylov.load(16), np.linspace(-1, 1, 16)
    wanted = backend.asarray(v)
    solution = lambda a, b: krylov.conjugate_gradients(backend.xp, lambda x: a @ x, b).carry.x
    gradient = backend.grad(lambda a, b: solution(a, b) @ wanted, (0, 1))

    def errors(matrix: np.ndarray) -> tuple[float, float]:
        by_matrix, by_load = gradient(backend.asarray(matrix), backend.asarray(b))
        adjoint, x = np.linalg.solve(matrix, v), np.linalg.solve(matrix, b)
        # The steps hold for symmetric matrices, so only a symmetric change of one means anything.
        exact = -(np.outer(adjoint, x) + np.outer(x, adjoint))
        differences = np.asarray(by_matrix + by_matrix.T) - exact, np.asarray(by_load) - adjoint
        return float(np.max(abs(differences[0]))), float(np.max(abs(differences[1])))

    square = krylov.membrane(4)
    by_matrix, by_load = errors(square + np.diag(np.linspace(0, 1, 16)))
    assert max(by_matrix, by_load) < 1e-8
    # Equal tones: the steps know the load's gradient, and not what would part the tones.
    by_matrix, by_load = errors(square)
    assert by_load < 1e-8
    assert by_matrix > 1e-4


def test_lanczos_stops_when_the_tones_are_used_up(krylov: Any, backend: Backend) -> None:
    matrix = krylov.membrane()
    stiffness = backend.asarray(matrix)
    result = backend.value(
        lambda start: krylov.lanczos(backend.xp, lambda x: stiffness @ x, start),
        backend.asarray(krylov.load(len(matrix))),
    )
    steps = krylov.different_tones(matrix)
    assert int(result.steps) == steps < len(matrix)
    on, beside = (np.asarray(y)[:steps] for y in result.ys)
    found = np.linalg.eigvalsh(np.diag(on) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1))
    tones = np.linalg.eigvalsh(matrix)
    np.testing.assert_allclose(found, tones[np.concatenate([[True], np.diff(tones) > 1e-8])], rtol=1e-10)


def test_highest_tone_and_its_gradient_equal_those_of_scipy(krylov: Any, backend: Backend) -> None:
    matrix = krylov.membrane(4)
    stiffness, start = backend.asarray(matrix), backend.asarray(krylov.load(16))
    tone = lambda extra: krylov.highest(backend.xp, lambda x: stiffness @ x + extra * x, start)
    value, slope = krylov.highest_exactly(matrix)
    extra = backend.asarray(np.zeros(16))
    np.testing.assert_allclose(backend.value(tone, extra), value, rtol=1e-12)
    np.testing.assert_allclose(backend.grad(tone)(extra), slope, rtol=0, atol=1e-7)


def test_zero_load_takes_no_step(krylov: Any, backend: Backend) -> None:
    result = krylov.conjugate_gradients(backend.xp, lambda x: 2 * x, backend.asarray(np.zeros(3)))
    assert int(result.steps) == 0
    np.testing.assert_array_equal(result.carry.x, np.zeros(3))


def test_steps_that_do_not_suffice_raise(krylov: Any, backend: Backend) -> None:
    matrix = backend.asarray(krylov.membrane())
    with pytest.raises(RuntimeError, match="max_steps"):
        krylov.conjugate_gradients(
            backend.xp, lambda x: matrix @ x, backend.asarray(krylov.load(36)), checkpoints=0, max_steps=5
        )


@pytest.mark.parametrize(("shape", "tolerance", "said"), [((2, 2), 1e-9, r"must be \[n\]"), ((3,), -1.0, "positive")])
@pytest.mark.parametrize("solver", ["conjugate_gradients", "lanczos"])
def test_bad_input_is_refused(krylov: Any, solver: str, shape: tuple[int, ...], tolerance: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        getattr(krylov, solver)(jnp, lambda x: x, jnp.ones(shape), tolerance)


def test_tone_is_printed_beside_that_of_scipy(krylov: Any, capsys: Any, tmp_path: Any) -> None:
    krylov.main([str(tmp_path / "membrane.png")])
    found, exact = (float(part.split()[-1]) for part in capsys.readouterr().out.split(","))
    assert found == pytest.approx(exact, rel=1e-11)
    assert (tmp_path / "membrane.png").read_bytes().startswith(b"\x89PNG")
