"""Learning rates of presets of images and points, whose warm-up is at most a tenth of the iterations."""

from vages import optimizers
from vages.app.settings import DeepSettings, ImageSettings, PointSettings
from vages.optimizers import Rate, learning_rate

_Planned = ImageSettings | PointSettings | DeepSettings


def rates(settings: _Planned, *peaks: float, final: float = 0.0) -> tuple[Rate, ...]:
    """Return the learning rate schedules with these peaks."""
    warmup = min(settings.warmup, settings.steps // 10)
    how = {"steps": settings.steps, "warmup": warmup, "final": final}
    return tuple(learning_rate(peak, decay=settings.decay, **how) for peak in peaks)


def same_until(settings: _Planned) -> float:
    """Number of iterations that stay the same if more are planned: none if the warm-up would become longer."""
    if settings.warmup > settings.steps // 10:
        return 0.0
    return optimizers.same_until(settings.decay, settings.steps, settings.warmup)
