"""Learners and the training loop: compiled chunks, callbacks, logs, checkpoints, run folders."""

from vages.training.cluster import check_same, join_cluster
from vages.training.cost import Cost, Job, iteration_costs, seconds_per_iteration, step_bytes
from vages.training.devices import by_writer, check_batch, data_mesh, is_writer
from vages.training.fit import Fitted, fit
from vages.training.folder import RunFolder, numbered_folder
from vages.training.guard import Diverged, Guard
from vages.training.learner import Learner, LearnerState
from vages.training.learner_record import LearnerWarning
from vages.training.policy import Checkpoints
from vages.training.program import compile_chunk
from vages.training.save import load, save
from vages.training.scale import ScaleWarning
from vages.training.seeds import init_seeds, make_seeds, one_seed, seed_keys

__all__ = [
    "Checkpoints",
    "Cost",
    "Diverged",
    "Fitted",
    "Guard",
    "Job",
    "Learner",
    "LearnerState",
    "LearnerWarning",
    "RunFolder",
    "ScaleWarning",
    "by_writer",
    "check_batch",
    "check_same",
    "compile_chunk",
    "data_mesh",
    "fit",
    "init_seeds",
    "is_writer",
    "iteration_costs",
    "join_cluster",
    "load",
    "make_seeds",
    "numbered_folder",
    "one_seed",
    "save",
    "seconds_per_iteration",
    "seed_keys",
    "step_bytes",
]
