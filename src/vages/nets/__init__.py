"""Network blocks that models and posteriors are built from: functions of one example, channels first."""

from vages.nets.conditional import ConditionalMLP, ConditionalNetwork, Embedding
from vages.nets.encoder import ConvEncoder
from vages.nets.mixer import Mixer
from vages.nets.mlp import ResidualMLP
from vages.nets.network import Network
from vages.nets.readout import Quadratic, Readout
from vages.nets.resnet import ResNet
from vages.nets.unet import UNet

__all__ = [
    "ConditionalMLP",
    "ConditionalNetwork",
    "ConvEncoder",
    "Embedding",
    "Mixer",
    "Network",
    "Quadratic",
    "Readout",
    "ResNet",
    "ResidualMLP",
    "UNet",
]
