"""Energy-based latent variable models in JAX: learn, sample and evaluate p(v, h) ∝ exp(−E(v, h))."""

import sys
from typing import no_type_check

import lazy_loader

# The public names are listed in __init__.pyi. Each is imported at first use, so that the command line starts
# without JAX.
_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.2.0.dev0"

_MOVED = {"learners": "training.learner", "optimisers": "optimizers"} | {
    room: f"app.{room}" for room in ("bench", "cli", "experiments", "explore", "recipes", "report", "runs")
}


_REMOVED = {
    "LangevinSamples": "vages.samplers.LangevinSamples",
    "NoLatents": "any source of latents, Enumerated() say, with h=Empty()",
    "NoPosterior": "ExactPosterior",
    "binary_states": "Binary(n).states()",
    "gibbs_noise": "gone: samplers.gibbs_step(key, model, state) draws its own noise",
    "gibbs_transition": "samplers.gibbs_step(key, model, state)",
    "langevin_noise": "gone: samplers.langevin_step(key, …) draws its own noise",
    "encoded_vaes": "vaes, which takes an encoding in the place of v",
    "init_seeds": "eqx.filter_vmap(make)(keys), whose models and posteriors fit(keys, …) takes",
    "make_learner": "Learner(objective, learning_rate=…), or with optimizers: Learner(objective, adam(rate, clip=1.0))",
    "gibbs_sample": "sample(key, model, n, sampler=Gibbs()).v",
    "sample_joint": "sample(key, model, n), or sampler=Annealed(schedule) for the paper's schedule",
    "sample_unconditional": "sample(key, model, n, sampler=Annealed(schedule, latents=means))",
    "sample_v": "sample(key, model, n, h=h), or sampler=Annealed(schedule) for the paper's schedule",
    "vages": "gradient_estimate",
    "vages_surrogate": "surrogate",
}


@no_type_check  # a type checker's wrapper would add a frame between this function and its caller
def __getattr__(name: str) -> object:
    if name in _REMOVED:
        said = f"vages.{name} is now {_REMOVED[name]}; CHANGELOG.md has all new names"
    elif name in _MOVED:
        place = f"vages.{_MOVED[name]}"
        said = f"vages.{name} is now {place}; write `import {place}`"
    else:
        return _public(name)
    # `from vages import NAME` calls this function first and would replace the message of an AttributeError.
    asking = sys._getframe(1)
    importing = (asking.f_globals.get("__name__"), asking.f_code.co_name) == (
        "importlib._bootstrap",
        "_handle_fromlist",
    )
    raise ImportError(said, name=name) if importing else AttributeError(said, name=name, obj=sys.modules[__name__])
