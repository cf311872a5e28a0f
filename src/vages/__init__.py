"""Energy-based latent variable models in JAX: learn, sample and evaluate p(v, h) ∝ exp(−E(v, h))."""

import lazy_loader

# The public names are listed in __init__.pyi. Each is imported at first use, so that the command line starts
# without JAX.
_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"

_MOVED = {"learners": "training.learner", "optimisers": "optimizers"} | {
    room: f"app.{room}" for room in ("bench", "cli", "experiments", "explore", "recipes", "report", "runs")
}


_REMOVED = {
    "NoPosterior": "ExactPosterior",
    "LangevinSamples": "vages.samplers.LangevinSamples",
    "encoded_vaes": "vaes, which takes an encoding in the place of v",
    "gibbs_sample": "sample(key, model, n, sampler=Gibbs()).v",
    "sample_joint": "sample(key, model, n), or sampler=Annealed(schedule) for the paper's schedule",
    "sample_unconditional": "sample(key, model, n, sampler=Annealed(schedule, latents=means))",
    "sample_v": "sample(key, model, n, h=h), or sampler=Annealed(schedule) for the paper's schedule",
    "vages": "gradient_estimate",
    "vages_surrogate": "surrogate",
}


def __getattr__(name: str) -> object:
    if name in _REMOVED:
        raise ImportError(f"vages.{name} is now {_REMOVED[name]}; CHANGELOG.md has all new names")
    if name in _MOVED:
        place = f"vages.{_MOVED[name]}"
        raise AttributeError(f"vages.{name} is now {place}; write `import {place}`")
    return _public(name)
