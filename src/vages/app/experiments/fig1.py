"""Figure 1: the biases of VaES and VaGES against the root of a divergence between q(h | v) and p(h | v).

v and θ are fixed. q is a fully connected layer that equals the posterior and is then perturbed by Gaussian noise of
increasing level, with several draws per level. In both models q enters the bias only through its mean and variance at
v, so that bias and divergence of a draw have closed forms. Each plotted point is the mean over its draws.
"""

import math
from dataclasses import asdict, dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.report import Series, proportionality_figure
from vages.data import freyface_file, load_freyface
from vages.distributions import Distribution
from vages.evaluation import kl_divergence
from vages.models import GRBM, LinearGaussian
from vages.posteriors import BernoulliPosterior, ExactPosterior, GaussianPosterior, Heads, Posterior


@dataclass(frozen=True)
class Settings:
    """Dimensions and noise levels; a level is the standard deviation of the noise on each of q's parameters."""

    h_dim: int = 400
    points: int = 40
    draws: int = 10
    grbm_level: float = 0.05
    gaussian_level: float = 0.01


PAPER = Settings()
QUICK = replace(PAPER, points=15, draws=5)


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Perturb both posteriors, compare biases with divergences, and check the claims."""
    settings = QUICK if quick else PAPER
    with jax.enable_x64(True):  # so that the smallest gaps are not round-off
        keys = jax.random.split(jax.random.key(seed), 5)
        v, source = visible_example(keys[0])
        grbm = GRBM.init(keys[1], len(v), settings.h_dim, dtype=jnp.float64)
        gaussian = LinearGaussian.init(keys[2], len(v), settings.h_dim, dtype=jnp.float64)
        kl_points = perturbations(grbm, exact_bernoulli(grbm), v, keys[3], settings, settings.grbm_level)
        fisher_points = perturbations(gaussian, exact_gaussian(gaussian), v, keys[4], settings, settings.gaussian_level)
        first, second = kl_constants(grbm, v)
        third = 2**0.5 * float(jnp.linalg.norm(gaussian.weight))

    panels = {
        "GRBM, binary h": ("√KL(q ‖ p)", kl_points),
        "Gaussian model, real h": ("√Fisher(q ‖ p)", fisher_points),
    }
    claims, lines, single_draws = [], {}, {}
    for title, (axis, points) in panels.items():
        lines[title] = (axis, [])
        for name in ("VaES", "VaGES"):
            root, bias = points["root"].mean(1), points[name].mean(1)
            slope, r_squared = line_through_origin(root, bias)
            claim = f"{title}: the bias of {name} is proportional to {axis} (R² of a line through the origin)"
            claims.append(Claim.at_least(claim, r_squared, 0.99))
            lines[title][1].append(Series(name, root, bias, slope))
            single_draws[f"{title}, {name}"] = line_through_origin(points["root"].ravel(), points[name].ravel())[1]
    claims += [
        bound_claim("Theorem 1: the bias of VaES stays within C √KL", kl_points, "VaES", first),
        bound_claim("Theorem 2: the bias of VaGES stays within C √KL", kl_points, "VaGES", second),
        bound_claim("Theorem 3: the bias of VaES stays within C √Fisher", fisher_points, "VaES", third),
    ]
    return Outcome(
        settings={**asdict(settings), "v": source, "v_dim": len(v)},
        claims=claims,
        measurements={
            "grbm": mean_over_draws(kl_points),
            "gaussian": mean_over_draws(fisher_points),
            "R² over single draws": single_draws,
            "constants": {"theorem 1": first, "theorem 2": second, "theorem 3": third},
        },
        figures={"fig1": proportionality_figure(lines, "bias")},
    )


def visible_example(key: PRNGKeyArray) -> tuple[Float[Array, "v"], str]:
    """Return a random Frey face training image, or a synthetic image of the same size and range if there is no file."""
    if freyface_file().is_file():
        train = load_freyface().train
        index = int(jax.random.randint(key, (), 0, len(train)))
        return jnp.asarray(train[index], jnp.float64), f"Frey face, training image {index}"
    rows, columns = jnp.meshgrid(jnp.linspace(0, 1, 28), jnp.linspace(0, 1, 20), indexing="ij")
    wave = jax.random.uniform(key, (4,), jnp.float64, 1, 6)
    image = 0.5 + 0.25 * (jnp.sin(wave[0] * rows + wave[1] * columns) + jnp.cos(wave[2] * rows - wave[3] * columns))
    return image.reshape(-1), "synthetic: a smooth 28 × 20 image in [0, 1], because Frey face was not found"


def exact_bernoulli(model: GRBM) -> BernoulliPosterior:
    """The fully connected layer whose sigmoid is the model's posterior."""
    return BernoulliPosterior(_linear(model.weight.T, model.latent_bias), temperature=0.0)


def exact_gaussian(model: LinearGaussian) -> GaussianPosterior:
    """The fully connected layers that give the model's posterior, N(c + Wᵀv, I)."""
    mean = _linear(model.weight.T, model.latent_bias)
    return GaussianPosterior(Heads(mean, jax.tree.map(jnp.zeros_like, mean)))


def _linear(weight: Array, bias: Array) -> eqx.nn.Linear:
    layer = eqx.nn.Linear(weight.shape[1], weight.shape[0], key=jax.random.key(0))
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, (weight, bias))


def perturbations(
    model: GRBM | LinearGaussian, posterior: Posterior, v: Array, key: PRNGKeyArray, settings: Settings, largest: float
) -> dict[str, np.ndarray]:
    """Return noise levels, and (points, draws) of root divergence and both biases as q departs from the posterior."""
    params, static = eqx.partition(posterior, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(params)
    features = model.features(v)
    p = ExactPosterior()(model, features, v)

    @jax.jit
    def at(level, key):
        keys = jax.random.split(key, len(leaves))
        noisy = [x + level * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys, strict=True)]
        q = eqx.combine(jax.tree.unflatten(tree, noisy), static)(model, features, v)
        return jnp.sqrt(divergence(q, p)), *biases(model, v, q.mean - p.mean, q.variance - p.variance)

    levels = np.linspace(0, largest, settings.points + 1)[1:]
    keys = jax.random.split(key, (settings.points, settings.draws))
    rows = [[at(level, key) for key in row] for level, row in zip(levels, keys, strict=True)]
    root, vaes, vages = np.moveaxis(np.array(rows, np.float64), 2, 0)
    return {"level": levels, "root": root, "VaES": vaes, "VaGES": vages}


def divergence(q: Distribution, p: Distribution) -> Float[Array, ""]:
    """KL(q ‖ p) of Bernoullis; Fisher divergence of a Gaussian q from a Gaussian p of unit variance."""
    if q.continuous:
        std = jnp.sqrt(q.variance)
        return 0.5 * jnp.sum((q.mean - p.mean) ** 2 + (std - 1 / std) ** 2)
    kl = kl_divergence(q, p)
    assert kl is not None
    return kl


def biases(
    model: GRBM | LinearGaussian, v: Array, mean_gap: Array, variance_gap: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """‖E_q VaES − ∇_v log p(v)‖ and ‖E_q VaGES − ∂∇_v log p(v)/∂θ‖ (Frobenius) of a bilinear model.

    The bias of VaES is W Δm. The bias of VaGES is δ_dd' Δm_j + W_dj ΔS_j v_d' in the block of W and W_dj ΔS_j in that
    of c, with m and S the mean and variance of h. The blocks of b and σ do not depend on q.
    """
    columns = jnp.sum(model.weight**2, axis=0)
    weight_block = (
        len(v) * jnp.sum(mean_gap**2)
        + 2 * jnp.sum(mean_gap * variance_gap * (v @ model.weight))
        + jnp.sum(v**2) * jnp.sum(columns * variance_gap**2)
    )
    bias_block = jnp.sum(columns * variance_gap**2)
    return jnp.linalg.norm(model.weight @ mean_gap), jnp.sqrt(weight_block + bias_block)


def kl_constants(model: GRBM, v: Array) -> tuple[float, float]:
    """The constants C of Theorems 1 and 2 as their proofs build them, for this v and θ, over all binary h.

    Suprema in h are exact (reached at h = 1) except for ‖∇_v log p̃‖, which is bounded: with s = 2h − 1 of norm √n it
    is ‖g + ½ W s‖ ≤ ‖g‖ + ½ √n ‖W‖, where g is its value at h = ½.
    """
    n = len(model.latent_bias)
    standard = (v - model.visible_bias) * jnp.exp(-model.log_sigma)
    force = standard * jnp.exp(-model.log_sigma)
    center = jnp.linalg.norm(-force + 0.5 * jnp.sum(model.weight, axis=1))
    score = center + 0.5 * jnp.sqrt(n) * jnp.linalg.norm(model.weight, 2)
    gradient = jnp.sqrt(n * jnp.sum(v**2) + n + jnp.sum(force**2) + jnp.sum(standard**4))
    inverse_variance = jnp.broadcast_to(jnp.exp(-2 * model.log_sigma), v.shape)
    mixed = jnp.sqrt(len(v) * n + jnp.sum(inverse_variance**2) + jnp.sum((2 * force) ** 2))
    c1, c2, c3, c4 = (float(jnp.sqrt(2.0) * x) for x in (score, gradient, mixed, score * gradient))
    c = float(jnp.maximum(score, gradient))
    return c1, c4 + c * c2 + c * c1 + c3


def mean_over_draws(points: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Return the plotted values, for result.json."""
    return {name: (values.mean(1) if values.ndim == 2 else values).tolist() for name, values in points.items()}


def line_through_origin(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The least-squares slope, and R² = 1 − (residual sum of squares) / (sum of squares about the mean of y)."""
    slope = float(x @ y / (x @ x))
    return slope, float(1 - np.sum((y - slope * x) ** 2) / np.sum((y - y.mean()) ** 2))


def bound_claim(claim: str, points: dict[str, np.ndarray], name: str, constant: float) -> Claim:
    """Claim that the bias of every draw is within its bound. An infinite constant bounds nothing."""
    ratio = np.max(points[name] / (constant * points["root"])) if math.isfinite(constant) else math.nan
    return Claim.at_most(f"{claim}, C = {constant:.3g} (largest bias / bound)", ratio, 1.0)
