"""What reaches a terminal: text whose control characters are escaped, and a stream that survives a hang-up."""

import re
import sys
from contextlib import suppress
from typing import Any

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # controls: ESC, newlines, carriage returns, …
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of text
    "\u200b-\u200d\u2028\u2029\u2060-\u2065\ufeff\ufff9-\ufffb"  # invisible characters and line separators
    "\ud800-\udfff"  # surrogates, which stand for the bytes of a name that is not UTF-8
    "]"
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
    """Standard error; after its terminal or reader has gone, what is written is lost and nothing raises."""

    def __init__(self):
        self._stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # not what shows it above a progress bar

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, if anybody is there to read it."""
        with suppress(OSError, AttributeError):  # or it was closed before the program began
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with suppress(OSError, AttributeError):
            self._stream.flush()
