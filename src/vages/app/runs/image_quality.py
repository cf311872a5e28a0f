"""FID and KID of a run's samples, or of any images, against a reference."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vages.app.recipes.chains import chains_of
from vages.app.recipes.reference import check_count, statistics_of
from vages.app.recipes.samples import (
    PROTOCOLS,
    Protocol,
    Remember,
    Samples,
    chain_samples,
    check_seed,
    draw_now,
    heun_samples,
)
from vages.app.recipes.sources import ImageSet, pieces, random_rows, split_of
from vages.app.runs.kept_blocks import kept_blocks
from vages.app.runs.loaded import Run
from vages.app.runs.quality import Quality, Real, Sampling
from vages.environment import environment
from vages.evaluation import (
    PREPROCESSING,
    Gray,
    Inception,
    Moments,
    Statistics,
    extrapolated_fid,
    feature_moments,
    fid,
    images_digest,
    kid,
    load_inception,
    metric_name,
)
from vages.samplers import Heun
from vages.terminal import printable

Progress = Callable[[str, int, int], object]  # of the stage, the steps done, and the steps in all


def evaluate_run(
    run: Run,
    reference: ImageSet | Statistics | None = None,
    *,
    count: int = 10_000,
    protocol: Protocol = "paper",
    sampling: float | None = None,
    seed: int = 0,
    gray: Gray = "refuse",
    network: Inception | None = None,
    progress: Progress | None = None,
) -> tuple[Quality, Statistics]:
    """Compute the quality of a run's samples against its training images or a reference, and their statistics."""
    began = time.perf_counter()
    samples_of(run, count, protocol, sampling, seed, gray)  # raises before anything is computed
    network = load_inception() if network is None else network
    train = split_of(run.data, run.data_name, "train", gray) if reference is None else None
    reference = reference if train is None else train
    assert reference is not None
    against = statistics_of(reference, network, progress=_part(progress, f"features of {reference.name}"))
    with kept_blocks(run, count, sampling, protocol=protocol, seed=seed, gray=gray) as (remember, earlier):
        moments, how = sample_moments(run, network, count, protocol, sampling, seed, gray, progress, remember)
        began -= sum(earlier)  # of samples that were drawn before a stop
        beside = reference
        if train is not None:  # prefer images that the model has not seen, unless they are few
            test = split_of(run.data, run.data_name, "test", gray)
            beside = test if test.count >= min(moments.n, train.count // 5) else train
        statistics = replace(moments.statistics(), name=f"samples of {printable(run.path)}")
        quality = _quality(statistics, against, gray, seed, began, moments=moments, sampling=how)
        return _with_real(quality, beside, against, network, seed, began, progress), statistics


def evaluate_images(
    images: ImageSet | Statistics,
    reference: ImageSet | Statistics,
    *,
    count: int | None = None,
    seed: int = 0,
    gray: Gray = "refuse",
    network: Inception | None = None,
    progress: Progress | None = None,
) -> tuple[Quality, Statistics]:
    """Compute the quality of all or `count` random images against a reference, and their statistics."""
    began, moments = time.perf_counter(), None
    n = count_of(images, count)
    check_seed(seed)
    rows = np.arange(0) if isinstance(images, Statistics) else random_rows(images, n, seed)
    if isinstance(images, ImageSet):
        images_digest(pieces(images, rows))  # a bad image raises before anything is computed
    network = load_inception() if network is None else network
    against = statistics_of(reference, network, progress=_part(progress, f"features of {reference.name}"))
    if isinstance(images, ImageSet):
        told = _part(progress, f"features of {images.name}")
        moments = feature_moments(network, pieces(images, rows), n, progress=told)
        images = replace(moments.statistics(), name=images.name)
    quality = _quality(images, against, gray, seed, began, moments=moments)
    return _with_real(quality, reference, against, network, seed, began, progress), images


def image_statistics(
    images: ImageSet,
    *,
    count: int | None = None,
    seed: int = 0,
    network: Inception | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """Compute the statistics of all or `count` random images; those of all images are cached."""
    n = count_of(images, count)
    check_seed(seed)
    network = load_inception() if network is None else network
    told = _part(progress, f"features of {images.name}")
    if n == images.count:
        return statistics_of(images, network, progress=told)
    rows = random_rows(images, n, seed)
    images_digest(pieces(images, rows))  # a bad image raises before anything is computed
    moments = feature_moments(network, pieces(images, rows), n, progress=told)
    return replace(moments.statistics(), name=images.name)


def sample_moments(
    run: Run,
    network: Inception,
    count: int,
    protocol: Protocol = "paper",
    sampling: float | None = None,
    seed: int = 0,
    gray: Gray = "refuse",
    progress: Progress | None = None,
    remember: Remember = draw_now,
) -> tuple[Moments, Sampling]:
    """Return the moments of the features of a run's samples, and how the samples were drawn."""
    drawn = samples_of(run, count, protocol, sampling, seed, gray)
    moments = feature_moments(network, drawn.draw(count, _part(progress, "samples"), remember), count)
    if moments.n < 2:
        raise ValueError(f"count: expected two images or more, got {moments.n}: {drawn.diverged} chains diverged")
    how = Sampling(
        run=printable(run.path),
        protocol=protocol_of(run, protocol),
        checkpoint=run.step,
        weights=run.weights,
        sampler=drawn.sampler,
        evaluations=drawn.gradients,
        seed=seed,
        diverged=drawn.diverged,
        of=count,
        data=run.about_data,
    )
    return moments, how


def protocol_of(run: Run, protocol: Protocol) -> str:
    """Return the protocol in words; models without latents and noise-conditional models have only one."""
    if not run.has_latents:
        return "v alone, the model has no latents"
    return PROTOCOLS[protocol] if run.recipe.annealed is not None else "h from the posterior at each gradient"


def samples_of(run: Run, count: int, protocol: Protocol, sampling: float | None, seed: int, gray: Gray) -> Samples:
    """Check the arguments, and return an object that draws a run's samples. Nothing is drawn yet."""
    check_count(count)
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol: expected one of {', '.join(PROTOCOLS)}, got {protocol!r}; choose one")
    recipe = run.recipe.with_sampling(sampling)
    sampler = recipe.make_sampler(run.posterior)
    if isinstance(sampler, Heun):
        if protocol != "paper":
            raise ValueError(f"protocol: expected nothing for {recipe.kind}, got one; it is for the paper's models")
        return heun_samples(sampler, run.model, seed=seed, gray=gray)
    given = run.data.splits.train if run.has_latents and protocol == "paper" else None
    return chain_samples(chains_of(recipe, run.model), run.model, run.posterior, given, seed=seed, gray=gray)


def count_of(images: ImageSet | Statistics, count: int | None) -> int:
    """Return how many of these images are evaluated: `count`, or all."""
    if isinstance(images, Statistics):
        if count not in (None, images.n):
            raise ValueError(
                f"count: expected {images.n}, all images of the saved statistics {images.name}, got {count}; leave it "
                "out, or give the images themselves"
            )
        return images.n
    check_count(images.count, images.name)
    n = images.count if count is None else count
    check_count(n)
    if n > images.count:
        raise ValueError(f"count: expected at most {images.count}, the images of {images.name}, got {n}; leave it out")
    return n


def _quality(
    statistics: Statistics,
    against: Statistics,
    gray: Gray,
    seed: int,
    began: float,
    *,
    moments: Moments | None,
    sampling: Sampling | None = None,
) -> Quality:
    return Quality(
        metric=metric_name("FID", statistics.n),
        fid=fid(statistics, against),
        n=statistics.n,
        source={"name": printable(statistics.name), "n": statistics.n, "sha256": statistics.images},
        reference={"name": printable(against.name), "n": against.n, "sha256": against.images},
        weights=against.weights,
        preprocessing=PREPROCESSING,
        gray=gray,
        extrapolated=None if moments is None else extrapolated_fid(moments, against),
        kid=kid(statistics.features, against.features, seed=seed),
        real=None,
        sampling=sampling,
        minutes=(time.perf_counter() - began) / 60,
        environment=environment(),
    )


def _with_real(
    quality: Quality,
    images: ImageSet | Statistics,
    against: Statistics,
    network: Inception,
    seed: int,
    began: float,
    progress: Progress | None,
) -> Quality:
    """Add the metrics of as many real images (or all there are), unless a set would be compared with itself."""
    if isinstance(images, Statistics) or (images.name == against.name and quality.n >= images.count):
        return quality
    n = min(quality.n, images.count)
    rows = random_rows(images, n, seed + 1)
    told = _part(progress, "features of real images")
    real = feature_moments(network, pieces(images, rows), n, progress=told).statistics()
    name = f"{images.name}, a part of the reference" if images.name == against.name else images.name
    beside = Real(name, n, fid(real, against), kid(real.features, against.features, seed=seed))
    return replace(quality, real=beside, minutes=(time.perf_counter() - began) / 60)


def _part(progress: Progress | None, name: str) -> Callable[[int, int], object] | None:
    return None if progress is None else lambda done, total: progress(name, done, total)
