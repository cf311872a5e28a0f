"""A short summary of a run: its state and its most important numbers."""

from typing import Any, NamedTuple

import numpy as np

from vages.app.report.page.markup import as_float, duration, element, is_number, joined, number, written

Record = dict[str, Any]

_ENDS = {
    "finished": ("good", ""),
    "interrupted": ("bad", "It was stopped before its last iteration and can be resumed."),
    "diverged": ("bad", "Training diverged."),
}
OWN = "data_log_likelihood"  # of test examples under the distribution they were drawn from
GAUSSIAN = "test log-likelihood of a Gaussian"  # with the data's mean and covariance: a baseline
ZERO_SCORE, AS_WIDE = "a score of 0", "a Gaussian as wide as the data"  # models that have learned nothing
_COURSE = {"started", "resumed", "recovered", *_ENDS}


def run_status(events: list[Record], result: Record, rows: list[Record], *, live: bool = False) -> tuple[str, str, str]:
    """Return the status of a run in a word, its tone (good, bad or plain), and a sentence if one is needed.

    A `live` run is known to be training.
    """
    if live:
        return "training", "plain", "This page follows the run and reloads by itself."
    course = [event for event in events if isinstance(event.get("event"), str) and event["event"] in _COURSE]
    last = course[-1]["event"] if course else "finished" if result else "started"
    if last == "finished" and result.get("interrupted") is True:
        last = "interrupted"
    if last not in _ENDS:
        told = f"Logged up to iteration {written(largest_logged(rows, 'step'), 9)}; " if rows else "Nothing is logged; "
        return "not finished", "bad", told + "it is still running, or it ended unexpectedly."
    tone, told = _ENDS[last]
    if last == "finished":
        health = health_in_words(result)
        return f"{last}, {health}" if health else last, "bad" if findings(result)[0] else tone, told
    problem = course[-1].get("problem") if course and last == "diverged" else None
    return last, tone, f"Training diverged: {str(problem)[:500]}." if problem else told


def findings(result: Record) -> tuple[list[str] | None, list[str]]:
    """Return the warnings and notices in result.json; warnings are None if the health was not recorded."""
    health = result.get("health")
    if not isinstance(health, dict):
        return None, []
    lines = lambda name: [str(one)[:500] for one in found] if isinstance(found := health.get(name), list) else []
    return lines("warnings"), lines("notices")


def health_in_words(result: Record) -> str | None:
    """Return the health of a run in words; None if it is not in result.json."""
    warnings, _ = findings(result)
    if warnings is None:
        return None
    judged = result["health"].get("judged", True)
    words = (["with warnings"] if warnings else []) + ([] if judged else ["too short to judge"])
    return ", ".join(words) or "healthy"


def baseline_in(result: Record) -> tuple[str, float] | None:
    """Return the name and the loss of a model that has learned nothing, or None."""
    health = result.get("health")
    for of in (ZERO_SCORE, AS_WIDE):
        found = health.get(f"loss of {of}") if isinstance(health, dict) else None
        if is_number(found) and np.isfinite(as_float(found)):
            return of, as_float(found)
    return None


def run_figures(config: Record, result: Record, rows: list[Record], events: list[Record]) -> dict[str, object]:
    """Return likelihood and loss, iterations, time and failures, as far as they are known."""
    figures: dict[str, object] = {}
    likelihood, loss = (_over_seeds(result.get(name)) for name in ("test_log_likelihood", "loss"))
    if likelihood is not None:
        names = {"of a Gaussian": GAUSSIAN, "of the true distribution, the best possible": OWN}
        beside = [
            f"{said}: {written(as_float(result[of]), 4)}" for said, of in names.items() if is_number(result.get(of))
        ]
        small = f"{likelihood.spread} nats ({'; '.join(beside)})" if beside else f"{likelihood.spread} nats"
        figures["test log-likelihood"] = joined([number(likelihood.mean), element("small", small)])
    if loss is not None:
        baseline = baseline_in(result)
        beside = "" if baseline is None else f" (of {baseline[0]}: {written(baseline[1], 4)})"
        figures["last loss"] = joined([number(loss.mean), element("small", loss.spread, beside)])
    if (seeds := max((one.seeds for one in (likelihood, loss) if one is not None), default=1)) > 1:
        figures["seeds"] = number(seeds)
    steps = as_float(result.get("steps"))
    steps = steps if np.isfinite(steps) else largest_logged(rows, "step")
    if np.isfinite(steps):
        planned = config.get("steps")
        of = f" of {written(planned)}" if isinstance(planned, int) and planned != steps else ""
        figures["iterations"] = joined([number(int(steps)), element("small", of)])
    seconds = as_float(result.get("seconds"))
    seconds = seconds if np.isfinite(seconds) else largest_logged(rows, "seconds")
    if np.isfinite(seconds):
        figures["duration"] = duration(seconds)
    chains = result.get("diverged chains")
    if isinstance(chains, dict) and is_number(chains.get("count")) and chains["count"]:
        figures["diverged chains"] = joined([number(chains["count"]), element("small", f" of {chains.get('of')}")])
    if recovered := sum(event.get("event") == "recovered" for event in events):
        figures["recoveries"] = number(recovered)
    return figures


class _Mean(NamedTuple):
    """A mean over seeds, its standard deviation in words, and the number of seeds."""

    mean: float | int
    spread: str = ""
    seeds: int = 1


def _over_seeds(value: Any) -> _Mean | None:
    """Return a number, or the mean of those of all seeds, which result.json has with their mean; else None."""
    if not isinstance(value, dict):
        return _Mean(value) if is_number(value) else None
    each = value.get("each seed")
    seeds = np.array([as_float(x) for x in each]) if isinstance(each, list) else np.zeros(0)
    spread = f" ± {written(float(seeds.std(ddof=1)), 2)}" if len(seeds) > 1 else ""
    return _Mean(value["mean"], spread, len(seeds)) if is_number(value.get("mean")) else None


def largest_logged(rows: list[Record], name: str) -> float:
    """Return the largest value of a column, which is the last if the column is increasing; NaN if there is none."""
    values = [x for x in (as_float(row.get(name)) for row in rows) if np.isfinite(x)]
    return max(values, default=float("nan"))
