"""A sweep of one entry by ``depthmup.transfer``, whose runs are trained in stacks."""

import math
from functools import lru_cache, partial
from pathlib import Path

from torch import Tensor

import depthmup
from depthmup.records.finding import Place
from studies.practice.recipe import Recipe
from studies.practice.training import BASE, STEPS, trained

WIDTHS, DEPTHS = (32, 64, 128), (4, 8, 16, 32)
SEEDS, OCTAVES, MOST = 8, 6, 3
"""Seeds and rates of a stack, and how many stacks a size gets at most."""

LOWEST = {"adam": -9, "adamw": -9, "sgd": -7, "muon": -8}
"""The lowest log2 rate of a first stack."""

VERSION = "1"
"""Of what trains: stores of another version are not used."""


@lru_cache(maxsize=256)
def _stack(
    recipe: Recipe, size: tuple[tuple[str, int], ...], optimizer: str, low: float, first: int
) -> Tensor:
    rates = [2.0 ** (low + octave) for octave in range(OCTAVES)]
    return trained(recipe, dict(size), optimizer, rates, range(first, first + SEEDS))


def losses_of(trial: depthmup.Trial, *, recipe: Recipe, first_seed: int) -> list[float]:
    """The losses of a run, of the stack of all rates and seeds that are trained with it."""
    at, lowest = math.log2(trial.lr), LOWEST[trial.optimizer]
    octave = math.floor(at + 1e-6)
    seed = trial.seed + first_seed
    first = seed - seed % SEEDS
    place = (octave - lowest) % OCTAVES
    stack = _stack(
        recipe, tuple(sorted(trial.size.items())), trial.optimizer, round(at - place, 6), first
    )
    losses: list[float] = stack[place, seed - first].tolist()
    return losses


def swept(recipe: Recipe, optimizer: str, *, out: Path, first_seed: int = 0) -> depthmup.Report:
    """One recipe under one optimizer; what the folder holds is not trained again.

    A stack costs the same whichever of its rates are asked for. So all are, and further ones where
    the best of a size is at an end.
    """
    low, high = LOWEST[optimizer], LOWEST[optimizer] + OCTAVES
    model = depthmup.Model(
        train=partial(losses_of, recipe=recipe, first_seed=first_seed),
        version=f"{VERSION} seeds {first_seed} {recipe.changes}",
    )
    for _ in range(MOST):
        design = depthmup.Design(
            base=BASE,
            width=WIDTHS,
            depth=DEPTHS,
            schemes="depth-mup",
            optimizers=optimizer,
            lrs=[2.0**octave for octave in range(low, high)],
            steps=round(STEPS * recipe.steps),
            seeds=SEEDS,
        )
        report = depthmup.transfer(model, design, out=out)
        places = {
            optimum.place
            for study in report.studies
            for optimum in study.windows[-1].transfers[0].optima
        }
        low -= OCTAVES * (Place.LOW_EDGE in places)
        high += OCTAVES * (Place.HIGH_EDGE in places)
        if high - low == len(design.lrs or ()):
            break
    return report
