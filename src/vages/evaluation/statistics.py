"""Mean and covariance of the Inception features of a set of images, stored in one .safetensors file."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float32, Float64

from vages.files import BadFile, parse_json, read_bytes
from vages.storage.durable import replace_durably

PREPROCESSING = "8 bits, TensorFlow 1's bilinear resize to 299, (x - 128) / 128"
_FORMAT = 1
_LIMIT = 2**30


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics for the FID and KID of a set of images: mean and covariance of all features, and some features."""

    n: int
    mean: Float64[np.ndarray, "d"]
    covariance: Float64[np.ndarray, "d d"]
    features: Float32[np.ndarray, "kept d"]
    images: str
    """SHA-256 of the pixels."""
    weights: str
    """SHA-256 of the network's arrays."""
    name: str = "images"
    """Name of the images in reports."""

    @cached_property
    def root(self) -> Float64[np.ndarray, "d d"]:
        """The matrix square root of the covariance."""
        values, vectors = np.linalg.eigh(self.covariance)
        return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T

    def save(self, path: Path) -> None:
        """Write a .safetensors file."""
        about = {"format": _FORMAT, "n": self.n, "images": self.images, "weights": self.weights, "name": self.name}
        arrays = {"mean": self.mean, "covariance": self.covariance, "features": self.features}
        content = safetensors.numpy.save(arrays, {"statistics": json.dumps({**about, "preprocessing": PREPROCESSING})})
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(path, content)


def load_statistics(path: Path, weights: str) -> Statistics:
    """Read a file of `Statistics.save`; raise `BadFile` if its weights or preprocessing differ."""
    content = read_bytes(path, _LIMIT)
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")], str(path))
    metadata = header.get("__metadata__")
    text = metadata.get("statistics") if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise BadFile(f"{path}: expected statistics of images, got another file; is it the right one?")
    about = parse_json(text.encode(), str(path))
    wanted = {"format": _FORMAT, "weights": weights, "preprocessing": PREPROCESSING}
    for key, value in wanted.items():
        if about.get(key) != value:
            raise BadFile(f"{path}: expected {key} {value!r}, got {str(about.get(key))[:80]!r}; compute them again")
    try:
        arrays = safetensors.numpy.load(content)
        parts = [arrays[name] for name in ("mean", "covariance", "features")]
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
        raise BadFile(f"{path}: expected mean, covariance and features, got damaged ones; compute them again") from None
    mean, covariance, features = parts
    right = (mean.dtype, covariance.dtype, features.dtype) == (np.float64, np.float64, np.float32)
    right = right and mean.ndim == 1 and covariance.shape == 2 * mean.shape and features.shape[1:] == mean.shape
    right = right and features.ndim == 2 and all(np.isfinite(part).all() for part in parts)
    n, images, name = about.get("n"), about.get("images"), about.get("name")
    texts = isinstance(images, str) and isinstance(name, str) and f"{images}{name}".isprintable()
    if not (right and texts and type(n) is int and n >= max(2, len(features))):
        raise BadFile(f"{path}: expected finite statistics of two images or more, got others; compute them again")
    return Statistics(n, mean, covariance, features, str(images), weights, str(name))


def cache_key(images: str, weights: str) -> str:
    """Return a name for a cached file of statistics, unique to the images, network and preprocessing."""
    about: dict[str, Any] = {"format": _FORMAT, "images": images, "weights": weights, "preprocessing": PREPROCESSING}
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
