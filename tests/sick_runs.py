"""Runs that are sick on purpose, each with the expected warning; and presets, which should give no warning.

    python tests/sick_runs.py sick [SEED …]       one line per run: what was expected, and what was reported
    python tests/sick_runs.py healthy [SEED …]    presets and examples at reduced length

Thresholds were set with seeds 0 to 2 and the first data sets. Published results use other seeds and data.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import vages
from vages.app.recipes import as_recipe
from vages.app.recipes.finding import find_recipe
from vages.app.runs.train import run_recipe
from vages.app.settings import ALL, CHECKERBOARD
from vages.training import Diverged
from vages.training.folder import read_object

ROOT = Path(__file__).parent.parent
DIGITS, BOARD = ALL["digits"], ALL["board"]
GRBM = replace(CHECKERBOARD, steps=4000, evaluate_every=4000)


def rows(seed, scale=1.0):
    """Two clusters on the plane."""
    rng = np.random.default_rng(seed)
    return (scale * (rng.normal(size=(1000, 2)) * 0.3 + rng.choice([-1, 1], (1000, 1)))).astype(np.float32)


def own(energy, params, data, seed, *, h=None, optimizer=None, steps=1500, posterior_steps=5, ema=None, sigma=0.2):
    """A recipe with an own energy, with or without binary latents."""

    def build(key, settings, data):
        h_domain = vages.Empty() if h is None else vages.Binary(h)
        model = vages.EnergyModel(energy, params(key), v=vages.Real(2), h=h_domain)
        return model, vages.ExactPosterior() if h is None else vages.BernoulliPosterior.linear(key, 2, h)

    latents = vages.Enumerated() if h is None else vages.Variational(5)
    learner = vages.Learner(
        vages.DSM(sigma, latents), optimizer or optax.adam(1e-2), posterior_steps=posterior_steps, ema=ema
    )
    return vages.Recipe(data=data, build=build, learner=learner, settings=vages.Training(steps=steps, seed=seed))


def bowl(p, v, h):
    """A Gaussian."""
    return jnp.sum((v - p["mean"]) ** 2) * jnp.exp(p["log"]) / 2


def switches(p, v, h):
    """A mixture of Gaussians with binary latents."""
    return jnp.sum((v - p["means"] @ h) ** 2) * 2 + p["bias"] @ h


gaussian = lambda key: {"mean": jnp.zeros(2), "log": jnp.zeros(())}
mixture = lambda key: {"means": jax.random.normal(key, (2, 3)), "bias": jnp.zeros(3)}
flat = lambda p, v, h: jnp.sum(jnp.cos(p["k"] @ v))
at_rest = lambda p, v, h: jnp.sum((v - p["mean"]) ** 2) / 2
alone = lambda p, v, h: bowl(p, v, h) + p["bias"] @ h
apart = lambda key: gaussian(key) | {"bias": jnp.zeros(3)}


def grbm(seed, **changed):
    """A GRBM on rings."""
    return replace(GRBM, **{"data": "rings", "seed": seed} | changed)


def example(name, seed):
    """The recipe of an example, at reduced length."""
    return find_recipe(str(ROOT / "examples" / f"{name}.py")).with_(steps=2000, seed=seed)


def two(energy, params, seed, scale=1.0, **how):
    """An own energy on two clusters."""
    return own(energy, params, rows(seed, scale), seed, **how)


same = lambda seed: np.full((1000, 2), 0.7 + seed, np.float32)
waves = lambda key: {"k": jax.random.normal(key, (4, 2))}
mean_alone = lambda key: {"mean": jnp.zeros(2)}

SICK = {
    "too high a rate, GRBM by DSM": ("loss samples", lambda s: grbm(s, learning_rate=3.0)),
    "too high a rate, GRBM by KSD": ("loss samples", lambda s: grbm(s, method="ksd", learning_rate=3.0)),
    "too high a rate, own energy": ("loss", lambda s: two(switches, mixture, s, h=3, optimizer=optax.adam(3.0))),
    "the gradient's sign is wrong": ("loss", lambda s: two(bowl, gaussian, s, optimizer=optax.adam(-1e-3))),
    "an energy without normalizer": ("energy", lambda s: two(flat, waves, s)),
    "constant data": ("data", lambda s: own(bowl, gaussian, same(s), s)),
    "a dead posterior, GRBM": ("posterior", lambda s: grbm(s, posterior_steps=0, steps=10_000)),
    "a dead posterior, own energy": ("posterior", lambda s: two(switches, mixture, s, h=3, posterior_steps=0)),
    "noise far above the data": ("samples", lambda s: grbm(s, sigma=10.0)),
    "noise far below the data": ("loss samples", lambda s: grbm(s, sigma=1e-4)),
    "data a thousand times too wide": ("loss", lambda s: two(bowl, gaussian, s, 1e3, optimizer=optax.adam(1e-3))),
    "averages far behind": ("averages", lambda s: two(at_rest, mean_alone, s, ema=0.999, optimizer=optax.adam(1.0))),
    "latents that nothing depends on": ("latents", lambda s: two(alone, apart, s, h=3)),
}

METHODS = ("dsm", "bidsm", "vages-ksd", "ksd", "is-ksd", "cd", "pcd", "nce", "vnce")
HEALTHY = {
    "own mixture": lambda s: two(switches, mixture, s, h=3),
    "own Gaussian": lambda s: two(bowl, gaussian, s),
    "own_curve": lambda s: example("own_curve", s),
    "own_binary_energy": lambda s: example("own_binary_energy", s),
    "checkerboard": lambda s: replace(GRBM, seed=s),
    **{
        f"checkerboard by {one}": (
            lambda s, one=one: replace(GRBM, method=one, steps=10_000, evaluate_every=10_000, seed=s)
        )
        for one in METHODS
    },
    "digits": lambda s: replace(DIGITS, steps=1000, seed=s),
    "board": lambda s: replace(BOARD, steps=1000, seed=s),
    "digits-paper": lambda s: replace(ALL["digits-paper"], steps=1000, sampling=0.1, seed=s),
    "freyface": lambda s: replace(ALL["freyface"], steps=1000, evaluate_every=1000, annealing=50, seed=s),
}


def health_after(made, folder):
    """The health in result.json of a run of this recipe, or how it diverged."""
    recipe = made if isinstance(made, vages.Recipe) else as_recipe(made)
    try:
        run_recipe(recipe, folder)
    except Diverged as error:
        return {"warnings": [f"diverged: {error}"], "notices": []}
    return read_object(folder, "result.json")["health"]


def main(kind, *seeds):
    """Print one line per run."""
    wanted = {"sick": SICK, "healthy": {name: ("", make) for name, make in HEALTHY.items()}}[kind]
    only = [word for word in seeds if not word.isdecimal()]
    for name, (expected, make) in wanted.items():
        for seed in [int(word) for word in seeds if word.isdecimal()] or [10]:
            if only and not any(word in name for word in only):
                continue
            began = time.perf_counter()
            with tempfile.TemporaryDirectory() as place:
                health = health_after(make(seed), Path(place) / "run")
            said = " | ".join([*health["warnings"], *(f"notice: {one}" for one in health["notices"])])[:300]
            print(f"{name}, seed {seed} [{expected}] {time.perf_counter() - began:.0f} s: {said or '-'}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
