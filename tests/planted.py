"""Stores whose losses follow a law that a test plants, in place of training."""

import math
from array import array

import numpy as np

from depthmup.records import Measurement, Record, Status
from depthmup.sweep import Store
from reproduction import Setting, named
from reproduction.evidence import Reproduction

YES, NO, OPEN = Reproduction.REPRODUCED, Reproduction.NOT_REPRODUCED, Reproduction.UNDECIDABLE

# Windows of one step: everything a window needs, and nothing to average.
SMALL = {"seeds": 3, "steps": 5, "window": 1}


def planted(experiment, path, law):
    """A store in which every cell that an experiment asks for, round by round, has the loss that
    ``law`` gives it at every step: a number, or one for each step; infinite where it diverges."""
    store = Store(path / "results.sqlite")
    for cell in experiment.cells:
        store.add(record(cell, law))
    while missing := experiment.ahead(store).missing:
        for cell in missing:
            store.add(record(cell, law))
    return store


def record(cell, law):
    losses = np.broadcast_to(law(cell), cell.steps)
    finite = bool(np.isfinite(losses).all())
    # The stream of a network that fails is multiplied by every block.
    initial = 1e4 * math.exp(0.15 * cell.network.depth)
    return Record(
        cell=cell,
        status=Status.FINISHED if finite else Status.FAILED,
        losses=array("f", losses if finite else [initial]),
    )


def finding(name, law, **setting):
    """The finding of a claim whose measures have the values that ``law`` gives their settings."""
    (claim,) = named([name])
    experiment = claim.experiment(Setting(**setting))
    with Store(":memory:") as store:
        for measure in experiment.measures:
            store.add(Measurement(task=measure.task, values=law(measure.task.settings)))
        return claim.finding(experiment, store)


def change(cell):
    """log2 of the change of the residual stream per step: the sum over blocks of a multiplier
    times an update of Adam, in muP's units."""
    network = cell.network
    return math.log2(network.depth * network.multiplier * cell.optimizer.lr * network.width)


def diversity(cell):
    """log2 of the part of the stream that is drawn independently by every block, 0 at the base."""
    network = cell.network
    return math.log2(network.multiplier * math.sqrt(network.depth / 8))


def scatter(cell, *place, scale=0.02):
    """What a seed adds at a place, the same for all learning rates."""
    digits = [cell.seed, cell.network.depth, *place]
    return scale * np.random.default_rng(digits).standard_normal()


def residual_law(cell, *, best=0.0, diverse=1.0):
    """A world in which the theory holds: the best change is the same at every depth, more blocks
    and more diverse ones lower the loss, and without a LayerNorm a stream that is multiplied by
    too much is lost."""
    network = cell.network
    if network.multiplier**2 * network.depth > 30 and not network.layer_norm:
        return math.inf
    away = change(cell) - best + 0.4 * diversity(cell) - scatter(cell, 0)
    level = -0.1 * math.log2(network.depth / 8) - 0.7 * diverse * diversity(cell)
    return math.exp(-1 + 0.12 * away**2 + level + scatter(cell, 1, scale=0.01))
