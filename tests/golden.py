"""Compares the bits of what two checkouts compute: `python tests/golden.py WORKTREE [CASE …]`.

WORKTREE is a checkout of another commit. Every case runs with the code of this checkout and with that of WORKTREE, in
one process each. A case is a function that returns named arrays: the metrics of each training step and the final state,
or samples or estimates. One line per case says that all arrays are equal, or which differs first. CASE is a name or a
pattern such as 'deep-*'. The exit status is 1 where there is a difference that `DIFFERENCES` does not declare.

Only an adapter knows the API: `tests/golden_cases.py` of each checkout, or `tests/golden_0_1.py` of this one where the
other has none. An adapter is a self-contained module with `CASES`, a dict of functions without arguments.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
TESTS = Path(__file__).resolve().parent


class Declared(NamedTuple):
    """Why a case differs from earlier commits, and the largest relative difference that is allowed."""

    reason: str
    relative: float


# By case name or pattern; the first match counts.
_NOISE = Declared("every posterior step, part of an objective and example has a key of its own: other noise", np.inf)
DIFFERENCES: dict[str, Declared] = dict.fromkeys(
    ("grbm-*", "energy-*", "linear-*", "deep-*", "gibbs", "likelihood", "critic*", "stein-tests"), _NOISE
)


class Result(NamedTuple):
    """Return the report on a case, and the size of the difference: None if all bits are equal."""

    text: str
    relative: float | None


def compare(here: Arrays, there: Arrays) -> Result:
    """The first array that differs, and the largest relative difference of all."""
    first, largest, differing = None, 0.0, 0
    for name, old_name in pairs(here, there):
        new, old = here.get(name), there.get(old_name)
        if new is None or old is None:
            first, largest = first or f"{name or old_name} is only {'there' if new is None else 'here'}", np.inf
        elif new.dtype != old.dtype or new.shape != old.shape:
            first = first or f"{name} is {new.dtype}{list(new.shape)}, was {old.dtype}{list(old.shape)}"
            largest = np.inf
        elif new.tobytes() != old.tobytes():
            first, largest = first or first_entry(name, new, old), max(largest, relative_difference(new, old))
        else:
            continue
        differing += 1
    if first is None:
        return Result(f"equal ({len(here)} arrays)", None)
    text = f"{differing} of {len(here)} arrays differ, by {largest:.2g} at most; first {first}"
    return Result(text, largest)


def pairs(here: Arrays, there: Arrays) -> Iterator[tuple[str, str]]:
    """Names of arrays to compare: the same name where both have it, the rest in order; "" where one side has none."""
    renamed = iter([name for name in there if name not in here])
    yield from ((name, name if name in there else next(renamed, "")) for name in here)
    yield from (("", name) for name in renamed)


def first_entry(name: str, new: np.ndarray, old: np.ndarray) -> str:
    """The first entry whose bits differ."""
    bits = [np.ascontiguousarray(x).reshape(-1, 1).view(np.uint8).reshape(x.size, -1) for x in (new, old)]
    entry = int(np.argmax((bits[0] != bits[1]).any(axis=1)))
    index = ", ".join(str(i) for i in np.unravel_index(entry, new.shape))
    return f"{name}[{index}] is {new.flat[entry]!s}, was {old.flat[entry]!s}"


def relative_difference(new: np.ndarray, old: np.ndarray) -> float:
    """The largest difference of an entry, relative to the largest entry of the array; infinite where one is NaN."""
    a, b = (x.astype(np.float64).reshape(-1) for x in (new, old))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    if not np.isfinite([a[~same], b[~same]]).all():
        return np.inf
    scale = max(np.abs(x[np.isfinite(x)]).max() for x in (a, b))
    return float(np.abs(a[~same] - b[~same]).max() / scale)


def matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def run_cases(source: Path, adapter: Path, folder: Path, patterns: list[str], side: int) -> None:
    """Runs the cases of an adapter in this process: one .npz file per case, or a .txt file with the error.

    Most of the time is compilation. Both sides share a compilation cache, so an unchanged program is compiled once. The
    second side runs the cases in reverse order to find programs that the first side has compiled.
    """
    if hasattr(os, "sched_setaffinity"):  # the number of threads determines the order of summation
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[side % len(cores)]})
    import vages

    if not Path(vages.__file__).resolve().is_relative_to(source):
        raise ImportError(f"vages: expected the package in {source}, got {vages.__file__}; check PYTHONPATH")
    cases = [(name, case) for name, case in load_cases(adapter).items() if matches(name, patterns)]
    for name, case in cases[::-1] if side else cases:
        try:
            arrays = {key: np.asarray(value) for key, value in case().items()}
            odd = [f"{key} ({value.dtype})" for key, value in arrays.items() if value.dtype.kind not in "biuf"]
            if odd:
                raise TypeError(f"arrays: expected numbers that NumPy can save, got {', '.join(odd)}; convert them")
            numbered: Any = {f"{i} {key}": value for i, (key, value) in enumerate(arrays.items())}
            np.savez(folder / f"{name}.npz", **numbered)
        except Exception as error:
            (folder / f"{name}.txt").write_text(f"{type(error).__name__}: {error}")


def load_cases(adapter: Path) -> dict[str, Callable[[], Arrays]]:
    spec = importlib.util.spec_from_file_location(adapter.stem, adapter)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CASES


def start(checkout: Path, folder: Path, patterns: list[str], side: int) -> subprocess.Popen[bytes]:
    """A process that runs the cases with the code of a checkout."""
    adapter = checkout / "tests" / "golden_cases.py"
    adapter = adapter if adapter.exists() else TESTS / "golden_0_1.py"
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "PYTHON"))}
    environment |= {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONPATH": str(checkout / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # WORKTREE is not modified
    }
    paths = (str(checkout / "src"), str(adapter), str(folder))
    program = f"""
from pathlib import Path
from golden import run_cases
run_cases(*map(Path, {paths!r}), {patterns!r}, {side})
"""
    return subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=TESTS)


def read_results(folder: Path) -> dict[str, Arrays | str]:
    """Arrays by case, or the error of a case."""
    results: dict[str, Arrays | str] = {path.stem: path.read_text() for path in folder.glob("*.txt")}
    for path in folder.glob("*.npz"):
        with np.load(path) as arrays:
            results[path.stem] = {key.partition(" ")[2]: arrays[key] for key in arrays.files}
    return results


def result_of(here: Arrays | str, there: Arrays | str) -> Result:
    for side, result in (("here", here), ("there", there)):
        if isinstance(result, str):
            return Result(f"failed {side}: {result.splitlines()[0]}", np.inf)
    assert not isinstance(here, str)
    assert not isinstance(there, str)
    return compare(here, there)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worktree", type=Path, metavar="WORKTREE")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--strict", action="store_true", help="declared differences count: WORKTREE has them")
    arguments = parser.parse_args()
    checkouts = (TESTS.parent, arguments.worktree.resolve())
    for checkout in checkouts:
        if not (checkout / "src" / "vages").is_dir():
            parser.error(f"WORKTREE: expected a checkout with src/vages, got {checkout}; make one with git worktree")
    began, undeclared = time.perf_counter(), 0
    with tempfile.TemporaryDirectory(prefix="vages-golden-") as temporary:
        folders = [Path(temporary) / side for side in ("here", "there")]
        sides = enumerate(zip(checkouts, folders, strict=True))
        processes = [start(checkout, folder, arguments.cases, side) for side, (checkout, folder) in sides]
        statuses = [process.wait() for process in processes]
        if any(statuses):
            print("A process failed; its error is above.", file=sys.stderr)
            return 2
        here, there = map(read_results, folders)
    for name in sorted({*here, *there}):
        if name not in there:
            print(f"{name}: not compared, it is only here")
            continue
        result = result_of(here[name], there[name]) if name in here else Result("it is only there", np.inf)
        fitting = (found for pattern, found in DIFFERENCES.items() if fnmatchcase(name, pattern))
        declared = None if arguments.strict else next(fitting, None)
        note = ""
        if result.relative is not None:
            allowed = declared is not None and result.relative <= declared.relative
            undeclared += not allowed
            note = "" if declared is None else f" (declared up to {declared.relative:g}: {declared.reason})"
            note = f"{note}{'' if allowed else ' UNDECLARED'}"
        elif declared is not None:
            note = " (a difference is declared)"
        print(f"{name}: {result.text}{note}")
    compared = len({*here} & {*there})
    print(f"{compared} cases compared in {time.perf_counter() - began:.0f} s, {undeclared} undeclared differences")
    return 1 if undeclared or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
