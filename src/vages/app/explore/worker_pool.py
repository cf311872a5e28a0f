"""Limits how many chains run at a time: one per page, and a few in total."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")
Seen = TypeVar("Seen")
SeenOut = TypeVar("SeenOut", covariant=True)
CHAINS = 2  # in total; each keeps the processor or the accelerator busy


class Watched(Protocol[SeenOut]):
    """A computation that runs while it is iterated over: a `Chain` with its snapshots, or `Draws` with their frames."""

    def stop(self) -> None:
        """Stop it; may be called from any thread."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether it was stopped."""
        ...

    def __iter__(self) -> Iterator[SeenOut]: ...


class Busy(Exception):
    """All turns are taken; the message says what to do."""


class Turns:
    """The threads that chains run in, shared by all pages."""

    def __init__(self, most: int = CHAINS):
        self.workers = ThreadPoolExecutor(most + 1, thread_name_prefix="vages-explore")  # one for short work
        self.most, self.taken = most, 0

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function in a thread and return its value, while the page stays responsive."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, function, *args)

    def close(self) -> None:
        """Accept no further work."""
        self.workers.shutdown(wait=False, cancel_futures=True)


class Player:
    """The one chain of a page. A new chain replaces the old one when the old one reaches its next snapshot.

    `gone` is set while the page is closed: its chain stops, and no other starts.
    """

    def __init__(self, turns: Turns):
        self._turns, self._running = turns, asyncio.Lock()
        self._chain: Watched[object] | None = None
        self._wanted: object | None = None  # identifies the call of `play` that has not been stopped
        self.gone = False

    @property
    def playing(self) -> bool:
        """Whether a chain is running and was not stopped."""
        return self._running.locked() and self._wanted is not None

    def stop(self) -> None:
        """Stop the chain, if there is one."""
        self._wanted = None
        if self._chain is not None:
            self._chain.stop()

    def come(self) -> None:
        """Let chains start, as the page is open."""
        self.gone = False

    def leave(self) -> None:
        """Stop the chain, and start no other until the page is open again."""
        self.gone = True
        self.stop()

    async def play(self, make: Callable[[], Watched[Seen]], show: Callable[[Seen], object], pause: float = 0.0) -> None:
        """Show a chain's snapshots as they come, at least `pause` seconds apart; raise `Busy` if all turns are taken.

        It returns when the chain has ended, was stopped or replaced. The chain is created when its turn comes: of
        several concurrent calls, only the last creates one.
        """
        self.stop()
        if self.gone:
            return
        wanted = self._wanted = object()
        async with self._running:
            if self._wanted is not wanted:
                return  # replaced while it waited
            if self._turns.taken >= self._turns.most:
                self._wanted = None
                raise Busy(f"{self._turns.most} other pages are drawing; try again when one is done")
            self._turns.taken += 1
            try:
                self._chain = chain = await self._turns.run(make)
                if self._wanted is not wanted:
                    return
                snapshots = iter(chain)
                following = lambda: next(snapshots, None)
                while (snapshot := await self._turns.run(following)) is not None and not chain.stopped:
                    show(snapshot)
                    await asyncio.sleep(pause)
            finally:
                self._chain = None
                self._turns.taken -= 1
