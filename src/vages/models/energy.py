"""A plain energy function as a model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array

from vages.models.checks import check_shape
from vages.models.eblvm import EBLVM


class EnergyModel(EBLVM):
    """The model of `energy(params, v, h) -> scalar`, a function of one example.

        model = EnergyModel(energy, params, v_shape=(2,), h_shape=(4,))

    Of the parameters, any pytree, floating arrays are trained; Python numbers and integers are constants.

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
        check_shape("v_shape", v_shape)
        check_shape("h_shape", h_shape)
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
