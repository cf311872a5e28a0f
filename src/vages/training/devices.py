"""Training on many devices and processes: a mesh whose axes all divide the batch. JAX's SPMD runtime does the rest.

Every process runs the same program on the same data. The state is replicated on all devices. A batch is split along its
first axis, and sums over it are all-reduced. Iterations depend on the global batch alone, so the number of devices
changes results only through the order of summation.
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
    """Return a mesh of one axis over all devices of all processes, or over `devices`."""
    devices = jax.devices() if devices is None else devices
    return Mesh(np.asarray(devices), ("batch",), axis_types=(AxisType.Auto,))


def auto(mesh: Mesh | None) -> Mesh | None:
    """Return the mesh with axes of type Auto, for which the compiler chooses layouts."""
    return mesh and Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def everywhere(tree: Tree, mesh: Mesh | None) -> Tree:
    """Replicate the arrays of a tree, which are equal on every process, on every device of the mesh."""
    return place(tree, mesh, PartitionSpec())


def place(tree: Tree, mesh: Mesh | None, spec: PartitionSpec) -> Tree:
    """Lay out the arrays of a tree, which are equal on every process, over the mesh."""
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
    """Return replicated arrays as local arrays on one device of this process."""
    return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, tree)


def is_writer() -> bool:
    """Whether this process writes the run's folder."""
    return jax.process_index() == 0


def any_process(flag: bool) -> bool:
    """Whether the flag is true in any process, so that all processes act alike."""
    return flag if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def by_writer(action: Callable[[], Result]) -> Result | None:
    """Return the action's result in the writing process, and None in the others. If it raises, all processes raise."""
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
    """Raise ValueError unless a batch can be divided over the mesh."""
    if mesh is not None and batch % mesh.size:
        raise ValueError(f"batch: expected a multiple of the {mesh.size} devices, got {batch}; change either")


def from_writer(tree: Tree) -> Tree:
    """Broadcast the writing process's tree to all processes, whose own trees have the same shapes."""
    return tree if jax.process_count() == 1 else multihost_utils.broadcast_one_to_all(tree)
