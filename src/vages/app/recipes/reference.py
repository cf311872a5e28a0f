"""Feature statistics of reference images, computed once and cached."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from vages.app.recipes.sources import ImageSet, pieces
from vages.bounds import IMAGES, shown
from vages.data import data_folder
from vages.evaluation import Inception, Statistics, cache_key, feature_moments, images_digest, load_statistics
from vages.files import BadFile


def statistics_of(
    images: ImageSet | Statistics, network: Inception, *, progress: Callable[[int, int], object] | None = None
) -> Statistics:
    """Return the statistics of all images, which are cached next to the network's weights."""
    if isinstance(images, Statistics):
        return images
    check_count(images.count, images.name)
    key = cache_key(images_digest(pieces(images)), network.sha256)
    path = data_folder() / "inception" / "statistics" / f"{key}.safetensors"
    with suppress(FileNotFoundError, BadFile):  # a damaged file is computed again
        return replace(load_statistics(path, network.sha256), name=images.name)
    statistics = feature_moments(network, pieces(images), images.count, progress=progress).statistics()
    statistics = replace(statistics, name=images.name)
    with suppress(OSError):  # without a writable folder there is no cache
        statistics.save(path)
    return statistics


def check_count(n: int, name: str = "count") -> None:
    """Raise ValueError if there are too few or too many images; `name` is for the error."""
    if n < 2:
        raise ValueError(f"{name}: expected at least two images, got {shown(n)}; fewer have no covariance")
    if n > IMAGES.high:
        raise ValueError(f"{name}: expected at most {IMAGES.high:,} images, got {shown(n)}; take fewer")
