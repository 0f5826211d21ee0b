"""Gradient diversity: how alike the gradients of neighbouring blocks are, Section 8.1.

The gradient of a block's matrix is (phi'(h) * d) x^T, and x and d change little from one block to
the next. So for one example, wide and deep, the cosine of neighbouring gradients is that of phi'(h)
at independent h:

    E[phi'] ^ 2 / E[phi'^2]  =  1 (linear),  1/2 (relu),  0 (abs),

and 1 for W phi(x), whose gradient d phi(x)^T has no factor that every block resamples.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from depthmup.records import Cell, Estimate
from depthmup.statistics import mean
from depthmup.sweep import Store, Sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import beyond_base, cell_of, networks, octaves
from reproduction.claims.nonlinearity import LOG2_MULTIPLIER
from reproduction.claims.panels import Axis, Row, lines
from reproduction.claims.survey import survey
from reproduction.evidence import Accepted, Comparison, Picture

LOG2_LR = -1.0
"""About the best learning rate at that multiplier."""

EXAMPLES, BATCH = 8, 64

REACH = 0.25
"""Half of what two neighbouring predictions differ by."""


def cosines_of(*, cell: str, steps: Sequence[int]) -> dict[str, Any]:
    """Cosines of one network after each number of steps, by that number; none once it diverged.

    ``raw`` and ``centred`` are those of neighbours, ``far`` centred ones of blocks half the depth
    apart: means over examples, each by itself. ``batch`` is the raw one of a whole batch.
    """
    from torch.nn import functional

    from depthmup.training import dataset, trained
    from reproduction.probes.diversity import gradient_diversity

    described = Cell.from_json(cell)
    data = dataset(described.data)
    cosines = {}
    for step, network in zip(steps, trained(described, steps), strict=False):

        def of(start: int, stop: int, network: Any = network) -> Any:
            """The diversity of the gradients of some examples."""
            network.zero_grad()
            outputs = network(data.inputs[start:stop])
            functional.cross_entropy(outputs, data.labels[start:stop]).backward()
            return gradient_diversity(network, "branches.*.matrices.0.weight")

        # One example at a time, as the theory is of x and d that one example gives all blocks.
        single = [of(i, i + 1) for i in range(EXAMPLES)]
        cosines[str(step)] = {
            "raw": sum(one.raw for one in single) / EXAMPLES,
            "centred": sum(one.centred for one in single) / EXAMPLES,
            "far": sum(one.shuffled for one in single) / EXAMPLES,
            "batch": of(0, BATCH).raw,
        }
    return cosines


@dataclass(frozen=True, kw_only=True)
class Network:
    """A kind of block, and the cosine that theory gives its neighbours."""

    title: str
    expected: float
    activation: str
    nonlinearity: str = "post"

    def grid(self, setting: Setting) -> Sweep:
        return networks(
            setting,
            schemes=(setting.depth_mup,),
            depths=(8, *setting.choose(laptop=octaves(32, 128), medium=octaves(32, 256),
                                       paper=octaves(64, 1024))),
            log2_lrs=(LOG2_LR,),
            seeds=setting.choose(laptop=4, medium=5, paper=5),
            activation=self.activation,
            nonlinearity=self.nonlinearity,
            multiplier=2.0**LOG2_MULTIPLIER,
        )  # fmt: skip


NETWORKS = (
    Network(title="linear", expected=1.0, activation="identity"),
    Network(title="W relu(x)", expected=1.0, activation="relu", nonlinearity="pre"),
    Network(title="relu(W x)", expected=0.5, activation="relu"),
    Network(title="abs(W x)", expected=0.0, activation="abs"),
)


@dataclass(frozen=True, kw_only=True)
class _Cosines:
    """Cosines of every network: ``values[title, depth, seed][step][name]``."""

    values: Mapping[tuple[str, int, int], Mapping[str, Mapping[str, float]]]
    depths: tuple[int, ...]
    seeds: range
    steps: tuple[int, ...]

    def over_seeds(self, title: str, depth: int, step: int, *names: str) -> Estimate:
        """The mean of a cosine, or of one less another."""
        differences = []
        for seed in self.seeds:
            at_step = self.values[title, depth, seed].get(str(step), {})  # none once it diverged
            # The first cosine less the others, of one seed: paired.
            one, *less = (at_step.get(name, float("nan")) for name in names)
            differences.append(one - sum(less))
        return mean(differences)


def _experiment(setting: Setting) -> Experiment:
    from depthmup.sweep import work

    grids = {network.title: network.grid(setting) for network in NETWORKS}
    first = next(iter(grids.values()))
    depths, width = beyond_base(first), first.design.base["width"]
    seeds = range(first.design.seeds)
    third = first.design.steps // 3
    steps = (0, setting.choose(laptop=third, medium=third, paper=1000))

    cells = {(t, d, s): cell_of(grids[t], d, s) for t in grids for d in depths for s in seeds}
    jobs = survey(
        "gradient cosines",
        cosines_of,
        {key: {"cell": cell.to_json(), "steps": list(steps)} for key, cell in cells.items()},
        # Backward passes of single examples in PyTorch cost about as much as training.
        work=lambda key: 2 * work(cells[key]),
    )

    def conclude(store: Store) -> Conclusion:
        cosines = _Cosines(values=jobs.values(store), depths=depths, seeds=seeds, steps=steps)
        return Conclusion(
            comparisons=tuple(_comparisons(cosines)),
            pictures=tuple(_pictures(cosines)),
            notes=(
                f"Of two random matrices of width {width} the cosine has a standard deviation"
                f" of {1 / width:.3g}.",
            ),
        )

    return Experiment(
        measures=jobs.measures,
        conclude=conclude,
        config={"sweeps": [grid.to_dict() for grid in grids.values()], "steps": steps},
    )


def _comparisons(cosines: _Cosines) -> Iterator[Comparison]:
    deepest, steps = cosines.depths[-1], cosines.steps
    papers = {1.0: "alike: 1", 0.5: "decorrelated: 1/2", 0.0: "fully: 0"}
    for step in steps:
        for network in NETWORKS:
            yield Comparison(
                what=f"{network.title}: cosine of neighbouring blocks' gradients, depth {deepest}, "
                f"step {step}",
                paper=papers[network.expected],
                ours=cosines.over_seeds(network.title, deepest, step, "raw"),
                accepted=Accepted(low=network.expected - REACH, high=network.expected + REACH),
            )
    absolute = NETWORKS[-1].title
    # Only where nothing is shared: what relu's gradients share drifts along depth, so that
    # neighbours stay alike when its mean is taken off.
    yield Comparison(
        what=f"{absolute}: with the mean over blocks taken off, neighbours less blocks half the "
        f"depth apart, step {steps[-1]}",
        paper="0",
        ours=cosines.over_seeds(absolute, deepest, steps[-1], "centred", "far"),
        accepted=Accepted(low=-REACH, high=REACH),
        decisive=False,
    )


def _pictures(cosines: _Cosines) -> Iterator[Picture]:
    whats = {"raw": "gradients of one example", "batch": f"gradients of a batch of {BATCH}"}
    for name, cosine in (("single", "raw"), ("batch", "batch")):
        rows: list[Row] = []
        for network in NETWORKS:
            for depth in cosines.depths:
                for window, step in enumerate(cosines.steps):
                    e = cosines.over_seeds(network.title, depth, step, cosine)
                    rows.append(
                        {
                            "block": network.title,
                            "depth": depth,
                            "cosine": e.value,
                            "low": e.low,
                            "high": e.high,
                            "window": window,
                        }
                    )
        yield lines(
            rows,
            name=name,
            caption=f"Cosine of neighbouring blocks' {whats[cosine]}, with intervals over seeds.",
            x=Axis(field="depth", title="depth", log=True),
            y=Axis(field="cosine", title="cosine"),
            by="block",
            frames=[f"step {step}" for step in cosines.steps],
        )


CLAIMS: Sequence[Claim] = (
    Claim(
        name="sec8.1",
        title="relu decorrelates the gradients of neighbouring blocks, abs fully",
        shows="In networks that are linear, or whose nonlinearity comes before the matrix, "
        "neighbouring blocks get nearly the same gradient, and so learn the same. relu after the "
        "matrix takes half of that away, abs all of it.",
        source="TP6 Section 8.1",
        experiment=_experiment,
        group="claims",
    ),
)
