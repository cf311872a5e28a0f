"""The command line. JAX is imported only by a command that computes."""

import sys

import tyro

from vages.cli.benches import bench
from vages.cli.datasets import data
from vages.cli.evaluation import evaluate, inception
from vages.cli.experiments import reproduce
from vages.cli.images import embed, inpaint, interpolate, sample
from vages.cli.training import train

__all__ = [
    "bench",
    "data",
    "embed",
    "evaluate",
    "inception",
    "inpaint",
    "interpolate",
    "main",
    "reproduce",
    "sample",
    "train",
]


def main() -> None:
    """Run `vages …`; errors are one line."""
    try:
        status = tyro.extras.subcommand_cli_from_dict(
            {
                "train": train,
                "sample": sample,
                "interpolate": interpolate,
                "inpaint": inpaint,
                "embed": embed,
                "evaluate": evaluate,
                "inception": inception,
                "data": data,
                "reproduce": reproduce,
                "bench": bench,
            },
            prog="vages",
            description="Energy-based latent variable models: learn, sample and evaluate.",
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except (ValueError, OSError) as error:
        print(f"vages: {error}", file=sys.stderr)
        status = 2
    except ArithmeticError as error:
        from vages.training import Diverged

        if not isinstance(error, Diverged):
            raise
        print(f"vages: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
