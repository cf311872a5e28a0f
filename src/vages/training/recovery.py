"""Recovery from divergence: training returns to the last good checkpoint with other noise, or ends."""

import re

import jax.numpy as jnp

from vages.training.guard import Diverged, Guard
from vages.training.keeping import Keeper, Position, Run


def recover(guard: Guard, problem: str, keeper: Keeper, first: Run, position: Position) -> tuple[Run, Position]:
    """Return the run at its last good checkpoint, or at its start, with other noise and a smaller learning rate.

    Raise Diverged if the policy is to stop, or if no retries are left.
    """
    if guard.policy == "stop" or position.retries >= guard.retries:
        tried = f" after {position.retries} retries" if position.retries else ""
        advice = (
            "at the start: the energy or the objective is not finite, or its gradient; look for log, division or √ at "
            "0, or too high a rate of the posterior, which steps first"
            if re.search(r"finite .* at iteration 1\b", problem)
            else "try a smaller learning rate, gradient clipping, larger noise, or the guard's policy recover"
        )
        keeper.tell("diverged", step=position.step, problem=f"{problem}; {advice}")
        raise Diverged(f"training diverged{tried}: {problem}; {advice}. {keeper.last_good()}".rstrip())
    run, back = keeper.restore(first)
    retries = position.retries + 1
    rate = run.state.rate * guard.lower ** (retries - back.retries)
    about = {"from": position.step, "to": back.step, "retry": retries, "rate": float(jnp.max(rate))}
    keeper.tell("recovered", problem=problem, **about)
    return run._replace(state=run.state._replace(rate=rate)), back._replace(retries=retries)
