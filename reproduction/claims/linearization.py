"""Blocks of two matrices in deep networks: trained as their linearization would be, Section 9.2.

With updates of relative size s, what a block phi(W2 phi(W1 x)) does beyond first order in its two
updates is s of what it does to first order. L blocks add up both, so the whole network is off by s
too: L^-1/2 under Depth-muP, and a constant under ODE, where updates do not shrink. relu is not
smooth: an update of size s flips a fraction s of its units, which leaves a block s^1/2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from depthmup.records import Cell
from depthmup.rules import ODE, Scheme
from depthmup.sweep import BuiltIn, Store, Sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import beyond_base, cell_of, networks, octaves
from reproduction.claims.panels import Axis, Row, lines
from reproduction.claims.survey import Survey, survey
from reproduction.evidence import Accepted, Comparison, Picture
from reproduction.intervals import log_slope

if TYPE_CHECKING:
    from torch import Tensor

    from depthmup.models import ResidualMLP

LOG2_LR = -5.0
STEPS = 20
"""Twenty steps of 2^-5: at the base depth weights move by less than their size."""

EXAMPLES = 64

REACH = 0.25
"""Half of the distance between the exponents of the two rules."""


def linearized(
    network: "ResidualMLP", initial: "Sequence[Sequence[Tensor]]"
) -> "Callable[[Tensor], Tensor]":
    """The network whose every branch is its first-order expansion around ``initial``.

    ``initial`` has each branch's matrices as they were; the expansion is in what they have changed
    by since, and gradients reach them through it.

    *Source:* TP6 (arXiv 2310.02244) Section 9.2.
    """
    import torch
    from torch.autograd import forward_ad
    from torch.nn import functional

    def along(phi: Any, u: "Tensor", change: "Tensor") -> "tuple[Tensor, Tensor]":
        with forward_ad.dual_level():
            value, derivative = forward_ad.unpack_dual(phi(forward_ad.make_dual(u, change)))
        return value, derivative

    def forward(inputs: "Tensor") -> "Tensor":
        x = network.input(inputs)
        for branch, start in zip(network.branches, initial, strict=True):
            phi: Any = branch.phi
            u = functional.layer_norm(x, x.shape[-1:]) if branch.layer_norm else x
            # u is the branch at its initial matrices, ``change`` its derivative along the updates;
            # what updates below have made of x enters whole.
            change = torch.zeros_like(u)
            for linear, w in zip(branch.matrices, start, strict=True):  # type: ignore[arg-type]
                if branch.nonlinearity == "pre":
                    u, change = along(phi, u, change)
                u, change = u @ w.T, u @ (linear.weight - w).T + change @ w.T
                if branch.nonlinearity == "post":
                    u, change = along(phi, u, change)
            y = u + change
            if branch.mean_subtraction:
                y = y - y.mean(-1, keepdim=True)
            x = x + network.multiplier * y
        out: Tensor = network.readout(x)
        return out

    return forward


def distances_of(*, cell: str) -> dict[str, Any]:
    """Train a network, and one of linearized blocks from the same weights on the same batches.

    ``outputs``: the distance of their outputs, relative to how far training moved them.
    ``blocks``: the relative distance of blocks from their linearization, root mean square.
    """
    import torch
    from torch.nn import functional

    from depthmup.training import batches, build, dataset, optimizer_of, trained
    from reproduction.probes.linearization import branch_linearizations

    described = Cell.from_json(cell)
    data, order = dataset(described.data), batches(described)
    inputs = data.inputs[:EXAMPLES]
    model = build(described)
    initial = [[m.weight.detach().clone() for m in b.matrices] for b in model.branches]  # type: ignore
    named = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        before = model(inputs)
    # ``trained`` builds its own network from the same seed: ``model`` is still as initialized.
    networks = list(trained(described, (described.steps,)))
    if not networks:  # diverged
        return {"outputs": float("nan"), "blocks": float("nan")}
    (network,) = networks
    forward = linearized(model, initial)
    optimizer = optimizer_of(described, [p for p in model.parameters() if p.requires_grad])
    for chosen in order:
        loss = functional.cross_entropy(forward(data.inputs[chosen]), data.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        after, linear = network(inputs), forward(inputs)
    distances = branch_linearizations(network, inputs, "branches.*", named)
    return {
        "outputs": float((linear - after).norm() / (after - before).norm()),
        "blocks": float(torch.tensor(list(distances.values())).square().mean().sqrt()),
    }


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Networks of one rule and nonlinearity, at every depth but the base's."""

    sweep: Sweep

    @property
    def title(self) -> str:
        assert isinstance(self.sweep.model, BuiltIn)
        return f"{self.sweep.design.variant().scheme.title}, {self.sweep.model.activation}"

    @property
    def depths(self) -> tuple[int, ...]:
        return beyond_base(self.sweep)

    @cached_property
    def distances(self) -> Survey[tuple[int, int]]:
        """Of every network from its linearization, by (depth, seed)."""
        from depthmup.sweep import work

        seeds = range(self.sweep.design.seeds)
        cells = {(d, s): cell_of(self.sweep, d, s) for d in self.depths for s in seeds}
        return survey(
            "distance from linearized blocks",
            distances_of,
            {key: {"cell": cell.to_json()} for key, cell in cells.items()},
            # Plain PyTorch at twice the products, and as much again for single blocks.
            work=lambda key: 8 * work(cells[key]),
        )


def _kind(setting: Setting, scheme: Scheme, activation: str) -> Kind:
    sweep = networks(
        setting,
        schemes=(scheme,),
        depths=(8, *setting.choose(laptop=octaves(16, 256), medium=octaves(16, 512),
                                   paper=octaves(64, 1024))),
        log2_lrs=(LOG2_LR,),
        seeds=setting.choose(laptop=4, medium=5, paper=5),
        steps=STEPS,
        window=STEPS,
        block_depth=2,
        activation=activation,
    )  # fmt: skip
    return Kind(sweep=sweep)


_WORDS = {
    "outputs": "distance of outputs from a network of linearized blocks",
    "blocks": "distance of blocks from their linearization",
}


def _experiment(setting: Setting) -> Experiment:
    rule, ode = _kind(setting, setting.depth_mup, "gelu"), _kind(setting, ODE, "gelu")
    rough = _kind(setting, setting.depth_mup, "relu")
    kinds = (rule, ode, rough)

    def conclude(store: Store) -> Conclusion:
        return Conclusion(
            comparisons=(
                _exponent(rule, store, "outputs", -0.5),
                _exponent(rule, store, "blocks", -0.5),
                _exponent(ode, store, "blocks", 0.0),
                replace(_exponent(ode, store, "outputs", 0.0), decisive=False),
                replace(_exponent(rough, store, "blocks", -0.25, reach=REACH / 2), decisive=False),
            ),
            pictures=tuple(_picture(kinds, store, name) for name in _WORDS),
        )

    return Experiment(
        measures=tuple(measure for kind in kinds for measure in kind.distances.measures),
        conclude=conclude,
        config={"sweeps": [kind.sweep.to_dict() for kind in kinds]},
    )


def _exponent(
    kind: Kind, store: Store, name: str, expected: float, *, reach: float = REACH
) -> Comparison:
    return Comparison(
        what=f"{kind.title}: exponent in depth, {_WORDS[name]}",
        paper={-0.5: "−1/2", 0.0: "0", -0.25: "−1/4, as relu is not smooth"}[expected],
        ours=log_slope(kind.depths, kind.distances.array(store, name)),
        accepted=Accepted(low=expected - reach, high=expected + reach),
    )


def _picture(kinds: Sequence[Kind], store: Store, name: str) -> Picture:
    import numpy as np

    rows: list[Row] = [
        {"networks": kind.title, "depth": depth, "distance": float(np.exp(np.log(row).mean()))}
        for kind in kinds
        for depth, row in zip(kind.depths, kind.distances.array(store, name), strict=True)
    ]
    # The dashed slope starts at the first curve's first point.
    ends, top = (kinds[0].depths[0], kinds[0].depths[-1]), rows[0]["distance"]
    drawn = [(d, top * (ends[0] / d) ** 0.5) for d in ends] if top > 0 else []
    return lines(
        rows,
        name=name,
        caption=f"Relative {_WORDS[name]} after {STEPS} steps, against depth.",
        x=Axis(field="depth", title="depth", log=True),
        y=Axis(field="distance", title="relative distance", log=True),
        by="networks",
        references=[("L^−1/2", drawn)],
    )


CLAIMS: Sequence[Claim] = (
    Claim(
        name="sec9.2",
        title="Deep networks of two-matrix blocks train as if blocks were linear in their updates",
        shows="Blocks replaced by their linearization in the two updates, and trained on the same "
        "batches: under Depth-muP outputs come as close as L^-1/2, and so does every block. At "
        "(1, 0) a block's updates do not shrink with depth, and neither does its distance.",
        source="TP6 Section 9.2; at (1, 0) CompleteP (arXiv 2505.01618)",
        experiment=_experiment,
        group="claims",
    ),
)
