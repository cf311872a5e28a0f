"""Energy-based latent variable models in JAX: learn, sample and evaluate p(v, h) ∝ exp(−E(v, h))."""

import lazy_loader

# The public names are listed in __init__.pyi; each is imported when it is first used, so that the command
# line answers without waiting for JAX.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
