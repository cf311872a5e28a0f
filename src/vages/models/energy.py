"""A plain energy function as a model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from vages.models.eblvm import EBLVM

_NUMBERS = (bool, int, float, complex, np.ndarray, np.generic, jax.Array)


class EnergyModel(EBLVM):
    """The model of `energy(params, v, h) -> scalar`, a function of one example.

        model = EnergyModel(energy, params, v_shape=(2,), h_shape=(4,))

    Where a costly part depends on v alone, give it as `features(params, v)`; `energy` then takes its result in
    the place of v.
    """

    energy: Callable[[Any, Any, Array], Array] = eqx.field(static=True)
    params: Any
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    visible_part: Callable[[Any, Array], Any] | None = eqx.field(static=True)

    def __init__(
        self,
        energy: Callable[[Any, Any, Array], Array],
        params: Any,
        v_shape: tuple[int, ...],
        h_shape: tuple[int, ...],
        features: Callable[[Any, Array], Any] | None = None,
    ):
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            if isinstance(leaf, _NUMBERS) and not eqx.is_inexact_array(leaf):
                raise ValueError(
                    f"params{jax.tree_util.keystr(path)}: expected an array of floats, got "
                    f"{getattr(leaf, 'dtype', type(leaf).__name__)}, which would not be trained; make it one, or let "
                    "the energy close over it"
                )
        self.energy = energy
        self.params = params
        self.shapes = (v_shape, h_shape)
        self.visible_part = features

    @property
    def v_shape(self) -> tuple[int, ...]:
        return self.shapes[0]

    @property
    def h_shape(self) -> tuple[int, ...]:
        return self.shapes[1]

    def features(self, v: Array) -> Any:
        return v if self.visible_part is None else self.visible_part(self.params, v)

    def log_joint(self, features: Any, h: Array) -> Array:
        return -self.energy(self.params, features, h)
