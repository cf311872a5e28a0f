"""Pickled values without unpickling: the instructions are interpreted here, and no name in them is ever looked up.

What a pickle may build is fixed: numbers, texts, tuples, lists, dictionaries, and records (`Named`, `Call`, `Instance`,
`Persistent`) of what Python would have imported, called, made or asked for. The reader of a format decides what these
mean, and refuses the rest.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from vages.files.errors import BadFile

_MAX_INSTRUCTIONS = 200_000
_CODES = {  # the instructions that are known, and what follows them; any other is refused
    b"\x80": ("PROTO", "<B"),
    b"\x95": ("FRAME", "<Q"),
    b".": ("STOP", ""),
    b"(": ("MARK", ""),
    b"N": ("NONE", ""),
    b"\x88": ("NEWTRUE", ""),
    b"\x89": ("NEWFALSE", ""),
    b"J": ("BININT", "<i"),
    b"K": ("BININT", "<B"),
    b"M": ("BININT", "<H"),
    b"\x8a": ("LONG", "<B"),
    b"G": ("BINFLOAT", ">d"),
    b"X": ("UNICODE", "<I"),
    b"\x8c": ("UNICODE", "<B"),
    b")": ("EMPTY_TUPLE", ""),
    b"]": ("EMPTY_LIST", ""),
    b"}": ("EMPTY_DICT", ""),
    b"t": ("TUPLE", ""),
    b"\x85": ("TUPLE1", ""),
    b"\x86": ("TUPLE2", ""),
    b"\x87": ("TUPLE3", ""),
    b"a": ("APPEND", ""),
    b"e": ("APPENDS", ""),
    b"s": ("SETITEM", ""),
    b"u": ("SETITEMS", ""),
    b"q": ("PUT", "<B"),
    b"r": ("PUT", "<I"),
    b"\x94": ("MEMOIZE", ""),
    b"h": ("GET", "<B"),
    b"j": ("GET", "<I"),
    b"c": ("GLOBAL", "lines"),
    b"\x93": ("STACK_GLOBAL", ""),
    b"R": ("REDUCE", ""),
    b"\x81": ("NEWOBJ", ""),
    b"b": ("BUILD", ""),
    b"Q": ("BINPERSID", ""),
}


@dataclass(frozen=True)
class Named:
    """What Python would have imported, 'module name'."""

    name: str


@dataclass(frozen=True, eq=False)
class Call:
    """What Python would have called, and with what."""

    function: str
    arguments: tuple[Any, ...]


@dataclass(eq=False)
class Instance:
    """An object that Python would have made, and its attributes."""

    kind: str
    state: Any = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Persistent:
    """Something kept outside of the pickle, by its key."""

    key: Any


def parse_pickle(file: BytesIO, name: str, allowed: Callable[[str], bool]) -> Any:
    """The value of the pickle that begins where the file stands, which is left behind its end; `name` is for errors.

    Names other than the `allowed` ones ('module name') are refused as soon as they are seen.
    """
    machine = _Machine(allowed)
    try:
        for code, argument in _instructions(file):
            if code == "STOP":
                (value,) = machine.stack
                return value
            machine.do(code, argument)
    except _Refused as error:
        raise BadFile(f"{name}: expected arrays alone, got {error}; it is not read, whatever it would do") from None
    except (ValueError, LookupError, TypeError, struct.error):
        pass
    raise BadFile(f"{name}: expected a pickle of arrays, got a damaged one; get the file again")


class _Refused(Exception):
    """What was found in a pickle that no file of arrays has in it."""


def _instructions(file: BytesIO) -> Iterator[tuple[str, Any]]:
    """Names and arguments, one by one."""
    for _ in range(_MAX_INSTRUCTIONS):
        code = file.read(1)
        if not code:
            raise ValueError
        if code not in _CODES:
            raise _Refused(f"the instruction {code!r}")
        name, form = _CODES[code]
        if form == "lines":
            yield name, " ".join(_line(file) for _ in range(2))
            continue
        (argument,) = struct.unpack(form, file.read(struct.calcsize(form))) if form else (None,)
        if name in ("UNICODE", "LONG"):
            content = file.read(argument)
            if len(content) != argument:
                raise ValueError
            argument = content.decode() if name == "UNICODE" else int.from_bytes(content, "little", signed=True)
        yield name, argument
    raise _Refused(f"more than {_MAX_INSTRUCTIONS} instructions")


def _line(file: BytesIO) -> str:
    line = file.readline()
    if not line.endswith(b"\n"):
        raise ValueError
    return line[:-1].decode()


class _Machine:
    """The stack and the memo of a pickle; a wrong instruction ends in some LookupError, TypeError or ValueError."""

    def __init__(self, allowed: Callable[[str], bool]):
        self.allowed = allowed
        self.stack: list[Any] = []
        self.marks: list[int] = []  # where on the stack tuples, lists and items begin
        self.memo: dict[int, Any] = {}

    def do(self, code: str, argument: Any) -> None:
        """Carry out one instruction."""
        stack = self.stack
        match code:
            case "PROTO" | "FRAME":
                return
            case "MARK":
                self.marks.append(len(stack))
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[code])
            case "BININT" | "LONG" | "BINFLOAT" | "UNICODE":
                stack.append(argument)
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                stack.append({"EMPTY_TUPLE": (), "EMPTY_LIST": [], "EMPTY_DICT": {}}[code])
            case "TUPLE":
                stack.append(tuple(self._marked()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._popped(int(code[-1]))))
            case "APPEND":
                (item,) = self._popped(1)
                _a(list, self._top()).append(item)
            case "APPENDS":
                items = self._marked()
                _a(list, self._top()).extend(items)
            case "SETITEM":
                items = self._popped(2)
                _set(self._top(), items)
            case "SETITEMS":
                items = self._marked()
                _set(self._top(), items)
            case "PUT":
                self.memo[argument] = self._top()
            case "MEMOIZE":
                self.memo[len(self.memo)] = self._top()
            case "GET":
                stack.append(self.memo[argument])
            case "GLOBAL" | "STACK_GLOBAL":
                name = argument if code == "GLOBAL" else " ".join(_a(str, part) for part in self._popped(2))
                if not self.allowed(name):
                    raise _Refused(f"the Python name {name[:80]!r}")
                stack.append(Named(name))
            case "REDUCE":
                function, arguments = self._popped(2)
                # an ordered dictionary is filled by instructions that follow
                name, arguments = _a(Named, function).name, _a(tuple, arguments)
                stack.append({} if name == "collections OrderedDict" and not arguments else Call(name, arguments))
            case "NEWOBJ":
                kind, arguments = self._popped(2)
                if arguments != ():
                    raise ValueError
                stack.append(Instance(_a(Named, kind).name))
            case "BUILD":
                (state,) = self._popped(1)
                target = self._top()
                if isinstance(target, Instance):
                    target.state = state
                elif not isinstance(target, dict):  # attributes of a dictionary are remarks
                    raise ValueError
            case "BINPERSID":
                (key,) = self._popped(1)
                stack.append(Persistent(key))
            case _:
                raise ValueError

    def _top(self) -> Any:
        return self._above(1)[0]

    def _popped(self, count: int) -> list[Any]:
        items = self._above(count)
        del self.stack[-count:]
        return items

    def _marked(self) -> list[Any]:
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def _above(self, count: int) -> list[Any]:
        """The last items, which must lie above the last mark."""
        if len(self.stack) - count < (self.marks[-1] if self.marks else 0):
            raise ValueError
        return self.stack[-count:]


def _a(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _set(target: Any, items: list[Any]) -> None:
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) not in (str, int):
            raise TypeError
        _a(dict, target)[key] = value
