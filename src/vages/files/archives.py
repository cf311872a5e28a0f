"""Archives of files, by their endings."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from vages.files.errors import BadFile, check_file
from vages.files.tars import tar_members
from vages.files.zips import zip_members

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


def archive_members(
    path: Path, limit: int, count: int, wanted: Callable[[str], bool] = lambda member: True
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files in a .zip, .tar, .tar.gz or .tgz archive, read in memory one by one.

    At most `count` members, of at most `limit` bytes together.
    """
    if not path.name.lower().endswith(ARCHIVES):
        raise BadFile(f"{path}: expected a name that ends in {', '.join(ARCHIVES)}, got {path.name!r}; rename it")
    check_file(path)
    return _members(path, limit, count, wanted)


def unpack(members: Iterable[tuple[str, bytes]], folder: Path) -> list[Path]:
    """Write members, whose names the readers of archives have checked, below a new folder that is made for them."""
    folder.mkdir(parents=True)
    paths = []
    for name, content in members:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
        paths.append(path)
    return paths


def _members(path: Path, limit: int, count: int, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    ending = path.name.lower()
    with path.open("rb") as file:
        if ending.endswith(".zip"):
            yield from zip_members(file, str(path), limit, count, wanted)
        else:
            yield from tar_members(file, str(path), limit, count, ending.endswith("gz"), wanted)
