"""Parallel decoding of images."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from jaxtyping import UInt8

from vages.files import BadFile
from vages.files.limits import MAX_ARRAY_BYTES

_AT_ONCE = 64  # images in progress
Source = TypeVar("Source")


def decode_all(
    sources: Iterable[Source], decode: Callable[[Source], tuple[str, np.ndarray]], name: str
) -> UInt8[np.ndarray, "n channels height width"]:
    """Decode the images of all sources, sorted by name. `decode` returns a name and pixels, channels first.

    Pillow releases the GIL while it decodes, so that threads share the work. All images must have one size; grayscale
    images among color images get three equal channels. `name`, of the folder or archive, is for errors.
    """
    images, channels = {}, 1
    with ThreadPoolExecutor() as pool:
        for title, image in _in_order(pool, decode, sources):
            if title in images:
                raise BadFile(f"{name}: expected one image of each name, got two of {title!r}; rename one")
            images[title], channels = image, max(channels, len(image))
            first = next(iter(images.values()))
            if image.shape[1:] != first.shape[1:]:
                raise BadFile(
                    f"{name}: expected all images of one size, got {_size(first)} and {_size(image)} in {title!r}; "
                    "resize the files, or use load_images(…, resize=SIZE) in Python"
                )
            if len(images) * channels * image[0].size > MAX_ARRAY_BYTES:
                raise BadFile(
                    f"{name}: expected at most {MAX_ARRAY_BYTES} bytes of pixels, got more; use fewer or smaller images"
                )
    if not images:
        raise BadFile(f"{name}: expected images, got none; is it the right file?")
    pixels = np.empty((len(images), channels, *next(iter(images.values())).shape[1:]), np.uint8)
    for i, title in enumerate(sorted(images)):
        pixels[i] = images[title]  # one channel is broadcast to three
    return pixels


def _in_order(
    pool: ThreadPoolExecutor, decode: Callable[[Source], tuple[str, np.ndarray]], sources: Iterable[Source]
) -> Iterator[tuple[str, np.ndarray]]:
    waiting = deque()
    for source in sources:
        waiting.append(pool.submit(decode, source))
        if len(waiting) == _AT_ONCE:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _size(image: np.ndarray) -> str:
    return f"{image.shape[2]} × {image.shape[1]}"
