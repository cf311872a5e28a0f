"""Listing of the images in a folder."""

import os
from pathlib import Path, PurePosixPath

from vages.storage.errors import BadFile

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")
_OTHER_IMAGES = (".gif", ".tif", ".tiff", ".webp", ".heic", ".avif", ".jp2", ".ppm", ".pgm", ".svg")


def is_image_name(name: str) -> bool:
    """Whether a file has the suffix of an image and is not hidden."""
    base = PurePosixPath(name).name
    return base.lower().endswith(ENDINGS) and not base.startswith(".")


def is_image_member(name: str) -> bool:
    """Whether a member of an archive is an image, by the rules of `image_files`."""
    if any(part.startswith(".") for part in PurePosixPath(name).parts):
        return False
    if name.lower().endswith(_OTHER_IMAGES):
        raise BadFile(f"{name}: expected {', '.join(ENDINGS)}, got another kind of image; convert or remove it")
    return is_image_name(name)


def image_files(folder: Path, count: int) -> list[Path]:
    """List the images in a folder and its subfolders, at most `count`, sorted by path.

    Hidden files, hidden folders and files that are not images are skipped. Images of other formats (GIF, TIFF, WebP …)
    are refused, as are links to folders and links out of the folder. Other links are followed.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: expected a folder, got {'a file' if folder.exists() else 'none'}; check the path"
        )
    root, found, others = folder.resolve(), [], 0
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(place, name) for name in folders):
            if path.is_symlink():
                raise BadFile(f"{path}: expected a folder, got a link; put the images themselves there")
        for name in files:
            path = Path(place, name)
            if not is_image_name(name):
                if name.lower().endswith(_OTHER_IMAGES) and not name.startswith("."):
                    raise BadFile(
                        f"{path}: expected {', '.join(ENDINGS)}, got another kind of image; convert or remove it"
                    )
                others += 1
                continue
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
