"""CIFAR10's binary records: a label, then the red, green and blue planes of 32 × 32 pixels."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vages.files.errors import BadFile, read_bytes

_RECORD = 1 + 3 * 32 * 32
Records = tuple[UInt8[np.ndarray, "n 3 32 32"], UInt8[np.ndarray, "n"]]


def parse_cifar10(content: bytes, name: str) -> Records:
    """The images and the labels 0 to 9 of a batch's bytes; `name` is for errors."""
    if not content or len(content) % _RECORD:
        raise BadFile(f"{name}: expected records of {_RECORD} bytes, got {len(content)} bytes; get the file again")
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        row = int(labels.argmax())
        raise BadFile(f"{name}: expected labels 0 to 9, got {labels[row]} in record {row}; is it the right file?")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels


def read_cifar10(path: Path, limit: int) -> Records:
    """Read a batch of at most `limit` bytes."""
    return parse_cifar10(read_bytes(path, limit), str(path))
