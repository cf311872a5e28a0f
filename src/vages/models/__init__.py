"""p(v, h): models as two functions of one example."""

from vages.models.deep import DeepEBLVM
from vages.models.eblvm import EBLVM, TractableEBLVM
from vages.models.ebm import EBM
from vages.models.encoding import Encoding, encode, features_of
from vages.models.energy import EnergyModel
from vages.models.enumeration import log_joints, log_marginal
from vages.models.grbm import GRBM
from vages.models.linear_gaussian import LinearGaussian
from vages.models.mixed import Mixed

__all__ = [
    "EBLVM",
    "EBM",
    "GRBM",
    "DeepEBLVM",
    "Encoding",
    "EnergyModel",
    "LinearGaussian",
    "Mixed",
    "TractableEBLVM",
    "encode",
    "features_of",
    "log_joints",
    "log_marginal",
]
