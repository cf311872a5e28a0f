"""Training loops: compiled chunks, progress, logs, run folders."""

from vages.training.cost import Job, seconds_per_iteration, step_bytes
from vages.training.fit import Diverged, Fitted, fit, init_seeds, seed_keys
from vages.training.folder import RunFolder, numbered_folder
from vages.training.program import compile_chunk

__all__ = [
    "Diverged",
    "Fitted",
    "Job",
    "RunFolder",
    "compile_chunk",
    "fit",
    "init_seeds",
    "numbered_folder",
    "seconds_per_iteration",
    "seed_keys",
    "step_bytes",
]
