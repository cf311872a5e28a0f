"""Downloads of public datasets from their authors or maintainers."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vages.data.checksums import FILES, check_content, check_known
from vages.data.download import Progress, download
from vages.data.folder import data_folder
from vages.files import BadFile, archive_members, inflate, read_bytes
from vages.storage.durable import replace_durably


class Source(NamedTuple):
    """A file on the network: its URL, its maximum size, its digest, and the dataset's files that it contains."""

    url: str
    limit: int
    digest: str
    files: tuple[str, ...]


_MNIST = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
SOURCES: dict[str, tuple[Source, ...]] = {
    "mnist": tuple(
        Source(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz", 2**24, f"md5:{md5}", (name,))
        for name, md5 in _MNIST.items()
    ),
    "cifar10": (
        Source(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            2**28,
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            tuple(FILES["cifar10"]),
        ),
    ),
    "freyface": (
        Source(
            "https://cs.nyu.edu/~roweis/data/frey_rawface.mat",
            2**21,
            f"sha256:{FILES['freyface']['frey_rawface.mat'].sha256}",
            ("frey_rawface.mat",),
        ),
    ),
}


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Download the missing or damaged files of mnist, cifar10 or freyface, and return the dataset's folder.

    A file is put in place only when it is complete and its checksum is correct. CelebA must be downloaded by hand.
    """
    folder = data_folder() / name
    if name == "celeba":
        raise ValueError(
            f"celeba: expected the images in {folder / 'img_align_celeba'}, got none; vages cannot download "
            "them, so unpack img_align_celeba.zip from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html there"
        )
    if name not in SOURCES:
        raise ValueError(
            f"name: expected one of {', '.join(SOURCES)}, got {name!r}; choose one, as vages data --get mnist"
        )
    for source in SOURCES[name]:
        if not all(_is_intact(folder / file, name, file) for file in source.files):
            _fetch(source, folder, name, progress)
    return folder


def _is_intact(path: Path, name: str, file: str) -> bool:
    try:
        check_known(path, FILES[name][file])
    except (BadFile, FileNotFoundError):
        return False
    return True


def _fetch(source: Source, folder: Path, name: str, progress: Progress | None) -> None:
    packed = folder / source.url.rpartition("/")[2]
    try:
        download(source.url, packed, source.limit, source.digest, progress)
    except ConnectionError as error:
        raise ConnectionError(
            f"{name}: {error}; get {', '.join(FILES[name])} by other means and put them in {folder}"
        ) from None
    if packed.name in source.files:
        return
    try:
        missing = set(source.files)
        for file, content in _unpacked(packed, source, sum(FILES[name][file].size for file in source.files)):
            check_content(content, FILES[name][file], f"{packed}, file {file}")
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            replace_durably(folder / file, content)
            missing.remove(file)
        if missing:
            raise BadFile(f"{packed}: expected {', '.join(sorted(missing))} in it, got none; download it again")
    finally:
        packed.unlink(missing_ok=True)


def _unpacked(packed: Path, source: Source, size: int) -> Iterator[tuple[str, bytes]]:
    """Yield the dataset's files in a download, which may contain a few others."""
    if packed.name.endswith(".tar.gz"):
        yield from archive_members(packed, size + 2**20, 100, lambda member: member in source.files)
    else:
        yield packed.stem, inflate(read_bytes(packed, source.limit), str(packed), size)
