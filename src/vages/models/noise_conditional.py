"""The noise-conditional EBLVM: an energy for every noise level, whose gradient is a preconditioned denoiser.

Let c be the center of the data, σ_d their root mean square about it, t² = σ² + σ_d² and u = (v − c) / t. A network
returns an array f(u, σ) of v's shape and features g(u, σ):

    log p̃_σ(v, h) = log N(v; c, t² I) + (σ_d / σ) ⟨u, f⟩ − κ E₁(g, h) + log p(h),      κ = min(1, σ_d / σ)
    F(v, σ)       = ∇_u ⟨u, f⟩ − min(1, σ / σ_d) mean_i ∇_u E₁(g, h_i)                  h_i ~ q(h | v, σ)
    D(v, σ)       = v + σ² mean_i ∇_v log p̃_σ(v, h_i) = c + c_skip (v − c) + c_out F    the denoiser

with c_skip = σ_d² / t² and c_out = σ σ_d / t, as in EDM (Karras et al. 2022). p(h) is standard normal, or uniform on
zeros and ones.

In a normalized model, the slope in ln σ is matched to that of the data's density as well, so that log p̃_σ is log p_σ
itself. It has another form,

    log p̃_σ(v, h) = log N(v; c, t² I) + κ (s ⟨u, f⟩ + e − E₁(g, h)) + log p(h),         κ = σ_d² / t²

with a scalar e(u, σ), linear in g. By construction it is a Gaussian for large σ, like the noised data: no unknown
constant is left. With s = 1, for vectors, ⟨u, f⟩ is on the scale of log p_σ at all levels. With s = t / σ, for images,
its gradient has unit scale at low levels, as above, because networks of images cannot have steep gradients.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vages.checks import SQUARED, check_kind, check_numbers, check_positive, check_scale, check_some, is_finite, told
from vages.domains import Binary, Empty, Real
from vages.models.eblvm import EBLVM
from vages.models.mixed import cast, check_floating, is_narrow
from vages.nets.conditional import ConditionalMLP, ConditionalNetwork, within_ball, zeroed
from vages.nets.mixer import Mixer
from vages.nets.network import check_size
from vages.nets.readout import Readout
from vages.nets.unet import UNet

_LEAST, _MOST = 0.004, 160  # bounds of σ / σ_d: EDM's 0.002 and 80 for images with σ_d = 0.5
NORMALIZED = (0.008, 40.0)  # bounds of σ / σ_d in training a normalized model, which is a Gaussian above
_SMOOTH = 3.0  # the highest frequency in the level embedding of a normalized model


def _as_dtype(dtype: DTypeLike | None) -> np.dtype | None:
    return None if dtype is None else jnp.dtype(dtype)


class LevelFeatures(NamedTuple):
    """The features of v and σ, from which log p̃_σ(v, h) is computed."""

    gaussian: Float[Array, ""]  # log N(v; c, (σ² + σ_d²) I)
    potential: Float[Array, ""]  # ⟨u, f⟩, or s ⟨u, f⟩ + e
    coupled: Float[Array, "g"]  # g, which h is coupled to
    ratio: Float[Array, ""]  # σ / σ_d

    @property
    def level(self) -> Float[Array, ""]:
        """The noise level as networks take it, ln(σ / σ_d) / 4."""
        return jnp.log(self.ratio) / 4


class Coupling(eqx.Module):
    """E₁(g, h) = ½ exp(s) Σ_j ELU(A g + B h + b)_j², which is never negative."""

    of_features: eqx.nn.Linear
    of_latents: eqx.nn.Linear
    log_scale: Float[Array, ""]

    def __init__(self, key: PRNGKeyArray, features: int, latents: int, width: int):
        check_size(features=features, latents=latents, head_width=width)
        of_features, of_latents = jax.random.split(key)
        self.of_features = eqx.nn.Linear(features, width, key=of_features)
        self.of_latents = eqx.nn.Linear(latents, width, use_bias=False, key=of_latents)
        self.log_scale = jnp.asarray(math.log(0.1), jnp.result_type(float))

    def __call__(self, features: Float[Array, "g"], h: Float[Array, "h"]) -> Float[Array, ""]:
        """The energy of one example."""
        x = self.of_features(features) + self.of_latents(h)
        return 0.5 * jnp.exp(self.log_scale) * jnp.sum(jax.nn.elu(x) ** 2)


class NoiseConditionalEBLVM(EBLVM):
    """log p̃_σ(v, h) at the noise level σ = context["sigma"], given context["label"] if the network takes labels.

    Without a level, σ is `sigma_min`, at which p_σ is nearly the density of the data. Without a label, or with the
    label −1, the density is that of examples of all classes.

    **Arguments**

    - `network`: a `ConditionalNetwork`, such as `UNet` or `ConditionalMLP`.
    - `head`: E₁(g, h) of one example, such as `Coupling`; None if h is empty. p(h | v, σ) is proper for all parameters
        if E₁ is bounded from below by an affine function of h.
    - `sigma_data`: the root mean square of the data about their center, see `measure_sigma_data`.
    - `v`, `h`: domains; v is `Real`, h is `Real`, `Binary` or `Empty`.
    - `compute_dtype`: the dtype of the network, such as bfloat16. Everything else keeps the dtype of v. Do not set the
        learner's `compute_dtype` instead: a v of 16 bits cannot represent low noise levels.
    - `center`: the center of the data, 0.5 for images in [0, 1].
    - `offset`: e as a function of g, for a normalized model, which must be trained with a `level_weight`.
    - `unit`: the scale of ⟨u, f⟩ in a normalized model, the "density" (s = 1) or the "score" (s = t / σ).
    """

    network: ConditionalNetwork
    head: Callable[..., Array] | None
    sigma_data: float = eqx.field(static=True, converter=float)
    v: Real = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
    h: Real | Binary | Empty = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
    compute_dtype: DTypeLike | None = eqx.field(static=True, default=None, converter=_as_dtype)
    center: float = eqx.field(static=True, default=0.0, converter=float)
    offset: Readout | None = None
    unit: Literal["density", "score"] = eqx.field(static=True, default="density")

    def __check_init__(self):
        check_scale("sigma_data", self.sigma_data, "scale of the data", "take measure_sigma_data(v)")
        check_kind("v", self.v, Real, "a domain of real numbers", "write Real(2), say")
        check_kind("h", self.h, Real | Binary | Empty, "Real, Binary or Empty", "write Real(16), say")
        if self.network.in_shape != self.v.shape:
            raise ValueError(
                f"network: expected one for v of shape {self.v.shape}, got one for {self.network.in_shape}; "
                "make them agree"
            )
        if (self.head is None) != isinstance(self.h, Empty):
            raise ValueError(
                f"head: expected {'None' if self.head is not None else 'an energy E₁(g, h)'} for {self.h!r}, got "
                f"{'None' if self.head is None else type(self.head).__name__}; h=Empty() has no head"
            )
        if not is_finite(self.center):
            raise ValueError(f"center: expected a finite number, got {self.center}; take the mean of the data")
        if self.compute_dtype is not None:
            check_floating(self.compute_dtype)

    @staticmethod
    def vectors(
        key: PRNGKeyArray,
        shape: int | tuple[int, ...],
        *,
        sigma_data: float,
        h: Real | Binary | Empty = Real(16),  # noqa: B008
        width: int = 128,
        depth: int = 3,
        features: int = 64,
        head_width: int = 128,
        embedding: int = 64,
        classes: int = 0,
        center: float = 0.0,
        normalized: bool = False,
        frequencies: tuple[float, ...] = (),
    ) -> "NoiseConditionalEBLVM":
        """Build the model with a `ConditionalMLP`, for vectors, or for arrays of any shape, which it flattens."""
        for frequency in frequencies:
            check_positive("frequencies", frequency, "frequency", "take (1.0, 3.0, 8.0), say")
        for_network, for_head, for_offset = jax.random.split(key, 3)
        network = ConditionalMLP(
            for_network,
            shape,
            width=width,
            depth=depth,
            out=features,
            embedding=embedding,
            classes=classes,
            frequencies=frequencies,
            **({"levels": NORMALIZED, "level_frequency": _SMOOTH} if normalized else {}),
        )
        head = _coupling(for_head, features, h, head_width)
        offset = _offset(for_offset, features) if normalized else None
        return NoiseConditionalEBLVM(
            network, head, sigma_data, Real(*network.in_shape), h, center=center, offset=offset
        )

    @staticmethod
    def images(
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        *,
        sigma_data: float,
        h: Real | Binary | Empty = Real(64),  # noqa: B008
        widths: tuple[int, ...] = (96, 192, 256),
        blocks: int = 2,
        attention: int = 16,
        features: int = 64,
        head_width: int = 256,
        embedding: int = 256,
        classes: int = 0,
        compute_dtype: DTypeLike | None = None,
        center: float = 0.0,
        normalized: bool = False,
    ) -> "NoiseConditionalEBLVM":
        """Build the model with a `UNet`, for images (channels, height, width) of any size."""
        for_network, for_head, for_offset = jax.random.split(key, 3)
        network = UNet(
            for_network,
            shape,
            widths=widths,
            blocks=blocks,
            attention=attention,
            out=features,
            embedding=embedding,
            classes=classes,
            **({"level_frequency": _SMOOTH} if normalized else {}),
        )
        head = _coupling(for_head, features, h, head_width)
        offset = _offset(for_offset, features) if normalized else None
        return NoiseConditionalEBLVM(
            network, head, sigma_data, Real(*shape), h, compute_dtype, center, offset, unit="score"
        )

    @staticmethod
    def patches(
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        *,
        sigma_data: float,
        h: Real | Binary | Empty = Real(16),  # noqa: B008
        patch: int = 4,
        width: int = 128,
        depth: int = 6,
        features: int = 64,
        head_width: int = 128,
        embedding: int = 64,
        classes: int = 0,
        compute_dtype: DTypeLike | None = None,
        center: float = 0.0,
        normalized: bool = False,
    ) -> "NoiseConditionalEBLVM":
        """Build the model with a `Mixer`, for images (channels, height, width) on a CPU."""
        for_network, for_head, for_offset = jax.random.split(key, 3)
        network = Mixer(
            for_network,
            shape,
            patch=patch,
            width=width,
            depth=depth,
            out=features,
            embedding=embedding,
            classes=classes,
            **({"level_frequency": _SMOOTH} if normalized else {}),
        )
        head = _coupling(for_head, features, h, head_width)
        offset = _offset(for_offset, features) if normalized else None
        return NoiseConditionalEBLVM(
            network, head, sigma_data, Real(*shape), h, compute_dtype, center, offset, unit="score"
        )

    @property
    def normalized(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether log p̃_σ(v) is log p_σ(v) itself after training with a `level_weight`."""
        return self.offset is not None

    @property
    def sigma_min(self) -> float:
        """The lowest noise level in sampling, and the default without one in the context."""
        return (NORMALIZED[0] if self.normalized else _LEAST) * self.sigma_data

    @property
    def least_sigma(self) -> float:
        """The lowest noise level that is accepted: `sigma_min`, up to rounding, for a normalized model, else 0."""
        return (1 - 1e-4) * self.sigma_min if self.normalized else 0.0

    @property
    def sigma_max(self) -> float:
        """The highest noise level in sampling, at which p_σ is nearly N(0, σ² I)."""
        return _MOST * self.sigma_data

    @property
    def sigma_top(self) -> float:
        """The highest noise level in training a normalized model, which is nearly N(c, t² I) by construction above."""
        return NORMALIZED[1] * self.sigma_data

    def features(self, v: Array, context: Any = None) -> LevelFeatures:
        check_numbers("v", v)
        if v.shape != self.v.shape:
            raise ValueError(f"v: expected one example of shape {self.v.shape}, got {v.shape}; use vmap for a batch")
        if is_narrow(v):
            raise TypeError(
                f"v: expected float32 or float64, got {v.dtype}; give compute_dtype to the model, not to the learner"
            )
        sigma, label = self._conditions(context, v.dtype)
        ratio = sigma / self.sigma_data
        scale = self.sigma_data * jnp.sqrt(1 + ratio**2)
        u = (v - self.center) / scale
        array, coupled = self._call(u, jnp.log(ratio) / 4, label)
        normalizer = v.size * (jnp.log(scale) + 0.5 * math.log(2 * math.pi))
        if self.offset is None:
            potential = jnp.sum(u * array)
        else:
            potential = jnp.sum(within_ball(u.reshape(-1)).reshape(u.shape) * array)
            steepness = 1 if self.unit == "density" else jnp.sqrt(1 + ratio**2) / ratio
            potential = steepness * potential + self.offset(coupled)[0]
        return LevelFeatures(-0.5 * jnp.sum(u**2) - normalizer, potential, coupled, ratio)

    def log_joint(self, features: LevelFeatures, h: Array) -> Float[Array, ""]:
        if jnp.shape(h) != self.h.shape:
            raise ValueError(f"h: expected shape {self.h.shape}, got {jnp.shape(h)}; its domain is {self.h!r}")
        divisor, strength = self._scales(features.ratio)
        total = features.gaussian + features.potential / divisor
        if self.head is None:
            return total
        energy = self.head(features.coupled, h.reshape(-1))
        return total - strength * energy + self._log_prior(h)

    def _scales(self, ratio: Array) -> tuple[Array, Array]:
        """Return the divisor of the potential and the factor of E₁ at a noise level."""
        if self.normalized:
            return 1 + ratio**2, 1 / (1 + ratio**2)
        return ratio, jnp.minimum(1, 1 / ratio)

    def field(self, v: Array, context: Any, h: Array) -> Array:
        """F(v, σ) of one example, the unit-scale part of the denoiser, from samples h (L, …) of q(h | v, σ)."""
        check_numbers("h", h, floating=False)
        if h.shape[1:] != self.h.shape or not len(h):
            raise ValueError(f"h: expected shape {('samples', *self.h.shape)}, got {h.shape}; its domain is {self.h!r}")
        features, pullback = jax.vjp(lambda v: self.features(v, context), v)
        mean = lambda features: jnp.mean(jax.vmap(lambda h: self.log_joint(features, h))(h))
        slopes = jax.tree.map(lambda x: features.ratio * x, jax.grad(mean)(features))
        scale = self.sigma_data * jnp.sqrt(1 + features.ratio**2)
        return scale * pullback(slopes._replace(gaussian=jnp.zeros_like(features.gaussian)))[0]

    def denoiser(self, v: Array, sigma: Any, h: Array, *, label: Any = None) -> Array:
        """D(v, σ) = c + c_skip (v − c) + c_out F of one example, from samples h (L, …) of q(h | v, σ).

        With the exact posterior and optimal parameters it is the mean of the clean example given v.
        """
        context = {"sigma": sigma} if label is None else {"sigma": sigma, "label": label}
        field = self.field(v, context, h)
        ratio = jnp.asarray(sigma, v.dtype).reshape(()) / self.sigma_data
        kept = self.center + (v - self.center) / (1 + ratio**2)
        return kept + self.sigma_data * ratio / jnp.sqrt(1 + ratio**2) * field

    def check_context(self, context: Any) -> None:
        """Raise unless the noise levels and labels of a context, of one example or of several, are valid.

        Values are checked only if they are concrete, not inside `jit` or `vmap`.
        """
        if context is None:
            return
        if not isinstance(context, dict) or set(context) - {"sigma", "label"}:
            got = sorted(map(str, context)) if isinstance(context, dict) else type(context).__name__
            raise ValueError(f"context: expected a dict with sigma, label, both or none, got {got}; correct its names")
        if "sigma" in context and not isinstance(context["sigma"], Tracer):
            self.check_levels(context["sigma"])
        if "label" in context:
            self._check_label(context["label"])

    def check_levels(self, sigma: Any, name: str = "sigma") -> None:
        """Raise unless these are valid noise levels of the model."""
        levels = np.asarray(sigma)
        if not any(jnp.issubdtype(levels.dtype, kind) for kind in (jnp.floating, jnp.integer)):
            raise TypeError(f"{name}: expected numbers as noise levels, got {told(sigma)}; take 0.1, say")
        if wrong := levels[~((levels > 0) & np.isfinite(levels))].tolist():
            raise ValueError(f"{name}: expected finite noise levels above 0, got {wrong[0]}; take 0.1, say")
        if levels.size:
            for level in (levels.min(), levels.max()):
                check_scale(name, level.item(), "noise level", "take 0.1, say")
        if levels.size and levels.min() < self.least_sigma:
            raise ValueError(
                f"{name}: expected levels of at least {self.sigma_min:.4g}, below which a normalized model is not "
                f"trained, got {levels.min():.4g}; leave {name} out for the lowest"
            )

    def knows(self, context: Any) -> Bool[Array, "*rows"]:
        """Return whether the values of each row are valid, as in `check_context`, but inside `jit`."""
        rows = {name: jnp.asarray(x).reshape(-1) for name, x in context.items()}
        known = jnp.asarray(True)
        if "sigma" in rows:
            sigma = rows["sigma"]
            known &= (sigma >= max(SQUARED[0], self.least_sigma)) & (sigma <= SQUARED[1])
        if "label" in rows:
            known &= (rows["label"] >= -1) & (rows["label"] < self.network.classes)
        return known

    def _check_label(self, label: Any) -> None:
        classes = self.network.classes
        if not classes:
            raise ValueError("label: expected none, as the network has no classes, got one; build it with classes=10")
        dtype = label.dtype if hasattr(label, "dtype") else np.asarray(label).dtype
        if not jnp.issubdtype(dtype, jnp.integer):
            raise TypeError(f"label: expected whole numbers, got {dtype}; cast with astype('int32')")
        if not isinstance(label, Tracer):
            labels = np.asarray(label)
            if wrong := labels[(labels < -1) | (labels >= classes)].tolist():
                raise ValueError(
                    f"label: expected 0 to {classes - 1}, or -1 for none, got {wrong[0]}; is it a label of these data?"
                )

    def _conditions(self, context: Any, dtype: Any) -> tuple[Array, Array | None]:
        """Return σ, and the label if the network takes one."""
        self.check_context(context)
        known = {} if context is None else context
        for name, value in known.items():
            if jnp.size(value) != 1:
                raise ValueError(f"{name}: expected one number for one example, got {told(jnp.shape(value))}; use vmap")
        sigma = jnp.asarray(known.get("sigma", self.sigma_min), dtype).reshape(())
        if not self.network.classes:
            return sigma, None
        return sigma, jnp.asarray(known.get("label", -1), jnp.int32).reshape(())

    def _call(self, u: Array, level: Array, label: Array | None) -> tuple[Array, Array]:
        if self.compute_dtype is None:
            return self.network(u, level, label)
        return cast(self.network(u.astype(self.compute_dtype), level, label), u.dtype)

    def _log_prior(self, h: Array) -> Float[Array, ""]:
        if isinstance(self.h, Binary):
            return jnp.asarray(-self.h.size * math.log(2), h.dtype)
        return -0.5 * jnp.sum(h**2) - 0.5 * self.h.size * math.log(2 * math.pi)


def measure_sigma_data(v: Array | np.ndarray, center: float = 0.0) -> float:
    """Return the root mean square of data about `center`, their standard deviation if that is their mean."""
    check_some("v", v)
    size = float(np.sqrt(np.mean(np.square(np.asarray(v, np.float64) - center))))
    check_positive("v", size, "root mean square", "are the data constant, or not finite?")
    check_scale("v", size, "root mean square", "standardize the data")
    return size


def _coupling(key: PRNGKeyArray, features: int, h: Any, width: int) -> Coupling | None:
    return None if isinstance(h, Empty) else Coupling(key, features, h.size, width)


def _offset(key: PRNGKeyArray, features: int) -> Readout:
    return zeroed(Readout(key, features, 1))
