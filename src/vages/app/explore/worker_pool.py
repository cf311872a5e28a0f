"""Limits how many chains run at a time: one per page, and a few in total."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")
Seen = TypeVar("Seen")
SeenOut = TypeVar("SeenOut", covariant=True)
CHAINS = 2  # in all: each keeps the processor or the accelerator busy


class Watched(Protocol[SeenOut]):
    """What runs while it is iterated over: a `Chain` with its snapshots, or `Draws` with their frames."""

    def stop(self) -> None:
        """End it; any thread may call this."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether it was ended."""
        ...

    def __iter__(self) -> Iterator[SeenOut]: ...


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
    """The one chain of a page. A new one takes the place of the old, once that has come to its next snapshot.

    `gone` is set while the page is closed: its chain stops, and no other starts.
    """

    def __init__(self, turns: Turns):
        self._turns, self._running = turns, asyncio.Lock()
        self._chain: Watched[object] | None = None
        self._wanted: object | None = None  # identifies the call of `play` that has not been stopped
        self.gone = False

    @property
    def playing(self) -> bool:
        """Whether a chain runs that nobody has stopped."""
        return self._running.locked() and self._wanted is not None

    def stop(self) -> None:
        """End the chain, where there is one."""
        self._wanted = None
        if self._chain is not None:
            self._chain.stop()

    def come(self) -> None:
        """Let chains start: the page is open."""
        self.gone = False

    def leave(self) -> None:
        """End the chain, and start no other until the page comes back."""
        self.gone = True
        self.stop()

    async def play(self, make: Callable[[], Watched[Seen]], show: Callable[[Seen], object], pause: float = 0.0) -> None:
        """Show a chain's snapshots as they come, `pause` seconds apart or more; `Busy` where all turns are taken.

        It returns when the chain has ended, was stopped or replaced. The chain is made when its turn has come: of many
        that come at once, only the last is made.
        """
        self.stop()
        if self.gone:
            return
        wanted = self._wanted = object()
        async with self._running:
            if self._wanted is not wanted:
                return  # another came while this one waited
            if self._turns.taken >= self._turns.most:
                self._wanted = None
                raise Busy(f"{self._turns.most} chains are running on other pages; try again when one has ended")
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
