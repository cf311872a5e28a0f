"""The options --devices and --cluster: the devices that share a batch."""

from typing import Any


def parse_cluster(cluster: str, timeout: int) -> tuple[str | None, int | None, int | None]:
    """Return the address, the number of processes and the index of this one; None if the scheduler provides them."""
    from vages.bounds import PROCESSES, SECONDS, check_bounds

    check_bounds(cluster_timeout=(timeout, SECONDS))
    if cluster == "auto":
        return None, None, None
    address, *numbers = cluster.split(",")
    host, _, port = address.rpartition(":")
    if not host or not _is_port(port) or len(numbers) != 2 or not all(map(str.isdecimal, numbers)):
        raise ValueError(
            f"cluster: expected auto or HOST:PORT,PROCESSES,INDEX, got {cluster!r}; write, e.g., 10.0.0.1:4000,2,0"
        )
    processes, index = (int(number[:9]) for number in numbers)
    check_bounds(cluster=(processes, PROCESSES))
    if index >= processes:
        raise ValueError(
            f"cluster: expected an INDEX from 0 to PROCESSES - 1, got {index} of {processes}; the first has 0"
        )
    return address, processes, index


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text[:6]) < 2**16


def make_mesh(devices: int, cluster: str | None, timeout: int = 60) -> Any:
    """Join the cluster, if any, and return the devices that share a batch; None is the first device alone."""
    import jax

    from vages.training import data_mesh, join_cluster

    if cluster is not None:
        join_cluster(*parse_cluster(cluster, timeout), timeout)
        return data_mesh()
    have = jax.device_count()
    if not 0 <= devices <= have:
        raise ValueError(f"devices: expected 0 (all) to {have}, got {devices}; this computer has no more")
    return data_mesh(jax.devices()[: devices or have]) if devices != 1 else None
