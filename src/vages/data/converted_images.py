"""Images of any set, size and number of channels, converted to one shape.

Pillow converts grayscale images to RGB by repeating their channel, and RGB images to grayscale by the luma, 0.299 R +
0.587 G + 0.114 B. The largest central part with the wanted proportions is scaled by its bilinear filter, which averages
when it downscales. Converted images have 8 bits. Images that already have the shape are unchanged.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from vages.data.celeba import celeba_bounds, celeba_files, read_face
from vages.data.decoding import decode_all
from vages.data.image_sets import IMAGE_SETS, load_images
from vages.data.images import scaled
from vages.data.own_images import in_the_middle, read_image_arrays
from vages.data.splits import Splits
from vages.files import ARCHIVES, archive_members, decode_image, image_files, is_image_member, pixels_of, read_bytes
from vages.files.limits import MAX_ARCHIVE_BYTES, MAX_IMAGE_BYTES, MAX_MEMBERS

Shape = tuple[int, int, int]
Converted = Float32[np.ndarray, "n channels height width"]


def load_converted_images(name: str, shape: Shape, count: int, seed: int = 0) -> Converted:
    """Load at most `count` images, chosen by `seed`, converted to this shape in [0, 1].

    `name` is a set (mnist), a split of one (mnist:train; by default test), a folder, an archive, or a .npy or .npz
    file. Only the chosen images of CelebA or a folder are decoded, and those of a folder may have any sizes.
    """
    path, (known, _, part) = Path(name), name.partition(":")
    choose = lambda images: images[_some(len(images), count, seed)]
    if known in IMAGE_SETS:
        part = part or "test"
        if part not in Splits._fields:
            raise ValueError(f"{known}: expected a split, {', '.join(Splits._fields)}, got {part!r}; choose one")
        if known == "celeba":
            files = celeba_files()
            bounds = (0, *celeba_bounds(len(files)), len(files))
            files = files[slice(*bounds[Splits._fields.index(part) :][:2])]
            face = lambda path: _converted(path.name, read_face(path, max(shape[1:])), shape)
            return scaled(decode_all(_listed(files, count, seed), face, known))
        found = getattr(load_images(known).splits, part)
        if not len(found):
            raise ValueError(f"{name}: expected images, got a split without any; name another, {known}:train say")
        return convert_images(choose(found), shape)
    if path.is_dir():
        files = _listed(image_files(path, MAX_MEMBERS), count, seed)
        one = lambda file: _converted(str(file), decode_image(read_bytes(file, MAX_IMAGE_BYTES), str(file)), shape)
        return scaled(decode_all(files, one, name))
    if not path.exists():
        raise ValueError(
            f"{name}: expected a set ({', '.join(IMAGE_SETS)}), a folder, an archive or a file of images, got nothing "
            "at this path; check the path"
        )
    if name.lower().endswith(ARCHIVES):
        members = archive_members(path, MAX_ARCHIVE_BYTES, MAX_MEMBERS, is_image_member, MAX_IMAGE_BYTES)
        member = lambda found: _converted(found[0], decode_image(found[1], f"{name}, member {found[0]!r}"), shape)
        return scaled(choose(decode_all(members, member, name)))
    arrays = read_image_arrays(path)
    return convert_images(choose(arrays.get("test", next(iter(arrays.values())))), shape)


def convert_images(images: Float32[np.ndarray, "n _ _ _"], shape: Shape) -> Converted:
    """Convert images in [0, 1] to this shape."""
    if not len(images):
        raise ValueError(f"images: expected at least one example, got shape {images.shape}; give more")
    if images.shape[1:] == shape:
        return images
    pixels = np.rint(255 * images).astype(np.uint8)
    return scaled(np.stack([convert_image(_as_pillow(one), shape) for one in pixels]))


def convert_image(image: Image.Image, shape: Shape) -> UInt8[np.ndarray, "channels height width"]:
    """Convert one image to this shape."""
    channels, height, width = shape
    image = image.convert("RGB" if channels == 3 else "L")
    return pixels_of(image if image.size == (width, height) else in_the_middle(image, width, height))


def _converted(title: str, image: Image.Image, shape: Shape) -> tuple[str, np.ndarray]:
    return title, convert_image(image, shape)


def _as_pillow(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1))


def _some(rows: int, count: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(rows)[:count])


def _listed(files: list[Path], count: int, seed: int) -> list[Path]:
    return [files[row] for row in _some(len(files), count, seed)]
