"""A recipe: examples of ten numbers, the sum of patterns that six binary latents switch on.

vages train own_binary_energy.py
vages sample RUN --recipe own_binary_energy.py          also evaluate, embed, inpaint, interpolate
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import vages

SIZE, SWITCHES = 10, 6


@dataclass(frozen=True)
class Settings(vages.Training):
    """What can be changed from the command line."""

    rows: int = 4000  # number of examples
    sigma: float = 0.3  # noise level of score matching
    rate: float = 1e-2  # learning rate at the start
    stream: bool = False  # train on new rows for each iteration


def some_rows(rng, rows):
    """Sums of patterns, with noise of 0.3."""
    patterns = np.random.default_rng(0).normal(size=(SIZE, SWITCHES))
    switches = rng.integers(0, 2, size=(rows, SWITCHES))
    return (switches @ patterns.T + 0.3 * rng.normal(size=(rows, SIZE))).astype(np.float32)


def batches(settings):
    """Yield batches. When a run is resumed, the batches that it has used are skipped."""
    rng = np.random.default_rng(settings.seed)
    while True:
        yield some_rows(rng, settings.batch)


def data(settings):
    """Return one array, which is split for training, validation and test, or an iterator of batches."""
    return batches(settings) if settings.stream else some_rows(np.random.default_rng(settings.seed), settings.rows)


def energy(params, v, h):
    """E(v, h) of one example: v has shape (10,), h is six zeros and ones."""
    error = v - params["center"] - params["patterns"] @ h
    return jnp.sum(error**2) * jnp.exp(-2 * params["log_std"]) / 2 - params["bias"] @ h


def build(key, settings, data):
    """Return the model before training, and an approximate posterior: switches are independent given v.

    Its network has a hidden layer: logits linear in v cannot keep up as `log_std` decreases, and training stops.
    """
    for_model, for_posterior = jax.random.split(key)
    params = {
        "patterns": jax.random.normal(for_model, (SIZE, SWITCHES)),
        "center": jnp.zeros(SIZE),
        "bias": jnp.zeros(SWITCHES),
        "log_std": jnp.zeros(()),
    }
    model = vages.EnergyModel(energy, params, v=vages.Real(SIZE), h=vages.Binary(SWITCHES))
    network = eqx.nn.MLP(SIZE, SWITCHES, 64, 1, activation=jax.nn.silu, key=for_posterior)
    return model, vages.BernoulliPosterior(network)


def learner(settings):
    """Denoising score matching by VaGES, with AdamW and a rate that falls to 0."""
    rate = optax.cosine_decay_schedule(settings.rate, settings.steps)
    return vages.Learner(vages.DSM(settings.sigma, vages.Variational(5)), optax.adamw(rate, weight_decay=1e-4))


def evaluate(key, settings, model, posterior, data):
    """Return the standard deviation of the noise, √(0.3² + σ²) = 0.42 if all patterns are found."""
    return {"noise_level": jnp.exp(model.params["log_std"])}


recipe = vages.Recipe(
    data=data,
    build=build,
    learner=learner,
    settings=Settings(steps=5000),
    evaluate=evaluate,
    test=evaluate,
    noise=lambda settings: settings.sigma,
)
