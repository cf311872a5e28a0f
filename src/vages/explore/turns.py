"""How many chains run at a time: one a page, and a few in all."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vages.runs.watching import Chain, Snapshot

T = TypeVar("T")
CHAINS = 2  # in all: each keeps the processor or the accelerator busy


class Busy(Exception):
    """There is no turn left; the message says what to do."""


class Turns:
    """The threads that chains run in, shared by all pages."""

    def __init__(self, most: int = CHAINS):
        self.workers = ThreadPoolExecutor(most + 1, thread_name_prefix="vages-explore")  # one for short work
        self.most, self.taken = most, 0

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """The value of a function, computed in a thread while the page answers."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, function, *args)

    def close(self) -> None:
        """Take no further work."""
        self.workers.shutdown(wait=False, cancel_futures=True)


class Player:
    """The one chain of a page. A new one takes the place of the old, once that has come to its next snapshot."""

    def __init__(self, turns: Turns):
        self._turns, self._chain, self._running = turns, None, asyncio.Lock()

    @property
    def playing(self) -> bool:
        """Whether a chain runs that nobody has stopped."""
        return self._running.locked() and self._chain is not None and not self._chain.stopped

    def stop(self) -> None:
        """End the chain, where there is one."""
        if self._chain is not None:
            self._chain.stop()

    async def play(self, chain: Chain, show: Callable[[Snapshot], object], pause: float = 0.0) -> None:
        """Show a chain's snapshots as they come, `pause` seconds apart or more; `Busy` where all turns are taken.

        It returns when the chain has ended, was stopped or replaced.
        """
        self.stop()
        self._chain = chain
        async with self._running:
            if chain.stopped:
                return  # another came while this one waited
            if self._turns.taken >= self._turns.most:
                raise Busy(f"{self._turns.most} chains are running on other pages; try again when one has ended")
            self._turns.taken += 1
            try:
                snapshots = iter(chain)
                while (snapshot := await self._turns.run(_next, snapshots)) is not None and not chain.stopped:
                    show(snapshot)
                    await asyncio.sleep(pause)
            finally:
                self._turns.taken -= 1


def _next(snapshots: Iterator[Snapshot]) -> Snapshot | None:
    return next(snapshots, None)
