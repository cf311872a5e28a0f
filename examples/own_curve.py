"""A recipe: points near a parabola, where the latent h is the position along the parabola.

vages train own_curve.py
vages sample RUN --recipe own_curve.py                  also evaluate, embed, inpaint, interpolate
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import optax

import vages


@dataclass(frozen=True)
class Settings(vages.Training):
    """What can be changed from the command line."""

    rows: int = 5000  # number of examples
    sigma: float = 0.1  # noise level of score matching
    rate: float = 3e-3  # learning rate at the start
    stream: bool = False  # train on new rows for each iteration


def some_rows(rng, rows):
    """Draw points near v₁ = 0.7 v₀², with noise of 0.2."""
    across = rng.normal(size=rows)
    return (np.stack([across, 0.7 * across**2], axis=1) + 0.2 * rng.normal(size=(rows, 2))).astype(np.float32)


def data(settings):
    """Return one array, which is split for training, validation and test, or a function of the step."""
    if settings.stream:
        return lambda step: some_rows(np.random.default_rng([settings.seed, step]), settings.batch)
    return some_rows(np.random.default_rng(settings.seed), settings.rows)


def energy(params, v, h):
    """E(v, h) of one example: v has shape (2,), h has shape (1,)."""
    curve = jnp.stack([h[0], params["bend"] * h[0] ** 2])
    return jnp.sum(h**2) / 2 + jnp.sum((v - curve) ** 2) / (2 * params["width"] ** 2)


def build(key, settings, data):
    """Return the model before training, and a posterior."""
    params = {"bend": jnp.zeros(()), "width": jnp.ones(())}
    model = vages.EnergyModel(energy, params, v=vages.Real(2), h=vages.Real(1))
    return model, vages.GaussianPosterior.mlp(key, 2, 1, width=32, depth=1)


def learner(settings):
    """Denoising score matching by VaGES, with AdamW and a rate that falls to 0."""
    rate = optax.cosine_decay_schedule(settings.rate, settings.steps)
    return vages.Learner(vages.DSM(settings.sigma, vages.Variational(10)), optax.adamw(rate, weight_decay=1e-4))


def test(key, settings, model, posterior, data):
    """Return the bend of the parabola, and the deviation from it, including the noise that score matching adds."""
    return {"bend": model.params["bend"], "width": jnp.abs(model.params["width"])}


recipe = vages.Recipe(
    data=data,
    build=build,
    learner=learner,
    settings=Settings(steps=3000),
    test=test,
    noise=lambda settings: settings.sigma,
)
