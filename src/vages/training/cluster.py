"""Several processes that train one model: how they connect, and checks that all of them run the same program.

Collectives of programs that differ hang or silently give wrong numbers. So the processes first compare what they are
about to run, as text in the key-value store of JAX's coordinator.
"""

import hashlib
import json
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from vages.environment import versions
from vages.training.digests import fingerprint

_DAY = 24 * 60 * 60
_rounds = count()  # numbers the comparisons, which are the same in every process


def join_cluster(address: str | None, processes: int | None, index: int | None, timeout: int) -> None:
    """Connect to the other processes at HOST:PORT, where process 0 listens, or with None as the scheduler says.

    JAX ends this process if another one does not connect within `timeout` seconds, or does not answer for as long. A
    process that is done waits for the others, since the first may still write figures.
    """
    if address is not None and index == 0:
        _check_listening(address)
    jax.distributed.initialize(
        address,
        processes,
        index,
        initialization_timeout=timeout,
        heartbeat_timeout_seconds=timeout,
        shutdown_timeout_seconds=_DAY,
        coordinator_bind_address=address,
    )
    _compare({"versions": versions()})  # before devices are exchanged, which depends on the versions


def check_same(parts: Callable[[], dict[str, Any]]) -> None:
    """Raise ValueError in every process unless all have the same parts and versions. A single process always passes."""
    if jax.process_count() > 1:
        _compare({"versions": versions(), **parts()})


def first_difference(processes: Sequence[dict[str, Any]]) -> str | None:
    """Return a message about the first part in which processes differ, or None if all are the same."""
    first = processes[0]
    for part in {name: None for each in processes for name in each}:
        for index, other in enumerate(processes):
            a, b = first.get(part), other.get(part)
            if a == b:
                continue
            where = ""
            if isinstance(a, dict) and isinstance(b, dict):
                key = next(key for key in {**a, **b} if a.get(key) != b.get(key) or (key in a) != (key in b))
                where, a, b = f"{key} ", a.get(key), b.get(key)
            return (
                f"cluster: expected every process to have the same {part}, got {where}{_short(a)} in process 0 and "
                f"{_short(b)} in process {index}; start all of them with the same command, data and versions"
            )
    return None


def digest(tree: Any) -> str:
    """Return the SHA-256 of all arrays of a tree, with their names."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(leaf, jax.Array | np.ndarray):
            is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            found[jax.tree_util.keystr(path)] = fingerprint(jax.random.key_data(leaf) if is_key else leaf)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def wait_for_others(seconds: float) -> None:
    """Wait up to `seconds` for all processes: one that exits ends the others before they can report an error."""
    client = _client()
    if client is not None:
        with suppress(RuntimeError, ValueError):  # the others are busy, or have ended
            client.wait_at_barrier("vages/end", int(1e3 * seconds))


def _compare(parts: dict[str, Any]) -> None:
    text, client = json.dumps(parts, default=str), _client()
    problem = _in_collectives(text) if client is None else _in_store(client, text)
    if problem:
        raise ValueError(problem)


def _in_store(client: Any, text: str) -> str | None:
    """Compare texts in the key-value store: the first process reads all of them and writes the result."""
    from jax._src.distributed import global_state

    place = f"vages/{next(_rounds)}"
    client.key_value_set(f"{place}/{global_state.process_id}", text)
    if global_state.process_id == 0:
        found = [_read(client, f"{place}/{index}") for index in range(global_state.num_processes)]
        client.key_value_set(f"{place}/problem", json.dumps(first_difference([json.loads(each) for each in found])))
    return json.loads(_read(client, f"{place}/problem"))


def _in_collectives(text: str) -> str | None:
    """Compare texts by collectives, whose shapes are the same in all processes."""
    own = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.asarray(own.size, np.int32))
    rows = multihost_utils.process_allgather(np.pad(own, (0, int(sizes.max()) - own.size)))
    return first_difference([json.loads(bytes(row[:size])) for row, size in zip(np.asarray(rows), sizes, strict=True)])


def _client() -> Any | None:
    """Return JAX's client of the coordinator, which is not public, or None if this version of JAX has none."""
    try:
        from jax._src.distributed import global_state

        client = global_state.client
        has_all = isinstance(global_state.process_id, int) and isinstance(global_state.num_processes, int)
    except (ImportError, AttributeError):
        return None
    names = ("key_value_set", "blocking_key_value_get", "wait_at_barrier")
    return client if has_all and all(hasattr(client, name) for name in names) else None


def _read(client: Any, key: str) -> str:
    """Return what a process wrote, however long it takes. If that process has ended, JAX ends this one."""
    while True:
        try:
            return client.blocking_key_value_get(key, 1000)  # milliseconds, so that Ctrl-C is handled
        except (RuntimeError, ValueError) as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise


def _check_listening(address: str) -> None:
    """Raise ValueError if this process cannot listen at HOST:PORT. JAX would end it without a message."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(where)
            trial.listen()
    except OSError as error:
        raise ValueError(
            f"cluster: expected an address and a free port of this computer for process 0, got {address}: "
            f"{error.strerror or error}; choose another"
        ) from None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
