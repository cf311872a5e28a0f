"""JSON objects without duplicate names, non-finite numbers or nesting that would exhaust the stack."""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from vages.storage.errors import BadFile, Unexpected, read_bytes

_MAX_DEPTH = 64
_MAX_DIGITS = 4300  # the most that Python converts


def read_json(path: Path, limit: int) -> dict[str, Any]:
    """Read the only object in a file of at most `limit` bytes."""
    return parse_json(read_bytes(path, limit), str(path))


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Parse the only object in UTF-8 bytes, whose strings are valid Unicode. `name` is for the error."""
    try:
        value = json.loads(
            content.decode(), object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite, parse_int=_whole
        )
        _check(value)
    except (ValueError, RecursionError) as error:
        raise BadFile(
            f"{name}: expected a JSON object, got {_reason(error)}; is it the right file, and whole?"
        ) from error
    if not isinstance(value, dict):
        raise BadFile(f"{name}: expected a JSON object, got {type(value).__name__}; is it the right file?")
    return value


def _reason(error: Exception) -> str:
    """Describe what was found, from the parser's error."""
    match error:
        case json.JSONDecodeError():
            return f"text that is not JSON in line {error.lineno}, column {error.colno}"
        case UnicodeDecodeError():
            return f"bytes that are not UTF-8 at {error.start}"
        case UnicodeEncodeError():
            return "a text that is not Unicode"
        case RecursionError():
            return "nesting too deep"
        case Unexpected():
            return str(error)
    return "something else"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(result := dict(pairs)) != len(pairs):
        raise Unexpected("a name that stands twice")
    return result


def _no_number(text: str) -> NoReturn:
    raise Unexpected(f"{text}, which is not a JSON number")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise Unexpected(f"{text:.40}, which is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise Unexpected(f"a number of {len(text)} digits")
    return int(text)


def _check(value: Any) -> None:
    """Check depth and strings without recursion. A lone surrogate raises UnicodeEncodeError, a ValueError."""
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        for item in level:
            for text in item if isinstance(item, dict) else [item] if isinstance(item, str) else []:
                text.encode()
        containers = [item for item in level if isinstance(item, dict | list)]
        level = [inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)]
        if not level:
            return
    raise RecursionError
