"""p(v, h): models as two functions of one example."""

from vages.models.checks import check_finite, check_inputs
from vages.models.eblvm import EBLVM, TractableEBLVM
from vages.models.energy import EnergyModel
from vages.models.grbm import GRBM, binary_states
from vages.models.linear_gaussian import LinearGaussian

__all__ = [
    "EBLVM",
    "GRBM",
    "EnergyModel",
    "LinearGaussian",
    "TractableEBLVM",
    "binary_states",
    "check_finite",
    "check_inputs",
]
