"""Weights that are computed from parameters by a norm: refused, and planned where declared."""

import pytest
import torch
from planning_zoo import CosineClassifier, both_forms, slope, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

import depthmup
from depthmup.planning import NotUnderstood, Where, recorded


class Rows(nn.Module):
    def forward(self, weight):
        return weight / weight.norm(dim=1, keepdim=True)


class Standardized(nn.Module):
    def forward(self, weight):
        return (weight - weight.mean(1, keepdim=True)) / weight.std(1, keepdim=True)


def by_rule(rule):
    def wrap(layer):
        parametrize.register_parametrization(layer, "weight", rule())
        return layer

    return wrap


class DoRA(nn.Module):
    """A frozen matrix, a correction of low rank, and a gain for each row of their sum."""

    def __init__(self, layer):
        super().__init__()
        self.base = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, layer.in_features))
        self.b = nn.Parameter(torch.zeros(layer.out_features, 2))
        self.gain = nn.Parameter(layer.weight.detach().norm(dim=1, keepdim=True))

    def forward(self, x):
        weight = self.base.weight + self.b @ self.a
        weight = self.gain * weight / weight.norm(dim=1, keepdim=True)
        return nn.functional.linear(x, weight, self.base.bias)


WRAPS = {
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "rows": by_rule(Rows),
}


class Block(nn.Module):
    def __init__(self, width, wrap):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), wrap(nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Network(nn.Module):
    def __init__(self, width, depth, wrap):
        super().__init__()
        self.first, self.head = nn.Linear(6, width), nn.Linear(width, 4)
        self.blocks = nn.ModuleList(Block(width, wrap) for _ in range(depth))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def planned(wrap, **options):
    return depthmup.plan(
        Network(64, 8, wrap),
        base=Network(16, 2, wrap),
        example_inputs=vectors(),
        scheme="depth-mup",
        **options,
    )


@pytest.mark.parametrize("name", WRAPS)
def test_a_weight_whose_size_is_not_the_parameters_is_refused(name):
    with pytest.raises(NotUnderstood, match="weight norm, spectral norm"):
        planned(WRAPS[name])


class BatchNormed(nn.Module):
    """As NFNets have it: a batch norm over each row, and 1/fan-in^1/2 beside it."""

    def forward(self, weight):
        scale = torch.full((len(weight),), weight.shape[1] ** -0.5)
        rows = nn.functional.batch_norm(weight[None], None, None, scale, training=True)
        return rows.reshape_as(weight)


@pytest.mark.parametrize("rule", [Standardized, BatchNormed])
def test_no_declared_role_covers_a_standardized_weight(rule):
    """Declared hidden, its start would be the parameter's, which standardizing undoes."""
    for roles in (None, {"blocks.*.down.parametrizations.weight.original": "hidden"}):
        with pytest.raises(NotUnderstood, match="nor does a declared role"):
            planned(by_rule(rule), roles=roles)


def test_the_first_matrix_is_refused_as_those_that_follow_it():
    """NFNet's stem, of which one dimension grows: a role was suggested, and refused further on."""
    model, base = Network(64, 8, nn.Identity()), Network(16, 2, nn.Identity())
    for network in (model, base):
        by_rule(BatchNormed)(network.first)
    with pytest.raises(NotUnderstood, match=r"first.*nor does a declared role"):
        depthmup.plan(model, base=base, example_inputs=vectors(), scheme="depth-mup")


def test_prototypes_turn_alike_at_every_width():
    """Cosines do not see how large prototypes start; their rate must follow it."""
    widths, options = (32, 128, 512), {"example_inputs": vectors(), "scheme": "mup"}

    def turned(width, seed):
        torch.manual_seed(seed)
        model, base = CosineClassifier(width, 1), CosineClassifier(32, 1)
        plan = depthmup.plan(model, base, **options)
        plan.initialize(model)
        optimizer = torch.optim.AdamW(plan.param_groups(model, lr=3e-3), lr=3e-3)
        prototypes = F.normalize(model.out.weight.detach().clone(), dim=1)
        x, y = torch.randn(64, 6), torch.randint(5, (64,))
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return (F.normalize(model.out.weight, dim=1) - prototypes).norm().item()

    # Four seeds scatter by 2.5%, and width 32 is 8% from the limit: 0.013 and 0.03 of the slope.
    # A hidden matrix's factors give -1/2.
    turns = [sum(turned(width, seed) for seed in range(4)) for width in widths]
    assert slope(widths, turns) == approx(0, abs=0.1)
    with pytest.raises(NotUnderstood, match=r"out.weight is declared hidden.*wide models"):
        depthmup.plan(
            CosineClassifier(64, 1), CosineClassifier(16, 1), roles={"out.weight": "hidden"},
            **options,
        )  # fmt: skip


def test_cosines_that_a_matrix_reads_are_no_logits():
    """Of order n^-1/2 as they start, they must move as much: that no vector's rate would give."""

    class Further(CosineClassifier):
        def __init__(self, width):
            super().__init__(width, 1)
            self.further = nn.Linear(5, 2)

        def forward(self, x):
            return self.further(super().forward(x))

    with pytest.raises(NotUnderstood, match=r"out.weight is used by linalg_vector_norm"):
        depthmup.plan(Further(64), Further(16), example_inputs=vectors(), scheme="mup")


def test_knots_of_splines_that_are_parameters_are_refused_with_what_can_be_planned():
    """pykan's: no role of knots, coefficients and scales makes a right plan."""

    class Knotted(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.head = nn.Linear(6, width), nn.Linear(width, 4)
            self.knots = nn.Parameter(torch.linspace(-1, 1, 5).expand(width, 5).clone())

        def forward(self, x):
            y = self.first(x)
            return self.head((y.unsqueeze(-1) >= self.knots).float().sum(-1) * y)

    options = {"example_inputs": vectors(), "scheme": "mup", "own_init": "fan_in"}
    with pytest.raises(NotUnderstood, match=r"knots is compared with .*use efficient-kan"):
        depthmup.plan(Knotted(64), Knotted(16), **options)
    assert depthmup.plan(Knotted(64), Knotted(16), roles={"knots": "vector"}, **options)


def test_the_scales_of_a_kans_splines_are_left_out():
    class Splines(nn.Module):
        def __init__(self, into, out, scaled):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(out, into, 4) * into**-0.5)
            self.scale = nn.Parameter(torch.ones(out, into)) if scaled else None

        def forward(self, x):
            bases = torch.stack([torch.cos(k * x) for k in range(4)], -1)
            weight = self.weight if self.scale is None else self.weight * self.scale[..., None]
            return nn.functional.linear(bases.flatten(1), weight.flatten(1))

    def plan(scaled):
        models = (
            nn.Sequential(Splines(6, w, scaled), Splines(w, w, scaled), nn.Linear(w, 2))
            for w in (64, 16)
        )
        return depthmup.plan(
            *models, example_inputs=vectors(), scheme="mup", own_init="fan_in"
        )  # fmt: skip

    with pytest.raises(NotUnderstood, match="enable_standalone_scale_spline=False"):
        plan(scaled=True)
    splines = plan(scaled=False)["1.weight"]
    assert (splines.init, splines.lr) == (approx(0.5), approx(0.25))


def test_dora_is_refused():
    with pytest.raises(NotUnderstood, match=r"as in LoRA|DoRA"):
        planned(DoRA)


def test_a_direction_and_its_gain():
    """W = g v / |v|: v keeps the matrix's law, and g that of a gain.

    With v started as the matrix would be, |v| = g at every width, so that what v moves is what W
    moves. g multiplies v x / |v|, of order one in every unit, as a gain multiplies what it reads.
    """
    weight = "blocks.*.down.parametrizations.weight"
    plan = planned(parametrizations.weight_norm)
    declared = planned(
        parametrizations.weight_norm,
        roles={f"{weight}.original1": "hidden", f"{weight}.original0": "vector"},
    )
    assert plan.prescriptions == declared.prescriptions
    direction, gain = (plan[f"blocks.0.down.parametrizations.weight.original{i}"] for i in (1, 0))
    # A quarter for the width, a half for the depth; nothing is folded into either.
    assert (direction.lr, gain.lr) == (approx(0.125), approx(0.5))
    assert (direction.folded, gain.folded) == (1.0, 1.0)
    branches = [m for m in plan.multipliers if m.where is Where.BRANCH]
    assert [m.value for m in branches] == [approx(0.5)] * 8
    # The matrix before the ReLU carries the multiplier, with the last bias: that is as exact.
    assert {*branches[0].folds} == {
        "blocks.0.up.weight",
        "blocks.0.up.bias",
        "blocks.0.down.bias",
    }


def test_folded_and_explicit_trajectories_are_the_same():
    def planned(folding):
        torch.manual_seed(0)
        wrap = parametrizations.weight_norm
        model, base = Network(32, 4, wrap), Network(8, 2, wrap)
        plan = depthmup.plan(
            model, base=base, example_inputs=vectors(), scheme="completep", folding=folding
        )
        return model.double(), plan

    inputs = torch.linspace(-1, 1, 24, dtype=torch.float64).view(4, 6)
    assert torch.allclose(*both_forms(planned, inputs), rtol=1e-9, atol=1e-12)


def test_a_readout_whose_gain_would_need_a_law_of_its_own_is_refused():
    def make(width):
        head = parametrizations.weight_norm(nn.Linear(width, 4))
        return nn.Sequential(nn.Linear(6, width), nn.ReLU(), head)

    with pytest.raises(NotUnderstood, match="direction of a weight norm"):
        depthmup.plan(make(32), base=make(8), example_inputs=vectors(), scheme="mup")


class Positions(nn.Module):
    """Positions from a convolution, with one gain for each place of its kernel."""

    def __init__(self, width):
        super().__init__()
        self.first, self.head = nn.Linear(6, width), nn.Linear(width, 4)
        self.conv = parametrizations.weight_norm(
            nn.Conv1d(width, width, 4, padding="same", groups=2), dim=2
        )

    def forward(self, x):
        x = self.first(x)
        return self.head(x + self.conv(x.T).T)


def test_gains_over_all_outputs_grow_with_their_number():
    """W = g v / |v| with |v| over outputs too: g must be sqrt(m_out) larger for the same W x."""
    torch.manual_seed(0)
    (model, drawn), (base, base_drawn) = (
        recorded(lambda width=width: Positions(width)) for width in (128, 32)
    )
    plan = depthmup.plan(
        model, base=base, example_inputs=vectors(), scheme="mup", drawn=(drawn, base_drawn)
    )
    gain, direction = (plan[f"conv.parametrizations.weight.original{i}"] for i in (0, 1))
    assert (gain.init, gain.lr) == (approx(2.0), approx(2.0))
    assert (direction.init, direction.lr) == (approx(0.5), approx(0.25))
    plan.initialize(model)
    # Of 2048 entries and more: 3 standard errors of a ratio.
    ratio = model.conv.weight.std() / base.conv.weight.std()
    ratio = (model.conv.weight.std() / base.conv.weight.std()).item()
    assert ratio == approx(0.5, rel=3 * (2 * 2048) ** -0.5)
