"""Buttons that start and stop chains, and their progress."""

from nicegui import ui

from vages.app.explore.worker_pool import Player


class ChainControls:
    """Start and stop buttons, a progress bar, and a line of text."""

    def __init__(self, player: Player, start: str):
        self._player = player
        with ui.row().classes("buttons"):
            self.start = ui.button(start).props("unelevated no-caps")
            self.stop = ui.button("Stop", on_click=player.stop).props("outline no-caps")
        self._bar = ui.linear_progress(0.0, show_value=False, size="4px")
        self._bar.props('aria-label="Steps done" instant-feedback')
        self._told = ui.label("").classes("told").props("role=status")
        self.stop.disable()

    def begin(self) -> None:
        """Prepare for chains that are about to start."""
        self.stop.enable()
        self.tell("Compiling if necessary…")

    def at(self, step: int, steps: int, text: str) -> None:
        """Show the current step of the chains."""
        self._bar.set_value(step / steps)
        self.tell(text)

    def end(self, text: str) -> None:
        """Show that chains have ended or were stopped."""
        if not self._player.playing:
            self.stop.disable()
        self.tell(text)

    def tell(self, text: str) -> None:
        """Show a line of text."""
        self._told.set_text(text)
