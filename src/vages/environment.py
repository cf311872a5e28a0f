"""The software and hardware that a result was computed with."""

import os
import platform
from importlib.metadata import version

import jax

from vages import __version__


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect a result."""
    packages = ("jax", "jaxlib", "equinox", "optax", "numpy")
    others = {package: version(package) for package in packages}
    return {"python": platform.python_version(), "vages": __version__, **others}


def environment() -> dict[str, str | int]:
    """Versions and hardware, for the record beside every result."""
    return {
        **versions(),
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "machine": platform.machine(),
        "cores": os.cpu_count() or 0,
    }


def has_gpu() -> bool:
    """Whether JAX computes on a GPU."""
    return jax.default_backend() == "gpu"
