"""`vages bench`."""

import importlib
from json import dumps
from typing import Annotated

import tyro

from vages.app.cli.options import Bench, choice, given
from vages.app.output.console import print_json, say, waiting

Rounds = Annotated[int | None, given("INT", "enough to be steady")]


def bench(
    name: Annotated[Bench, tyro.conf.Positional, choice(Bench)], /, rounds: Rounds = None, json: bool = False
) -> int:
    """Measure speed on this machine, with alternatives side by side.

    Args:
        name: what to measure.
        rounds: number of rounds, over which the median is taken.
        json: print one JSON object.
    """
    from vages.app.bench import BENCHES
    from vages.bounds import Bounds, check_bounds
    from vages.environment import environment

    if rounds is not None:
        check_bounds(rounds=(rounds, Bounds(1, 10**6)))
    module = importlib.import_module(BENCHES[name])
    with waiting(f"measuring {name}"):
        result = module.run() if rounds is None else module.run(rounds)
    if json:
        print_json({"bench": name, **result, "environment": environment()})
    else:
        for key, value in result.items():
            say(f"{key}: {dumps(value, ensure_ascii=False)}")
    return 0
