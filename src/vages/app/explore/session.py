"""The state of one open page: the chosen image, and the running chain."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
from nicegui import ui

from vages.app.explore.worker_pool import Busy, Player, Seen, Turns, Watched
from vages.app.runs.playground import Length, Playground
from vages.app.runs.watching import Chain, Flowed, Snapshot


class Visit:
    """The image, its posterior mean, and the length of chains; registered functions are called for a new image."""

    def __init__(self, playground: Playground, turns: Turns):
        self.playground, self.turns, self.player = playground, turns, Player(turns)
        self.length: Length = "full"
        self.panel = ""  # the name of the open panel
        self.image = playground.images[0]
        self.mean: np.ndarray | None = None
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        self._wanted: np.ndarray | None = None  # the image that was chosen last
        self._choosing = asyncio.Lock()

    def on_image(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Register a function to be called whenever the image changes."""
        self._listeners.append(listener)

    async def choose(self, image: np.ndarray) -> None:
        """Choose an image; of several concurrent calls, the last takes effect."""
        self.player.stop()
        self._wanted = image
        async with self._choosing:
            if self._wanted is not image or self.player.gone:
                return
            mean = await self.turns.run(self.playground.mean, image) if self.playground.run.has_latents else None
            self.image, self.mean = image, mean
        for listener in self._listeners:
            await listener()

    async def play(
        self, make: Callable[[], Chain | Flowed], show: Callable[[Snapshot], object], pause: float = 0.0
    ) -> bool:
        """Run a chain; on an error, show it and return False."""
        return await play(self.player, make, show, pause)


async def play(
    player: Player, make: Callable[[], Watched[Seen]], show: Callable[[Seen], object], pause: float = 0.0
) -> bool:
    """Show snapshots as they come; on an error, show it and return False."""
    try:
        await player.play(make, show, pause)
    except (Busy, RuntimeError, ValueError) as error:  # out of device memory, or a model that cannot be sampled
        tell(str(error).partition("\n")[0])
        return False
    return True


def tell(message: str) -> None:
    """Show a message at the bottom of the page, for screen readers too."""
    ui.notify(message, color="grey-10", multi_line=True, timeout=8000, close_button="Close")
