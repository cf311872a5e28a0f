"""Rate limits per connection: a token bucket. A connection that does not slow down is closed."""

RATE = 600.0  # units per second: a mouse on a screen of 500 Hz sends 500, of one unit each
BURST = 1200.0  # units that can be saved up
PATIENCE = 500  # messages dropped, without a pause, before the connection is closed


class Bucket:
    """Units accrue at a steady rate up to a maximum; a message that costs more than is available is dropped."""

    def __init__(self, now: float, rate: float = RATE, burst: float = BURST, patience: int = PATIENCE):
        self._rate, self._burst, self._patience = rate, burst, patience
        self._units, self._last, self._dropped = burst, now, 0

    def take(self, cost: float, now: float) -> bool:
        """Pay for a message; return False if it must be dropped."""
        self._units = min(self._burst, self._units + self._rate * (now - self._last))
        self._last = now
        if self._units == self._burst:
            self._dropped = 0  # there was a pause
        if self._units < cost:
            self._dropped += 1
            return False
        self._units -= cost
        return True

    @property
    def exhausted(self) -> bool:
        """Whether so many messages were dropped that the connection must be closed."""
        return self._dropped > self._patience
