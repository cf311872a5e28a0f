"""Models p(v, h), each given by two functions of one example."""

from vages.models.deep import DeepEBLVM
from vages.models.eblvm import EBLVM, TractableEBLVM
from vages.models.ebm import EBM
from vages.models.encoding import Along, Encoding, encode, features_of, linearize, push_forward
from vages.models.energy import EnergyModel
from vages.models.enumeration import log_joints, log_marginal
from vages.models.grbm import GRBM
from vages.models.in_context import InContext
from vages.models.linear_gaussian import LinearGaussian
from vages.models.mixed import Mixed
from vages.models.noise_conditional import Coupling, NoiseConditionalEBLVM, measure_sigma_data

__all__ = [
    "EBLVM",
    "EBM",
    "GRBM",
    "Along",
    "Coupling",
    "DeepEBLVM",
    "Encoding",
    "EnergyModel",
    "InContext",
    "LinearGaussian",
    "Mixed",
    "NoiseConditionalEBLVM",
    "TractableEBLVM",
    "encode",
    "features_of",
    "linearize",
    "log_joints",
    "log_marginal",
    "measure_sigma_data",
    "push_forward",
]
