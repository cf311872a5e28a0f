"""A plain energy function as a model."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array

from vages.checks import check_kind
from vages.distributions import Distribution
from vages.domains import Domain, Empty, as_domain
from vages.models.eblvm import EBLVM


class EnergyModel(EBLVM):
    """A model defined by `energy(params, v, h) -> scalar`, a function of one example.

        model = EnergyModel(energy, params, v=Real(2), h=Binary(4))

    `params` is any pytree, such as a dict of arrays or an `equinox.Module`. Its floating-point arrays are trained;
    Python numbers and integers are constants. The functions may not be modules, partials or methods that hold
    floating-point JAX arrays, which would be neither trained nor saved; NumPy arrays are constants. Without `h` the
    model has no latents, and `energy` is passed an empty h.

    Mixed latents are a dict of domains, `h={"z": Real(4), "y": Binary(2)}`; `energy` is passed a dict of arrays.

    If a costly part depends on v alone, pass it as `features(params, v)`; `energy` then takes its result in place of v.
    If the data have a context, it is the last argument of the function that takes v: `energy(params, v, h, context)`,
    or `features(params, v, context)`.

    If p(v | h) has a closed form, pass it as `conditional(params, h)`, which returns a `Gaussian`, for example. With
    few enough states of h, samples are then independent and log Z is exact.
    """

    energy: Callable[..., Array] = eqx.field(static=True)
    params: Any
    v: Domain = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    h: Domain = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    visible_part: Callable[..., Any] | None = eqx.field(static=True)
    given_latents: Callable[..., Distribution] | None = eqx.field(static=True)

    def __init__(
        self,
        energy: Callable[..., Array],
        params: Any,
        v: Any = None,
        h: Any = Empty(),  # noqa: B008
        features: Callable[..., Any] | None = None,
        conditional: Callable[..., Distribution] | None = None,
        **removed: Any,
    ):
        for name in removed:
            if name not in ("v_shape", "h_shape"):
                raise TypeError(
                    f"{name}: expected v, h, features or conditional, got an unexpected argument; leave it out"
                )
            new = name.removesuffix("_shape")
            advice = f"give {new}=Real(2), Binary(2) or Categorical(2, 3), say"
            raise TypeError(f"{name}: expected no such argument, got the former name of {new}, a domain; {advice}")
        for name, domain in (("v", v), ("h", as_domain(h))):
            check_kind(name, domain, Domain, "a domain", "write Real(2) for a vector of two real numbers")
        for name, function in (("energy", energy), ("features", features), ("conditional", conditional)):
            _check_function(name, function)
        self.energy = energy
        self.params = params
        self.v, self.h = v, as_domain(h)  # pyright: ignore[reportIncompatibleMethodOverride]
        self.visible_part = features
        self.given_latents = conditional

    @property
    def conditional(self) -> Callable[[Any], Distribution] | None:
        """p(v | h) as a function of h, or None."""
        return None if self.given_latents is None else partial(self.given_latents, self.params)

    def features(self, v: Array, context: Any = None) -> Any:
        if self.visible_part is None:
            return v if context is None else _Conditioned(v, context)
        return self.visible_part(self.params, v, *(() if context is None else (context,)))

    def log_joint(self, features: Any, h: Any) -> Array:
        if isinstance(features, _Conditioned):
            return -self.energy(self.params, features.v, h, features.context)
        return -self.energy(self.params, features, h)


def _check_function(name: str, function: Any) -> None:
    """Raise TypeError if the function holds floating-point JAX arrays. NumPy arrays and closures are constants."""
    held = jax.tree.leaves(_own_values(function))
    if any(isinstance(leaf, Array) and eqx.is_inexact_array(leaf) for leaf in held):
        raise TypeError(
            f"{name}: expected a function without JAX arrays of its own, got {type(function).__name__} with some, "
            "which would not be trained or saved; pass them as params, or make constants NumPy arrays"
        )


def _own_values(function: Any) -> Any:
    """Return what a partial, a method or a callable object holds, as a pytree."""
    if isinstance(function, partial):
        return _own_values(function.func), function.args, function.keywords
    if hasattr(function, "__wrapped__"):  # of jax.jit, say
        return _own_values(function.__wrapped__)
    owner = getattr(function, "__self__", function)
    if isinstance(owner, ModuleType):  # of a built-in function
        return ()
    return owner, getattr(owner, "__dict__", None)


class _Conditioned(NamedTuple):
    v: Array
    context: Any
