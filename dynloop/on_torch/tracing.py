"""How Dynamo traces the operator: cond and body become graphs, and what they close over becomes arguments."""

import dataclasses
from typing import Any

import torch

from dynloop.errors import CarryError
from dynloop.on_torch import internals, trying
from dynloop.on_torch.operator import STATIC, loop_operator


class LoopVariable(internals.TorchHigherOrderOperatorVariable):
    """The operator, as Dynamo sees a call of it."""

    _HOP_NAME = "dynloop_while_loop"
    _ALLOW_FALLBACK_TO_EAGER = False
    # Refused below, in our words.
    supports_input_mutation = True
    supports_aliasing = True

    def _call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = internals.LazyVariableTracker.realize_all((args, kwargs))
        cond, body, *groups = args
        static = constant(tx, kwargs["static"])
        carries, xs, counts, sizes, _ = [internals.unpack_iterable(tx, x) for x in groups]

        def examples() -> tuple[list[Any], list[Any]]:
            with internals.discard_graph_changes(tx):
                return [self.example(tx, x) for x in carries], [internals._make_inlined(tx, row)(x) for x in xs]

        traced = []
        for label, function, has_rows in (("cond", cond, False), ("body", body, True)):
            own, rows = examples()
            given = [*own, *rows] if has_rows else own
            traced.append(self.speculate(tx, function, given))
            check_unchanged(static.storage.name, label, traced[-1][1], len(own) - static.is_counted, static.is_counted)
        (_, cond_graph, cond_freevars), (_, body_graph, body_freevars) = traced
        cond_graph, body_graph, shared, _, in_cond, in_body = internals._merge_graph_inputs(
            cond_graph, cond_freevars, "cond_fn", body_graph, body_freevars, "body_fn"
        )
        nodes = []
        for name, graph in (("cond_fn", cond_graph), ("body_fn", body_graph)):
            module = torch.fx.GraphModule(dict(tx.output.nn_modules), graph)
            module.meta[STATIC] = static
            nodes.append(internals.make_attr(tx, tx.output.install_subgraph(name, module)))
        proxies = [tuple(x.as_proxy() for x in group) for group in (carries, xs, counts, sizes)]
        constants = (*shared, *in_cond, *in_body)
        proxy = tx.output.create_proxy("call_function", loop_operator, (*nodes, *proxies, constants), {})
        return internals.wrap_fx_proxy(tx=tx, proxy=proxy)

    def example(self, tx: Any, carry: Any) -> Any:
        example = carry.call_method(tx, "clone", [], {})
        # A carry that is a constant before the loop is none in it.
        example.proxy.node.meta["example_value"].constant = None
        return example

    def speculate(self, tx: Any, function: Any, args: list[Any]) -> Any:
        return internals.speculate_subgraph(
            tx,
            function,
            args,
            {},
            "dynloop_while_loop",
            source_target=self.value,
            # The order of the arguments is ours, not that in which they are used.
            set_subgraph_inputs="flatten_manual",
            should_flatten_outputs=True,
            supports_input_mutation=self.supports_input_mutation,
            supports_aliasing=self.supports_aliasing,
            remove_consts_from_outputs=False,
        )


def check_unchanged(name: str, label: str, graph: Any, leaves: int, counters: int) -> None:
    """Raises an error where a function changes what it is given, or closes over, in place."""
    changed = sorted(getattr(graph, "_dynamo_mutated_input_indices", ()))
    if not changed:
        return
    at = changed[0] - counters
    what = f"leaf {at} of the carry" if at < leaves else "a tensor that it closes over, or a row"
    raise CarryError(
        f"{name}: {label} changes {what} in place, and a gradient may run it again. Return a tensor of its own, such "
        "as by x + 1 instead of x += 1; what a step changes, such as the statistics of a normalization, belongs into "
        "the carry (inside of torch.compile; outside of it buffers of modules may move)."
    )


class ProbeVariable(internals.TorchHigherOrderOperatorVariable):
    """A call of a function for what Python learns from it: the operations that it would do are left out."""

    _HOP_NAME = "dynloop_probe"
    _ALLOW_FALLBACK_TO_EAGER = False

    def _call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        function, *given = args
        before = set(tx.output.current_tracer.graph.nodes)
        outer = trying.probes(tx.output)
        trying.note(tx.output, outer + 1)
        try:
            return function.call_function(tx, given, kwargs)
        finally:
            trying.note(tx.output, outer)
            for node in reversed(list(tx.output.current_tracer.graph.nodes)):
                if node not in before and node.op not in ("placeholder", "get_attr"):
                    tx.output.current_tracer.graph.erase_node(node)


def constant(tx: Any, variable: Any) -> Any:
    """The value of something that is known while tracing."""
    variable = variable.realize() if isinstance(variable, internals.LazyVariableTracker) else variable
    kind: Any = variable.python_type()
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        made: Any = kind
        return made(**{name: constant(tx, variable.var_getattr(tx, name)) for name in names})
    if isinstance(variable, internals.SymNodeVariable):
        # A number that was another one when this code was compiled before.
        return variable.evaluate_expr(tx.output)
    return variable.as_python_constant()


def row(x: Any) -> Any:
    return x.new_empty(x.shape[1:])


internals._hop_name_to_variable_class["dynloop_while_loop"] = LoopVariable
internals._hop_name_to_variable_class["dynloop_probe"] = ProbeVariable
