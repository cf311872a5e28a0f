"""Datasets as arrays."""

from vages.data.folder import data_folder
from vages.data.freyface import FreyFace, freyface_file, load_freyface

__all__ = ["FreyFace", "data_folder", "freyface_file", "load_freyface"]
