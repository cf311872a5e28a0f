"""What reaches a terminal: text whose control characters are escaped, and a stream that survives a hang-up."""

import re
import sys
from contextlib import suppress
from typing import Any

# C0 and C1 controls (with ESC, newlines and carriage returns), line separators, characters that change the direction
# of text or are invisible, and the surrogates that stand for the bytes of a name that is not UTF-8
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: object, keep: str = "") -> str:
    """The text on one line, with characters that could deceive or control a terminal as escapes: ESC is \\x1b.

    Characters in `keep` stay as they are.
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), str(text))


def escape_json(text: str) -> str:
    """JSON whose texts hold no such character; a parser reads the same values."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(character: str) -> str:
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")


class StandardError:
    """Standard error, whatever it is now; after the terminal has gone, what is written is lost and nothing raises."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    def write(self, text: str) -> int:
        """Write the text, if anybody is there to read it."""
        with suppress(OSError):
            return sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with suppress(OSError):
            sys.stderr.flush()
