"""Learning rates of presets of images and points, whose warm-up is a tenth of the iterations at most."""

from vages import optimizers
from vages.app.settings import DeepSettings, ImageSettings, PointSettings
from vages.optimizers import Rate, learning_rate

_Planned = ImageSettings | PointSettings | DeepSettings


def rates(settings: _Planned, *peaks: float, final: float = 0.0) -> tuple[Rate, ...]:
    """The rates with these peaks."""
    warmup = min(settings.warmup, settings.steps // 10)
    how = {"steps": settings.steps, "warmup": warmup, "final": final}
    return tuple(learning_rate(peak, decay=settings.decay, **how) for peak in peaks)


def same_until(settings: _Planned) -> float:
    """The iterations that are the same for any larger number of them: none where the warm-up would be longer."""
    if settings.warmup > settings.steps // 10:
        return 0.0
    return optimizers.same_until(settings.decay, settings.steps, settings.warmup)
