"""Steps of solvers: a function that is evaluated at several points of one step, and its length."""

import pytest
import torch
from planning_zoo import vectors
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import NotUnderstood, UnrelatedModels, Where


def heun(f, x, h):
    k1 = f(x)
    return x + h * (k1 + f(x + h * k1)) / 2


def midpoint(f, x, h):
    return x + h * f(x + h / 2 * f(x))


def rk4(f, x, h):
    k1 = f(x)
    k2 = f(x + h / 2 * k1)
    k3 = f(x + h / 2 * k2)
    k4 = f(x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def three_eighths(f, x, h):
    k1 = f(x)
    k2 = f(x + h / 3 * k1)
    k3 = f(x + h * (k2 - k1 / 3))
    k4 = f(x + h * (k1 - k2 + k3))
    return x + (k1 + 3 * (k2 + k3) + k4) * h / 8


class Solver(nn.Module):
    def __init__(self, width, depth, step, *, tied=False):
        super().__init__()
        self.inp, self.head = nn.Linear(6, width), nn.Linear(width, 3)
        self.fields = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)
            )
            for _ in range(1 if tied else depth)
        )
        self.step, self.depth = step, depth

    def lengths(self):
        return [1.0] * self.depth

    def forward(self, x):
        x = self.inp(x)
        for i, length in enumerate(self.lengths()):
            x = self.step(self.fields[i % len(self.fields)], x, length)
        return self.head(x)


def plan(make, scheme="depth-mup", **options):
    return depthmup.plan(
        make(64, 8), base=make(16, 2), example_inputs=vectors(), scheme=scheme, **options
    )


@pytest.mark.long
@pytest.mark.parametrize("tied", [False, True], ids=["own weights", "shared weights"])
@pytest.mark.parametrize("step", [heun, midpoint, rk4, three_eighths], ids=lambda f: f.__name__)
def test_every_evaluation_of_a_step_takes_the_multiplier_of_the_step(step, tied):
    """As though its length were divided: a step of f / 2 in the place of one of f."""

    def make(width, depth):
        return Solver(width, depth, step, tied=tied)

    folded, explicit = plan(make), plan(make, folding=False)
    for p in folded.prescriptions:
        if p.name.startswith("fields"):
            last = p.name.split(".")[2] == "3"
            assert (p.ratios.depth, p.role.shared) == (4, tied), p.name
            assert p.folded == approx(1 / 2 if last else 1), p.name
    branches = [m for m in explicit.multipliers if m.where is Where.BRANCH]
    assert [m.value for m in branches] == approx([1 / 2] * len(branches))
    hooked = {hook.module for m in branches for hook in m.hooks}
    assert hooked == {f"fields.{i}" for i in range(1 if tied else 8)}


def test_other_weights_at_the_inner_point_are_a_branch_inside_the_branch():
    class Two(Solver):
        def __init__(self, width, depth):
            super().__init__(width, depth, None)
            self.inner = Solver(width, depth, None).fields

        def forward(self, x):
            x = self.inp(x)
            for inner, field in zip(self.inner, self.fields, strict=True):
                x = x + field(x + inner(x))
            return self.head(x)

    p = plan(Two)
    assert (p["fields.1.3.weight"].folded, p["inner.1.3.weight"].folded) == (approx(1 / 2), 1)


def test_more_evaluations_are_no_more_depth():
    """x + f(x + f(x + f(x))), a fixed point that is sought in more rounds in the deeper model."""

    class FixedPoint(Solver):
        def forward(self, x):
            x = y = self.inp(x)
            for _ in range(self.depth):
                y = x + self.fields[0](y)
            return self.head(y)

    with pytest.raises(NotUnderstood, match=r"at 8 points, and at 2 in the base"):
        plan(lambda width, depth: FixedPoint(width, depth, None, tied=True))


class ByTimes(Solver):
    """Steps between times, which a solver compares as it goes on."""

    def lengths(self):
        times = torch.linspace(0.0, 1.0, self.depth + 1)
        if times[0] > times[1]:
            raise ValueError("Expected times that increase")
        return list(times.diff())


@pytest.mark.parametrize("step", [lambda f, x, h: x + h * f(x), midpoint, rk4])
def test_the_length_of_a_step_counts_once(step):
    """A step of 1/L is CompleteP's own multiplier; Depth-muP's is that much larger."""

    def make(width, depth):
        return ByTimes(width, depth, step, tied=True)

    def branches(scheme):
        return [m.value for m in plan(make, scheme).multipliers if m.where is Where.BRANCH]

    assert branches("completep") == []
    assert branches("depth-mup") == [approx(2)]


def across(x, y):
    u = torch.nn.functional.normalize(x, dim=-1)
    return y - (y * u).sum(-1, keepdim=True) * u


def across_by_squares(x, y):
    return y - (y * x).sum(-1, keepdim=True) / ((x * x).sum(-1, keepdim=True) + 1e-6) * x


@pytest.mark.parametrize("part", [across, across_by_squares])
def test_what_a_block_adds_across_the_stream_is_of_one_size(part):
    """(y . u) u is as large as y at every width: no factor beside that of the branch."""

    def make(width, depth):
        return Solver(width, depth, lambda f, x, h: x + h * part(x, f(x)))

    p = plan(make)
    assert {m.where for m in p.multipliers} == {Where.BRANCH}
    assert p["fields.7.3.weight"].folded == approx(1 / 2)


def test_a_product_along_a_vector_that_something_else_is_multiplied_with_takes_its_factor():
    def other(f, x, h):
        u = torch.nn.functional.normalize(x, dim=-1)
        return x + (f(x) * u).sum(-1, keepdim=True) * torch.tanh(x)

    p = plan(lambda width, depth: Solver(width, depth, other))
    assert Where.LOGITS in {m.where for m in p.multipliers}


def test_blocks_beside_each_other_are_refused_for_what_they_are():
    class Averaged(Solver):
        def forward(self, x):
            x = self.inp(x)
            return self.head(torch.stack([x + field(x) for field in self.fields]).mean(0))

    with pytest.raises(UnrelatedModels, match="Blocks beside each other"):
        plan(lambda width, depth: Averaged(width, depth, None), depth=4)
