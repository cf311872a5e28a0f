"""What θ follows: gradients of learning objectives, one file a family."""

from vages.objectives.dsm import Noised, perturb, vages_dsm

__all__ = ["Noised", "perturb", "vages_dsm"]
