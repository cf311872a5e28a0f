"""The paper, one file a figure or table: settings, run, claims."""

from vages.experiments.catalogue import EXPERIMENTS, Entry
from vages.experiments.claims import Claim, Outcome
from vages.experiments.reproduce import Reproduction, reproduce

__all__ = ["EXPERIMENTS", "Claim", "Entry", "Outcome", "Reproduction", "reproduce"]
