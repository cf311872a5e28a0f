"""What reaches a terminal: text whose control characters are escaped, and a stream that survives a hang-up."""

import json
import sys
import unicodedata
from contextlib import suppress
from typing import Any

# by category: controls, formats (such as the direction of text), surrogates (bytes that are not UTF-8), line separators
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # letters and marks that show nothing
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: object, keep: str = "") -> str:
    """The text on one line, with characters that could deceive or control a terminal as escapes: ESC is \\x1b.

    Characters in `keep` stay as they are.
    """
    return "".join(_escaped(c) if _is_unsafe(c) and c not in keep else c for c in str(text))


def escape_json(text: str) -> str:
    """JSON whose texts hold no such character; a parser reads the same values."""
    return "".join(json.dumps(c)[1:-1] if _is_unsafe(c) and c != "\n" else c for c in text)


def _is_unsafe(c: str) -> bool:
    selector = "\ufe00" <= c <= "\ufe0f" or "\U000e0100" <= c <= "\U000e01ef"
    return selector or c in _INVISIBLE or unicodedata.category(c) in _UNSAFE


def _escaped(character: str) -> str:
    number = ord(character)
    digits = f"\\x{number:02x}" if number < 2**8 else f"\\u{number:04x}" if number < 2**16 else f"\\U{number:08x}"
    return _SHORT.get(character, digits)


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
