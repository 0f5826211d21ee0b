"""Weights that are computed before use: what acts as matrices one by one, and what only seems to.

x (W + c B A)^T is x W^T + c (x A^T) B^T, so each parameter has the role that it has in the latter.
"""

import math

import pytest
import torch
from planning_zoo import Tower, both_forms, vectors
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood, UnrelatedModels, anatomy
from depthmup.rules import Kind

RANK = 3


class Computed(nn.Module):
    """A branch that multiplies by a weight made of the parameters that ``weight`` reads."""

    def __init__(self, width, weight):
        super().__init__()
        shapes = {
            "weight": (width, width),
            "other": (width, width),
            "down": (RANK, width),
            "up": (width, RANK),
        }
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape) / shape[1] ** 0.5))
        self.gain, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("noise", torch.randn(width, width))
        self.compute = weight
        for name in {*shapes, "gain"} - read_by(weight, self):
            delattr(self, name)

    def forward(self, x):
        return x + F.linear(x.relu(), self.compute(self), self.bias)


def read_by(weight, block):
    """The names of what a weight is made of."""
    names = set()

    class Reader:
        def __getattr__(self, name):
            names.add(name)
            return getattr(block, name)

    weight(Reader())
    return names


def planned(weight, **options):
    def make(width, depth):
        return Tower(lambda w: Computed(w, weight), width, depth).double()

    torch.manual_seed(0)
    model, base = make(32, 6), make(8, 2)
    return model, depthmup.plan(
        model, base, example_inputs=vectors().double(), scheme="completep",
        own_init="fan_in", **options,
    )  # fmt: skip


m, r = 4, 3  # how width and depth grow
HIDDEN = (Kind.HIDDEN, m**-0.5, 1 / m)
UNDERSTOOD = {
    "a sum": (lambda b: b.weight + b.other, {"weight": HIDDEN, "other": HIDDEN}),
    "a difference of one and its transpose": (lambda b: b.weight - b.weight.T, {"weight": HIDDEN}),
    "upper triangles": (
        lambda b: b.weight.triu(1) - b.weight.triu(1).mT,
        {"weight": HIDDEN},
    ),
    "masked": (
        lambda b: b.weight.masked_fill(torch.ones_like(b.noise).triu(1).bool(), 0.0),
        {"weight": HIDDEN},
    ),
    "merged adapters": (
        lambda b: b.weight + 0.5 * (b.up @ b.down),
        {"weight": HIDDEN, "down": (Kind.HIDDEN, 1 / 4, 1 / 4), "up": (Kind.INPUT, 1, 1)},
    ),
    "merged adapters, transposed": (
        lambda b: (b.weight.T + b.down.T @ b.up.T).T,
        {"weight": HIDDEN, "down": (Kind.HIDDEN, 1 / 4, 1 / 4), "up": (Kind.INPUT, 1, 1)},
    ),
    "noise": (
        lambda b: b.weight + b.other * b.noise,
        {"weight": HIDDEN, "other": HIDDEN},
    ),
    "rows with gains": (
        lambda b: b.gain[:, None] * b.weight,
        {"weight": HIDDEN, "gain": (Kind.VECTOR, 1, 1)},
    ),
    "columns with gains": (
        lambda b: b.weight * b.gain.tanh(),
        {"weight": HIDDEN, "gain": (Kind.VECTOR, 1, 1)},
    ),
    "put together": (
        lambda b: torch.cat([b.weight[: len(b.weight) // 2], b.other[len(b.weight) // 2 :]]),
        {"weight": HIDDEN, "other": HIDDEN},
    ),
}
REFUSED = {
    "entry by entry": lambda b: b.weight * b.other,
    "a product alone": lambda b: b.up @ b.down,
    "a square": lambda b: b.weight @ b.weight.T + b.other,
    "exponentials": lambda b: (b.weight + b.other).exp(),
    "a weight norm": lambda b: b.gain[:, None] * b.weight / b.weight.norm(dim=1, keepdim=True),
    "less its mean": lambda b: b.gain[:, None] * (b.weight - b.weight.mean(1, keepdim=True)),
    "ones above": lambda b: b.weight.masked_fill(torch.ones_like(b.noise).triu(1).bool(), 1.0),
}


@pytest.mark.parametrize("how", UNDERSTOOD)
def test_each_parameter_has_the_role_it_has_alone(how):
    weight, expected = UNDERSTOOD[how]
    _, plan = planned(weight, folding=False)
    found = {p.name: p for p in plan.prescriptions}
    for name, (kind, init, lr) in expected.items():
        p = found[f"blocks.3.{name}"]
        assert (p.role.kind, p.role.in_branch, p.ratios.depth) == (kind, True, r)
        assert math.isclose(p.init, init)
        assert math.isclose(p.lr, lr)


@pytest.mark.parametrize("how", UNDERSTOOD)
def test_a_weight_that_carries_its_branch_is_trained_as_with_the_multiplier(how):
    x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    outputs = both_forms(lambda folding: planned(UNDERSTOOD[how][0], folding=folding), x)
    assert torch.allclose(*outputs, rtol=1e-10, atol=0)


@pytest.mark.parametrize("how", REFUSED)
@pytest.mark.parametrize("folding", [True, False])
def test_a_weight_of_another_size_than_its_parameters_is_refused(how, folding):
    with pytest.raises(NotUnderstood, match=r"blocks\.0\.(weight|up|other)"):
        planned(REFUSED[how], folding=folding)


@pytest.mark.parametrize("how", ["its norm", "its rows", "itself"])
def test_a_weight_that_something_else_reads_is_refused(how):
    """Nothing says what the other reader makes of the parameters."""

    class Read(Computed):
        def forward(self, x):
            whole = self.weight + self.other
            beside = {"its norm": whole.norm(), "its rows": (whole * x[0]).sum(-1), "itself": whole}
            return x + F.linear(x, whole) * self.gain + beside[how].sum()

    def make(width, depth):
        return Tower(lambda w: Read(w, lambda b: b.weight + b.other * b.gain), width, depth)

    with pytest.raises(NotUnderstood, match=r"blocks\.0\.weight is used by add"):
        anatomy(make(32, 2), make(8, 2), example_inputs=vectors())


def test_a_weight_that_serves_two_branches_is_counted_twice():
    class Twice(Computed):
        def forward(self, x):
            whole = self.weight + self.other
            x = x + F.linear(x.relu(), whole) * self.gain
            return x + F.linear(x.tanh(), whole) * self.bias

    def make(depth):
        return Tower(lambda w: Twice(w, lambda b: b.weight + b.other * b.gain), 8, depth)

    found = anatomy(make(4), make(2), example_inputs=vectors())
    [weight] = [p for p in found.places if p.name == "blocks.0.weight"]
    assert (weight.ratios.depth, weight.role.in_branch) == (2, True)


NOISE = {
    "normal": lambda b: torch.randn_like(b.other),
    "exponential": lambda b: torch.empty_like(b.other).exponential_(),
    "fixed": lambda b: b.noise,
}


@pytest.mark.parametrize("name", NOISE)
def test_scales_of_noise_are_noted(name):
    _, plan = planned(lambda b: b.weight + b.other * NOISE[name](b))
    drawn = name != "fixed"
    assert any("blocks.*.other multiply noise" in note for note in plan.notes) == drawn


class Adapted(nn.Module):
    """A readout W + B A; of tied weights, W is looked up as well."""

    def __init__(self, width, tied=False):
        super().__init__()
        self.tied = tied
        self.table = nn.Embedding(9, width)
        self.weight = nn.Parameter(torch.randn(9, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(RANK, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(9, RANK))
        if tied:
            self.weight = self.table.weight

    def forward(self, rows):
        return F.linear(self.table(rows).relu(), self.weight + self.up @ self.down)


def test_a_composed_readout_is_multiplied_term_by_term():
    rows = torch.arange(9)

    def planned(folding):
        torch.manual_seed(0)
        model, base = Adapted(32).double(), Adapted(8).double()
        return model, depthmup.plan(
            model, base, example_inputs=rows, scheme="completep", own_init="fan_in", folding=folding
        )

    _, plan = planned(folding=False)
    found = {p.name: p for p in plan.prescriptions}
    assert {name: p.role.kind for name, p in found.items() if name != "table.weight"} == {
        "weight": Kind.READOUT, "down": Kind.HIDDEN, "up": Kind.READOUT
    }  # fmt: skip
    assert {site.label: site.value for site in plan.multipliers} == {"weight": 1 / m}
    assert torch.allclose(*both_forms(planned, rows), rtol=1e-10, atol=0)


def test_a_composed_readout_that_is_looked_up_as_well_is_refused():
    with pytest.raises(NotUnderstood, match="weight is used by add"):
        anatomy(Adapted(32, True), Adapted(8, True), example_inputs=torch.arange(9))


@pytest.mark.parametrize(("along", "grows"), [("length", False), ("coordinates", True)])
def test_fourier_transforms_of_weights(along, grows):
    """A long convolution along a sequence; along coordinates it sums over what grows."""

    class Long(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
            self.kernel = nn.Parameter(torch.randn(5, width))

        def forward(self, x):
            dim = 0 if along == "length" else 1
            x = self.inp(x)
            y = torch.fft.rfft(x, dim=dim) * torch.fft.rfft(self.kernel, dim=dim)
            return self.out(torch.fft.irfft(y, n=x.shape[dim], dim=dim))

    if grows:
        with pytest.raises(NotUnderstood, match="Fourier transform along a dimension that grows"):
            anatomy(Long(32), Long(8), example_inputs=torch.zeros(5, 6))
    else:
        found = anatomy(Long(32), Long(8), example_inputs=torch.zeros(5, 6))
        [kernel] = [p for p in found.places if p.name == "kernel"]
        assert (kernel.role.kind, kernel.ratios.fan_out) == (Kind.VECTOR, 4)


def test_pairs_of_real_and_imaginary_parts_are_what_the_complex_number_is():
    class Pairs(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.into = nn.Parameter(torch.randn(3, width, 2))
            self.back = nn.Parameter(torch.randn(width, 3, 2))
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)

        def forward(self, x):
            state = self.inp(x).to(torch.complex64) @ torch.view_as_complex(self.into).mT
            return self.out((state @ torch.view_as_complex(self.back).mT).real)

    found = {p.name: p for p in anatomy(Pairs(32), Pairs(8), example_inputs=vectors()).places}
    assert (found["into"].role.kind, found["into"].ratios.fan_in) == (Kind.HIDDEN, 4)
    assert (found["back"].role.kind, found["back"].ratios.fan_out) == (Kind.INPUT, 4)


@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_bags_of_rows_are_looked_up(mode):
    class Bag(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.table, self.out = nn.EmbeddingBag(9, width, mode=mode), nn.Linear(width, 2)

        def forward(self, rows):
            return self.out(self.table(rows))

    rows = torch.zeros(2, 3, dtype=torch.long)
    found = {p.name: p for p in anatomy(Bag(32), Bag(8), example_inputs=rows).places}
    assert (found["table.weight"].role.kind, found["table.weight"].ratios.fan_out) == (
        Kind.INPUT,
        4,
    )


@pytest.mark.parametrize("by", ["expanded", "cdist"])
def test_a_codebook_is_a_table_whatever_finds_the_nearest_row(by):
    class Quantized(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
            self.codes = nn.Embedding(7, width)

        def forward(self, x):
            x, codes = self.inp(x), self.codes.weight
            if by == "cdist":
                distance = torch.cdist(x, codes)
            else:
                distance = x.square().sum(1, True) - 2 * x @ codes.T + codes.square().sum(1)
            return self.out(x + (self.codes(distance.argmin(1)) - x).detach())

    found = anatomy(Quantized(32), Quantized(8), example_inputs=vectors())
    assert not found.notes
    [codes] = [p for p in found.places if p.name == "codes.weight"]
    assert (codes.role.kind, codes.ratios.fan_out) == (Kind.INPUT, 4)


def test_distances_that_are_weighted_are_still_refused():
    """Nothing is picked: what the distances are made from learns through them."""

    class Soft(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
            self.codes = nn.Embedding(7, width)

        def forward(self, x):
            x = self.inp(x)
            weights = (-torch.cdist(x, self.codes.weight)).softmax(-1)
            return self.out(weights @ self.codes.weight)

    with pytest.raises(NotUnderstood, match=r"codes\.weight is used by _cdist_forward"):
        anatomy(Soft(32), Soft(8), example_inputs=vectors())


def test_gains_and_learned_inputs_are_vectors():
    """Queries with a norm and positions of their own, which matrices then act on."""

    class Queries(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.norm = nn.Linear(6, width), nn.LayerNorm(width)
            self.queries = nn.Parameter(torch.randn(1, 4, width))
            self.positions = nn.Parameter(torch.randn(1, 4, width))
            self.q, self.out = nn.Linear(width, width), nn.Linear(width, 2)

        def forward(self, x):
            keys = self.inp(x)[None]
            queries = self.q(self.norm(self.queries + self.positions))
            return self.out((queries @ keys.transpose(1, 2)).softmax(-1) @ keys)

    result = anatomy(Queries(32), Queries(8), example_inputs=vectors())
    at = {p.name: p.role.kind for p in result.places}
    for name in ("queries", "positions", "norm.weight", "norm.bias"):
        assert at[name] is Kind.VECTOR
    assert at["q.weight"] is Kind.HIDDEN


@pytest.mark.parametrize("grows", [True, False])
def test_a_table_that_is_looked_up_and_multiplied_inside_is_planned_if_it_does_not_grow(grows):
    class Inside(nn.Module):
        def __init__(self, width):
            super().__init__()
            size = width if grows else 5
            self.table = nn.Embedding(9, size)
            self.up, self.down = nn.Linear(size, width), nn.Linear(width, size)
            self.out = nn.Linear(9, 2)

        def forward(self, rows):
            x = self.down(self.up(self.table(rows)).relu())
            return self.out((x @ self.table.weight.T).softmax(-1))

    rows = torch.arange(4)
    if grows:
        with pytest.raises(NotUnderstood, match=r"table\.weight is used in ways .*hidden, input"):
            anatomy(Inside(32), Inside(8), example_inputs=rows)
    else:
        table = anatomy(Inside(32), Inside(8), example_inputs=rows).places[0]
        assert (table.role.kind, table.ratios.fan_in, table.ratios.fan_out) == (Kind.INPUT, 1, 1)


def test_a_dimension_without_entries_in_the_base_is_refused():
    def make(width):
        return nn.Sequential(nn.Linear(6, width), nn.Linear(width, 2))

    with pytest.raises(UnrelatedModels, match="has no entries in the base"):
        anatomy(make(4), make(0), example_inputs=vectors())
