"""Experiments of the paper, one file per figure or table, each with settings, a run and claims."""

from vages.app.experiments.catalogue import EXPERIMENTS, Entry
from vages.app.experiments.claims import Claim, Outcome
from vages.app.experiments.reproduce import Reproduction, reproduce

__all__ = ["EXPERIMENTS", "Claim", "Entry", "Outcome", "Reproduction", "reproduce"]
