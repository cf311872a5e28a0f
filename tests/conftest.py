"""The house rules: run-time type checks, no silent dtype or rank promotion, no warnings (see pyproject.toml)."""

import os

import jax
import pytest
from jaxtyping import install_import_hook

os.environ.setdefault("MPLBACKEND", "agg")
install_import_hook("vages", "beartype.beartype")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def float64():
    """Everything inside the test in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def precision(request):
    """(dtype, the relative error that round-off allows)."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param, {"float32": 1e-5, "float64": 1e-12}[request.param]
