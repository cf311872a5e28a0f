"""Terminal output: escaping of control characters, and a standard error that survives a hang-up."""

import json
import sys
import unicodedata
from contextlib import suppress
from typing import Any

# categories: controls, formats (such as text direction), surrogates (bytes that are not UTF-8), line separators
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # invisible letters and marks
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: object, keep: str = "") -> str:
    """Return the text on one line, escaping characters that could deceive or control a terminal: ESC is \\x1b.

    Characters in `keep` are not escaped.
    """
    return "".join(_escaped(c) if _is_unsafe(c) and c not in keep else c for c in str(text))


def escape_json(text: str) -> str:
    """Escape the same characters in the strings of a JSON text. Its parsed values do not change."""
    return "".join(json.dumps(c)[1:-1] if _is_unsafe(c) and c != "\n" else c for c in text)


def _is_unsafe(c: str) -> bool:
    selector = "\ufe00" <= c <= "\ufe0f" or "\U000e0100" <= c <= "\U000e01ef"
    return selector or c in _INVISIBLE or unicodedata.category(c) in _UNSAFE


def _escaped(character: str) -> str:
    number = ord(character)
    digits = f"\\x{number:02x}" if number < 2**8 else f"\\u{number:04x}" if number < 2**16 else f"\\U{number:08x}"
    return _SHORT.get(character, digits)


class StandardError:
    """Standard error that discards output, instead of raising, once its terminal or reader has gone."""

    def __init__(self):
        self._stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # not Rich's proxy for progress bars

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, or discard it if the stream is gone."""
        with suppress(OSError, AttributeError):  # AttributeError: closed before the program began
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with suppress(OSError, AttributeError):
            self._stream.flush()
