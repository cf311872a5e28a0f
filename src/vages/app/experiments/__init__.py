"""The paper, one file per figure or table: settings, run, claims."""

from vages.app.experiments.catalogue import EXPERIMENTS, Entry
from vages.app.experiments.claims import Claim, Outcome
from vages.app.experiments.reproduce import Reproduction, reproduce

__all__ = ["EXPERIMENTS", "Claim", "Entry", "Outcome", "Reproduction", "reproduce"]
