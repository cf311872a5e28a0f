"""`vages bench`."""

import importlib
from json import dumps
from typing import Annotated

import tyro

from vages.cli.options import Bench, given

Rounds = Annotated[int | None, given("INT", "enough to be steady")]


def bench(name: Annotated[Bench, tyro.conf.Positional], /, json: bool = False, rounds: Rounds = None) -> int:
    """Measure speed on this machine, alternatives side by side.

    Args:
        name: what to measure.
        json: print one JSON object.
        rounds: turns, of which the median is taken.
    """
    from vages.bench import BENCHES
    from vages.environment import environment

    module = importlib.import_module(BENCHES[name])
    result = module.run() if rounds is None else module.run(rounds)
    if json:
        print(dumps({"bench": name, **result, "environment": environment()}, ensure_ascii=False))
    else:
        for key, value in result.items():
            print(f"{key}: {dumps(value, ensure_ascii=False)}")
    return 0
