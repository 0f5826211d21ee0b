"""Section 8.1 on small networks, in planted worlds, and with the matrix on the wrong side."""

from dataclasses import replace

import pytest
from planted import NO, OPEN, YES, finding

from depthmup.records import Cell
from depthmup.sweep import InProcess, Store
from reproduction import Setting, named, reproduce
from reproduction.claims import gradient_diversity
from reproduction.claims.gradient_diversity import NETWORKS, cosines_of

SMALL = {"width": 32, "depths": (8, 16, 32), "seeds": 2, "steps": 30, "window": 30}


def found(path):
    (claim,) = named(["sec8.1"])
    experiment = claim.experiment(Setting(sizes=SMALL))
    with Store(path / "results.sqlite") as store:
        reproduce([(claim, experiment)], store=store, executor=InProcess())
        return claim.finding(experiment, store)


@pytest.mark.long
def test_small_networks_agree_with_the_theory(tmp_path):
    assert found(tmp_path).verdict is YES


@pytest.mark.long
@pytest.mark.parametrize(
    ("title", "changes"),
    [("relu(W x)", {"nonlinearity": "pre"}), ("abs(W x)", {"activation": "relu"})],
)
def test_blocks_built_otherwise_are_found_out(title, changes, tmp_path, monkeypatch):
    wrong = tuple(replace(n, **changes) if n.title == title else n for n in NETWORKS)
    monkeypatch.setattr(gradient_diversity, "NETWORKS", wrong)
    assert found(tmp_path).verdict is NO


def planted(cosine):
    def law(settings):
        value = cosine(Cell.from_json(settings["cell"]))
        cosines = dict.fromkeys(("raw", "centred", "far", "batch"), value)
        return {str(t): cosines for t in settings["steps"]}

    return finding("sec8.1", law, sizes=SMALL)


def theory(described):
    network = described.network
    kind = (network.activation, network.nonlinearity)
    return {("relu", "post"): 0.5, ("abs", "post"): 0.0}.get(kind, 1.0) + 0.01 * described.seed


def test_planted_cosines_decide():
    assert planted(theory).verdict is YES
    assert planted(lambda c: 1.0 - theory(c)).verdict is NO
    assert planted(lambda c: float("nan")).verdict is OPEN


def test_a_network_of_one_example_has_the_cosine_of_relu():
    (claim,) = named(["sec8.1"])
    experiment = claim.experiment(Setting(sizes=SMALL | {"width": 128}))
    of = [
        m.task.settings
        for m in experiment.measures
        if '"activation":"relu"' in m.task.settings["cell"]
        and '"nonlinearity":"post"' in m.task.settings["cell"]
    ]
    values = cosines_of(cell=of[-1]["cell"], steps=(0,))["0"]
    # 31 pairs of width 128 for eight examples: known to 0.02 or so, and 1/L away from the limit.
    assert abs(values["raw"] - 0.5) < 0.08
