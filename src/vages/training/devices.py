"""Many devices and many processes: a mesh, all of whose axes divide the batch. The rest is JAX's own SPMD runtime.

Every process runs the same program on the same data. The state is the same on all devices; a batch is cut along its
axis, and sums over it are all-reduced. Iterations depend on the global batch alone, so that the number of devices
changes a result by the order of summation at most.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

Tree = TypeVar("Tree")
Result = TypeVar("Result")


def data_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """All devices of all processes, or these, in a row."""
    devices = jax.devices() if devices is None else devices
    return Mesh(np.asarray(devices), ("batch",), axis_types=(AxisType.Auto,))


def auto(mesh: Mesh | None) -> Mesh | None:
    """The same mesh with layouts that the compiler finds, whatever types its axes have."""
    return mesh and Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def everywhere(tree: Tree, mesh: Mesh | None) -> Tree:
    """The arrays of a tree, equal on every process, on every device of the mesh."""
    return place(tree, mesh, PartitionSpec())


def place(tree: Tree, mesh: Mesh | None, spec: PartitionSpec) -> Tree:
    """The arrays of a tree, equal on every process, laid out over the mesh."""
    if mesh is None:
        return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, tree)
    sharding = NamedSharding(mesh, spec)

    def one(x: Any) -> Any:
        if not eqx.is_array(x):
            return x
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(one(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(one, tree)


def here(tree: Tree) -> Tree:
    """Arrays that are the same everywhere, as this process's own on one device."""
    return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, tree)


def is_writer() -> bool:
    """Whether this process writes the run's folder."""
    return jax.process_index() == 0


def any_process(flag: bool) -> bool:
    """Whether it is so in any process: what one of them sees, all act upon."""
    return flag if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def by_writer(action: Callable[[], Result]) -> Result | None:
    """What the action gives in the writing process, and None in the others; where it fails there, all fail."""
    result, error = None, None
    if is_writer():
        try:
            result = action()
        except Exception as problem:
            error = problem
    if any_process(error is not None):
        raise error or OSError("cluster: expected the first process to read and write the run, got an error there")
    return result


def check_batch(batch: int, mesh: Mesh | None) -> None:
    """Raise unless a batch can be divided over the mesh."""
    if mesh is not None and batch % mesh.size:
        raise ValueError(f"batch: expected a multiple of the {mesh.size} devices, got {batch}; change either")


def from_writer(tree: Tree) -> Tree:
    """What the writing process has, on every process; the others give something of the same shape."""
    return tree if jax.process_count() == 1 else multihost_utils.broadcast_one_to_all(tree)
