"""SHA-256 digests that identify datasets and settings."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

_PIECE = 2**24  # bytes of an array that is not contiguous, copied at a time
_SAMPLED = 2**24  # bytes of a large array that are read


def fingerprint(*parts: Any) -> dict[str, Any]:
    """Return shape, dtype and SHA-256 of an array, or of several as if concatenated along the first axis."""
    hosts = [np.asarray(jax.device_get(part)) for part in parts]
    digest = hashlib.sha256()
    for host in hosts:
        if not host.size:
            continue
        if host.flags.c_contiguous:
            digest.update(_bytes(host))
            continue
        rows = max(1, _PIECE * len(host) // host.nbytes)
        for begin in range(0, len(host), rows):
            digest.update(_bytes(np.ascontiguousarray(host[begin : begin + rows])))
    shape = list(hosts[0].shape)
    if len(hosts) > 1:
        shape[0] = sum(map(len, hosts))
    return {"shape": shape, "dtype": hosts[0].dtype.name, "sha256": digest.hexdigest()}


def _bytes(array: np.ndarray) -> Any:
    """Return the bytes of a contiguous array of any dtype; hashlib does not read bfloat16."""
    return array.reshape(-1).view(np.uint8).data


def sampled_fingerprint(array: Any) -> dict[str, Any]:
    """Return shape, dtype and SHA-256 of evenly spaced rows of a large array, including its first and last."""
    rows = min(len(array), max(2, _SAMPLED // max(1, array.nbytes // max(1, len(array)))))
    chosen = np.unique(np.linspace(0, len(array) - 1, rows).astype(np.int64))
    found = fingerprint(np.asarray(array[chosen]))
    return {**found, "shape": list(array.shape), "rows": len(chosen)}


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of settings as canonical JSON, so that the order of names and white space do not matter."""
    return hashlib.sha256(canonical(settings).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return a value as canonical JSON. 1, 1.0 and true remain different."""
    plain = json.loads(json.dumps(value))  # makes names strings, so that they are sorted as such
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))
