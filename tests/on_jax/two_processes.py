"""One of two processes with two devices each, which sum one gradient: started twice by test_sharding.py.

`python -m tests.on_jax.two_processes PORT INDEX`
"""

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import dynloop
from tests.on_jax.device_process import report


def gradient_of_replicated(check: bool) -> tuple[Any, Any]:
    """The devices of the first process take 4 and 2 steps, those of the second 1 and 0."""
    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    x = np.asarray([1.0, 3.0, 6.0, 20.0])
    xs = jax.make_array_from_callback((4,), jax.NamedSharding(mesh, jax.P("i")), lambda index: x[index])
    w = jax.make_array_from_callback((), jax.NamedSharding(mesh, jax.P()), lambda _: np.asarray(2.0))

    def local(w: Any, x: Any) -> Any:
        return lax.psum(dynloop.while_loop(lambda y: y < 10, lambda y: w * y, x[0], checkpoints=2), "i")

    f = jax.shard_map(local, mesh=mesh, in_specs=(jax.P(), jax.P("i")), out_specs=jax.P(), check_vma=check)
    value, slope = jax.jit(jax.value_and_grad(f))(w, xs)
    return [len(jax.devices()), len(jax.local_devices()), *map(jnp.float64, (value, slope))], [4, 2, 60.0, 50.0]


CASES = {f"check_vma={check}": partial(gradient_of_replicated, check) for check in (True, False)}

if __name__ == "__main__":
    port, index = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=int(index))
    report(CASES)
    jax.distributed.shutdown()
