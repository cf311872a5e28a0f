"""Datasets as arrays."""

from vages.data.arrays import load_array, load_splits
from vages.data.batches import Batches
from vages.data.folder import data_folder
from vages.data.freyface import freyface_file, load_freyface
from vages.data.splits import Splits, split
from vages.data.toy import TOYS, Toy, load_toy

__all__ = [
    "TOYS",
    "Batches",
    "Splits",
    "Toy",
    "data_folder",
    "freyface_file",
    "load_array",
    "load_freyface",
    "load_splits",
    "load_toy",
    "split",
]
