"""Sizes and SHA-256 checksums of the files of public datasets, and their verification."""

import hashlib
from pathlib import Path
from typing import NamedTuple

from vages.files import BadFile, inflate, read_bytes


class Known(NamedTuple):
    """The expected size and checksum of a file."""

    size: int
    sha256: str


FILES: dict[str, dict[str, Known]] = {
    "mnist": {
        "train-images-idx3-ubyte": Known(
            47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
        ),
        "train-labels-idx1-ubyte": Known(60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        "t10k-images-idx3-ubyte": Known(7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        "t10k-labels-idx1-ubyte": Known(10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    },
    "cifar10": {
        f"cifar-10-batches-bin/{name}.bin": Known(30_730_000, sha256)
        for name, sha256 in {
            "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        }.items()
    },
    "freyface": {
        "frey_rawface.mat": Known(1_100_584, "265a83a23adb081755cd3de375509828e690324d1d60f076b8ecebc840d59c64")
    },
}


def check_content(content: bytes, known: Known, name: str) -> None:
    """Raise `BadFile` unless the content has the known size and checksum. `name` is for the error."""
    if len(content) != known.size:
        raise BadFile(f"{name}: expected {known.size} bytes, got {len(content)}; download it again")
    if (got := hashlib.sha256(content).hexdigest()) != known.sha256:
        raise BadFile(f"{name}: expected SHA-256 {known.sha256}, got {got}; download it again")


def check_known(path: Path, known: Known) -> None:
    """Raise `BadFile` unless the file, or its .gz version, has the known content."""
    packed = path.with_name(f"{path.name}.gz")
    if path.is_file() or not packed.is_file():
        check_content(read_bytes(path, known.size), known, str(path))
    else:
        content = read_bytes(packed, known.size + 2**16)  # compression can enlarge random bytes
        check_content(inflate(content, str(packed), known.size), known, str(packed))
