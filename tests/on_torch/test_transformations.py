"""Claims about `torch.func`, forward mode and derivatives of derivatives: every one is the plain loop's."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import dynloop
from dynloop import BatchingError, StoppedBecause
from tests.closeness import assert_close

CHECKPOINTS = [1, 2, 3, "auto", "all"]
each_checkpoints = pytest.mark.parametrize("checkpoints", CHECKPOINTS)
W = torch.tensor([[0.9, 0.2], [-0.3, 0.8]], dtype=torch.float64)
X = torch.tensor([1.1, 0.4], dtype=torch.float64)


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def ours(checkpoints: Any = 2) -> Any:
    return functools.partial(dynloop.while_loop, checkpoints=checkpoints, max_steps=64)


def plain(cond: Callable[..., Any], body: Callable[..., Any], carry: Any) -> Any:
    while cond(carry):
        carry = body(carry)
    return carry


def problem(loop: Any, x: Tensor, w: Tensor) -> Tensor:
    """Six steps that read both, with a counter; the sum of what they made."""
    body = lambda c: (c[0] + 1, torch.sin(w @ c[1]) + 0.1 * x * c[1], c[2] + c[1].prod())
    _, y, total = loop(lambda c: c[0] < 6, body, (torch.tensor(0), x, vector(0.0)[0]))
    return (y * vector(1.0, 2.0)).sum() + total**2


# ---- orders


@each_checkpoints
def test_three_backward_passes_equal_unrolled(checkpoints: Any):
    found = []
    for loop in (ours(checkpoints), plain):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        y = problem(loop, x, w)
        every = []
        for _ in range(3):
            slopes = torch.autograd.grad(y, [x, w], create_graph=True)
            every += [g.detach() for g in slopes]
            y = (slopes[0] * vector(0.3, -1.0)).sum() + slopes[1].square().sum()
        found.append(every)
    assert_close(*found, tolerance=1e-11)


@pytest.mark.parametrize(
    "take",
    [
        grad,
        jacrev,
        jacfwd,
        hessian,
        lambda f: jacrev(jacrev(f)),
        lambda f: jacfwd(jacfwd(f)),
        lambda f: grad(grad_of(f)),
    ],
    ids=["grad", "jacrev", "jacfwd", "hessian", "jacrev jacrev", "jacfwd jacfwd", "grad grad"],
)
def test_a_transformation_equals_unrolled(take: Any):
    found = [take(lambda x, loop=loop: problem(loop, x, W))(X) for loop in (ours(), plain)]
    assert_close(*found)


def grad_of(f: Any) -> Any:
    return lambda x: (grad(f)(x) * vector(0.3, 2.0)).sum()


@pytest.mark.parametrize("take", [grad, jacrev, jacfwd, hessian], ids=["grad", "jacrev", "jacfwd", "hessian"])
def test_a_transformation_by_what_is_closed_over_equals_unrolled(take: Any):
    found = [take(lambda w, loop=loop: problem(loop, X, w))(W) for loop in (ours(), plain)]
    assert_close(*found)


def test_vjp_after_the_transformation_is_over():
    found = []
    for loop in (ours(), plain):
        value, pull = vjp(lambda x, w, loop=loop: problem(loop, x, w), X, W)[:2]
        found.append([value, *pull(torch.ones_like(value)), *vmap(pull)(torch.stack([value, 2 * value]))])
    assert_close(*found)


def test_forward_mode_without_a_transformation():
    found = []
    for loop in (ours(), plain):
        with forward_ad.dual_level():
            x, w = forward_ad.make_dual(X, vector(1.0, -2.0)), forward_ad.make_dual(W, W * W)
            found.append(list(forward_ad.unpack_dual(problem(loop, x, w))))
    assert_close(*found)


def test_forward_over_reverse_of_a_tape():
    v = vector(0.5, 1.5)
    found = [
        jvp(lambda x, loop=loop: grad(lambda x: problem(loop, x, W))(x), (X,), (v,))[1] for loop in (ours(), plain)
    ]
    assert_close(*found)


@each_checkpoints
def test_gradcheck_and_gradgradcheck(checkpoints: Any):
    def f(x: Tensor, w: Tensor) -> Tensor:
        return problem(ours(checkpoints), x, w)

    given = (X.clone().requires_grad_(), W.clone().requires_grad_())
    assert gradcheck(f, given, check_forward_ad=checkpoints == 1, check_batched_grad=False)
    if checkpoints in (1, "auto"):
        assert gradgradcheck(f, given)


def test_a_jacobian_by_batched_backward_passes():
    def f(x: Tensor) -> Any:
        return ours()(lambda y: y.square().sum() > 0.1, lambda y: torch.sin(W @ y) * 0.9, x)

    found = torch.autograd.functional.jacobian(f, X, vectorize=True)
    assert_close(
        found, jacrev(lambda x: plain(lambda y: y.square().sum() > 0.1, lambda y: torch.sin(W @ y) * 0.9, x))(X)
    )


def test_a_module_whose_parameters_are_given():
    lin = torch.nn.Linear(2, 2).double()

    def f(parameters: Any, x: Tensor) -> Tensor:
        body = lambda i, y: torch.tanh(functional_call(lin, parameters, (y,))) * 0.9
        return dynloop.fori_loop(0, 4, body, x, checkpoints=2).sum()

    parameters = {name: p.detach() for name, p in lin.named_parameters()}
    slopes = grad(f)(parameters, X)
    y = X
    learnt = {name: p.clone().requires_grad_() for name, p in parameters.items()}
    for _ in range(4):
        y = torch.tanh(functional_call(lin, learnt, (y,))) * 0.9
    wanted = torch.autograd.grad(y.sum(), list(learnt.values()))
    # What the module itself holds is closed over too, so there is a gradient of zero by that.
    assert_close([g.detach() for g in slopes.values()], list(wanted))


def newton(loop: Any, c: Tensor) -> Any:
    """A root of a polynomial, by steps that differentiate it themselves."""
    value = lambda x: c[0] * x * x + c[1] * x + c[2]
    return loop(lambda x: value(x).abs() > 1e-9, lambda x: x - value(x) / grad(value)(x), vector(3.0)[0])


def test_a_step_that_differentiates_by_itself():
    c = torch.stack([vector(1.0, 0.0, -2.0), vector(2.0, 0.1, -3.0), vector(1.0, 0.3, -7.0)])
    found = [vmap(lambda c: newton(ours(), c))(c), vmap(grad(lambda c: newton(ours(), c)))(c)]
    wanted = [[newton(plain, row) for row in c], [grad(lambda c: newton(plain, c))(row) for row in c]]
    assert_close(found, list(map(torch.stack, wanted)))
    assert_close(hessian(lambda c: newton(ours(), c))(c[1]), hessian(lambda c: newton(plain, c))(c[1]))
    leaf = c[0].clone().requires_grad_()
    slopes = [torch.autograd.grad(newton(loop, leaf), leaf, create_graph=True)[0] for loop in (ours(), plain)]
    assert_close(*[g.detach() for g in slopes])
    assert_close(*[torch.autograd.grad(g.sum(), leaf)[0] for g in slopes])


def test_trials_leave_no_trace():
    """It takes several runs to tell what a step makes by itself; they count and tell nothing."""
    told: list[int] = []
    count = torch.zeros(())
    observe = dynloop.on_step(lambda i, y: told.append(i))

    def body(y: Tensor) -> Tensor:
        count.add_(1)
        return y * (0.5 + grad(lambda x: 1.0 * x)(y))

    f = lambda x: dynloop.while_loop(lambda y: y < 10, body, x, observe=observe)
    vmap(f)(vector(1.0, 5.0))
    assert sorted(told) == [0, 0, 1, 1, 2, 3, 4, 5]
    assert float(count) == 6


# ---- lanes


def power(w: Tensor, **options: Any) -> Any:
    one = torch.ones((), dtype=torch.float64)
    return dynloop.while_loop(lambda y: y < 10, lambda y: y * w, one, **options)


@each_checkpoints
def test_lanes_that_stop_by_themselves(checkpoints: Any):
    # pytorch/pytorch#175522, jax-ml/jax#441, patrick-kidger/diffrax#692.
    ws = vector(2.0, 3.0, 11.0)
    f = functools.partial(power, checkpoints=checkpoints, max_steps=8, full_output=True)
    result = vmap(lambda w: (f(w).carry, f(w).steps, f(w).status))(ws)
    assert [x.tolist() for x in result] == [[16, 27, 11], [4, 3, 1], [0, 0, 0]]
    assert vmap(grad(lambda w: f(w).carry))(ws).tolist() == [32, 27, 1]
    assert grad(lambda ws: vmap(lambda w: f(w).carry)(ws).sum())(ws).tolist() == [32, 27, 1]
    leaves = ws.clone().requires_grad_()
    assert torch.autograd.grad(vmap(lambda w: f(w).carry)(leaves).sum(), leaves)[0].tolist() == [32, 27, 1]
    assert vmap(hessian(lambda w: f(w).carry))(ws).tolist() == [48, 18, 0]


@each_checkpoints
def test_a_root_at_zero_in_a_finished_lane(checkpoints: Any):
    # patrick-kidger/diffrax#701, jax-ml/jax#347: 0 * inf where finished lanes are masked.
    xs = vector(0.0, 4.0)
    f = lambda x: dynloop.while_loop(lambda y: y > 1.5, torch.sqrt, x, checkpoints=checkpoints, max_steps=9)
    wanted = vector(1, 0.25 * 4**-0.75)
    assert_close(vmap(grad(f))(xs), wanted)
    assert_close(grad(lambda xs: vmap(f)(xs).sum())(xs), wanted)


def test_the_body_never_sees_a_state_whose_condition_is_false():
    seen = []

    class Seen(torch.autograd.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(y: Tensor) -> Tensor:
            seen.append(y.clone())
            return y * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
            return Seen.apply(*args), in_dims[0]

    out = vmap(lambda x: dynloop.while_loop(lambda y: y < 10, lambda y: Seen.apply(y * 1), x))(
        vector(1.0, 6.0, 20.0, 3.0)
    )
    assert out.tolist() == [16, 12, 20, 12]
    assert [x.tolist() for x in seen] == [[1, 6, 3], [2, 6], [4], [8]]


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0), (1, 2)], ids=str)
def test_any_argument_may_be_batched(in_dims: Any):
    few = torch.Generator().manual_seed(1)
    batched = [torch.rand(3, *x.shape, generator=few, dtype=torch.float64) for x in (X, W)]
    args = [x if d is None else b.movedim(0, d) for x, b, d in zip((X, W), batched, in_dims, strict=True)]
    found = vmap(lambda x, w: problem(ours(), x, w), in_dims)(*args)
    rows = [[b[i] if d is not None else x for x, b, d in zip((X, W), batched, in_dims, strict=True)] for i in range(3)]
    assert_close(found, torch.stack([problem(plain, *row) for row in rows]))
    total = lambda *args: vmap(lambda x, w: problem(ours(), x, w), in_dims)(*args).sum()
    slopes = grad(total, (0, 1))(*args)
    wanted = grad(lambda *args: sum(problem(plain, *row) for row in unbatched(args, in_dims)), (0, 1))(*args)
    assert_close(slopes, wanted)


def unbatched(args: Any, in_dims: Any) -> Any:
    return [[x if d is None else x.select(d, i) for x, d in zip(args, in_dims, strict=True)] for i in range(3)]


def test_a_batch_of_batches():
    xs, ws = torch.arange(6.0, dtype=torch.float64).reshape(3, 2) + 0.5, vector(1.5, 2.0, 3.0, 1.2)

    def f(x: Tensor, w: Tensor) -> Any:
        return dynloop.while_loop(lambda y: y.sum() < 20, lambda y: y * w + 0.1, x, checkpoints=2)

    def run(x: Tensor, w: Tensor) -> Any:
        return plain(lambda y: y.sum() < 20, lambda y: y * w + 0.1, x)

    both = vmap(vmap(f, (0, None)), (None, 0))
    assert_close(both(xs, ws), torch.stack([torch.stack([run(x, w) for x in xs]) for w in ws]))
    every = vmap(vmap(grad(lambda x, w: f(x, w).square().sum(), (0, 1)), (0, None)), (None, 0))(xs, ws)
    wanted = [[grad(lambda x, w: run(x, w).square().sum(), (0, 1))(x, w) for x in xs] for w in ws]
    assert_close(every[0], torch.stack([torch.stack([g[0] for g in row]) for row in wanted]))
    assert_close(every[1], torch.stack([torch.stack([g[1] for g in row]) for row in wanted]))
    slopes = grad(lambda x, w: both(x, w).square().sum(), (0, 1))(xs, ws)
    assert_close(slopes[1], every[1].sum(1))


def test_rows_and_bounds_may_be_batched():
    rows = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    f = lambda xs: dynloop.scan(lambda c, x: (c + x, c * x), vector(1.0)[0], xs, until=lambda c: c > 9, checkpoints=1)
    found = vmap(f)(rows)
    each = [f(row) for row in rows]
    assert_close(found, (torch.stack([c for c, _ in each]), torch.stack([y for _, y in each])))
    slopes = vmap(grad(lambda xs: f(xs)[1].sum()))(rows)
    assert_close(slopes, torch.stack([grad(lambda xs: f(xs)[1].sum())(row) for row in rows]))
    counts = torch.tensor([0, 2, 5])
    powers = lambda n, x: dynloop.fori_loop(0, n, lambda i, y: y * x + i, vector(1.0)[0])
    assert vmap(powers, (0, None))(counts, vector(2.0)[0]).tolist() == [1, 5, 58]
    assert vmap(grad(powers, 1), (0, None))(counts, vector(2.0)[0]).tolist() == [0, 4, 80 + 12 + 8 + 3]


def test_a_lane_at_the_bound_leaves_the_others_alone():
    ws = vector(1.5, 3.0)
    f = lambda w, option: power(w, max_steps=3, on_max_steps=option, full_output=True)
    stopped = vmap(lambda w: (f(w, "stop").carry, f(w, "stop").status))(ws)
    assert [x.tolist() for x in stopped] == [[1.5**3, 27], [StoppedBecause.BOUND.value, StoppedBecause.CONDITION.value]]
    found = vmap(lambda w: f(w, "nan").carry)(ws)
    assert found.isnan().tolist() == [True, False]
    with pytest.raises(RuntimeError, match="max_steps=3 was reached"):
        vmap(lambda w: f(w, "raise").carry)(ws)


def test_each_step_of_each_lane_is_told_once():
    told = []
    watch = dynloop.on_step(lambda i, y: told.append((i, float(y))))
    f = lambda w: power(w, observe=watch)
    assert vmap(grad(f))(vector(2.0, 4.0)).tolist() == [32, 8]
    assert told == [(0, 2), (0, 4), (1, 4), (1, 16), (2, 8), (3, 16)]


def test_random_lanes_follow_vmap():
    f = lambda x: dynloop.while_loop(lambda c: c < 3, lambda c: c + 0.5 + torch.rand((), dtype=torch.float64), x)
    xs = torch.zeros(4, dtype=torch.float64)
    torch.manual_seed(0)
    out = vmap(f, randomness="different")(xs)
    assert len(set(out.tolist())) == 4
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(f)(xs)


@pytest.mark.parametrize("x", [-1.0, 0.0, 4.0])
def test_a_branch_by_itself_and_in_a_batch(x: float):
    def root(x: Tensor) -> Any:
        return dynloop.cond(x > 0, torch.sqrt, lambda x: torch.zeros_like(x), x)

    xs = vector(-1.0, 0.0, 4.0)
    assert vmap(grad(root))(xs).tolist() == [0, 0, 0.25]
    assert grad(lambda xs: vmap(root)(xs).sum())(xs).tolist() == [0, 0, 0.25]
    assert float(grad(root)(vector(x)[0])) == (0.25 if x > 0 else 0)


def test_a_batch_whose_branches_differ_in_kind_is_an_error():
    f = lambda x: dynloop.cond(x > 0, lambda: (x, x), lambda: x)
    with pytest.raises(dynloop.BranchError, match="must return the same structure"):
        vmap(f)(vector(-1.0, 1.0))
    g = lambda x: dynloop.cond(x > 0, lambda: x, lambda: x.float())
    with pytest.raises(dynloop.BranchError, match=r"by \.to\(torch\.float64\) in false_fn"):
        vmap(g)(vector(-1.0, 1.0))


def test_a_loop_of_a_branch_of_a_loop_in_a_batch():
    def grown(x: Tensor) -> Any:
        double = lambda: dynloop.while_loop(lambda y: y < 1, lambda y: 2 * y, x)
        return dynloop.cond(x > 0, double, lambda: x)

    value = vmap(torch.func.grad_and_value(grown))(vector(-1.0, 0.3, 0.0))
    assert_close(value, (vector(1.0, 4.0, 1.0), vector(-1.0, 1.2, 0.0)))


def test_lanes_and_processes_do_not_go_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(BatchingError, match=r'sync="any" and torch\.vmap do not go together'):
        vmap(lambda w: power(w, sync="any"))(vector(2.0, 3.0))
