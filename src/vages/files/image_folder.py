"""The images of a folder, by name."""

import os
from pathlib import Path, PurePosixPath

from vages.storage.errors import BadFile

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")


def is_image_name(name: str) -> bool:
    """Whether a file counts as an image: it ends as one, and is not hidden."""
    base = PurePosixPath(name).name
    return base.lower().endswith(ENDINGS) and not base.startswith(".")


def image_files(folder: Path, count: int) -> list[Path]:
    """The images in a folder and the folders below it, at most `count`, sorted by their paths.

    Hidden files, hidden folders and files with other endings are passed over. A link to a file in the folder is
    followed; one that leads out of it, or to a folder, is refused.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: expected a folder, found {'a file' if folder.exists() else 'none'}; check the path"
        )
    root, found, others = folder.resolve(), [], 0
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(place, name) for name in folders):
            if path.is_symlink():
                raise BadFile(f"{path}: expected a folder, got a link; put the images themselves there")
        for name in files:
            if not is_image_name(name):
                others += 1
                continue
            path = Path(place, name)
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
                raise BadFile(f"{path}: expected an image, got a link out of {folder}; put the image itself there")
            found.append(path)
            if len(found) > count:
                raise BadFile(f"{folder}: expected at most {count} images, got more; is it the right folder?")
    if not found:
        raise BadFile(
            f"{folder}: expected images ({', '.join(ENDINGS)}), got none and {others} other files; check the path"
        )
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _raise(error: OSError) -> None:
    raise error
