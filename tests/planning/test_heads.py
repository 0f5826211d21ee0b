"""Heads that Muon orthogonalizes one by one: their rates, measured, and what is refused."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import depthmup
from depthmup.planning import NotUnderstood, PlanOptions

HEAD, WIDTHS = 8, (32, 64, 128, 256)
PROJECTIONS = ("*.q.weight", "*.k.weight", "*.v.weight")
# What each optimizer multiplies U V^T by, from rows and columns.
FACTORS = {
    "muon": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "muon-rms": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
    "dion": lambda rows, columns: math.sqrt(rows / columns),
    "spectral-unit": lambda rows, columns: 1.0,
}


class Attention(nn.Module):
    def __init__(self, width, size, groups, linear=nn.Linear):
        super().__init__()
        self.size, heads = size, width // size
        self.norm, self.q = nn.RMSNorm(width), linear(width, width)
        self.k, self.v = (linear(width, (groups or heads) * size) for _ in range(2))
        self.o = nn.Linear(width, width)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (
            m(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for m in (self.q, self.k, self.v)
        )
        z = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return x + self.o(z.transpose(1, 2).flatten(2))


class Transposed(nn.Module):
    """A matrix stored as (in, out), as GPT-2 has them."""

    def __init__(self, into, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(into, out) * into**-0.5)

    def forward(self, x):
        return x @ self.weight


def attends(width, size=HEAD, groups=0, linear=nn.Linear):
    return nn.Sequential(
        nn.Embedding(16, width), Attention(width, size, groups, linear), nn.Linear(width, 16)
    )


@cache
def planned(width, optimizer="muon", rows=HEAD, names=PROJECTIONS, base=WIDTHS[0], **model):
    options = PlanOptions(head_rows=dict.fromkeys(names, rows) if rows else {})
    return depthmup.plan(
        attends(width, **model), attends(base, **model), scheme="completep", optimizer=optimizer,
        example_inputs=torch.zeros(2, 4, dtype=torch.long), options=options, own_init="fan_in",
        proof="off",
    )  # fmt: skip


@cache
def moved(shape, rows, seed):
    """How far outputs move by one step U V^T that takes so many rows at a time."""
    torch.manual_seed(seed)
    # One direction of inputs, as a gradient has in which they agree.
    x, g = torch.randn(1, shape[1]), torch.randn(1, shape[0])
    steps = []
    for block in (g.T @ x + 1e-6 * torch.randn(shape)).split(rows):
        u, _, v = torch.linalg.svd(block, full_matrices=False)
        steps.append(u @ v)
    return (x @ torch.cat(steps).T).square().mean().sqrt().item()


def growth(plan_rows, optimizer, rows, name="q"):
    """The exponent of that along width, at the plan's rates, to the nearest half."""
    values = []
    for width in WIDTHS:
        plan = planned(width, optimizer, plan_rows, groups=0 if name == "q" else 2)
        p = plan[f"1.{name}.weight"]
        taken = rows or p.shape[0]
        step = np.mean([moved(p.shape, taken, seed) for seed in range(4)])
        values.append(p.lr * FACTORS[optimizer](taken, p.shape[1]) * step)
    slope = np.polyfit(np.log2(WIDTHS), np.log2(values), 1)[0]
    assert abs(slope - round(2 * slope) / 2) < 0.1, slope
    return Fraction(round(2 * slope), 2)


@pytest.mark.parametrize(
    ("optimizer", "planted"),
    [("muon", "1/2"), ("muon-rms", "1/2"), ("dion", "0"), ("spectral-unit", "1/2")],
)
def test_a_step_by_heads_moves_queries_alike_at_every_width(optimizer, planted):
    """Planted: rates for whole matrices. Dion's own factor holds for a head by itself."""
    assert growth(HEAD, optimizer, HEAD) == 0
    assert growth(None, optimizer, HEAD) == Fraction(planted)
    assert growth(None, optimizer, None) == 0
    assert growth(HEAD, optimizer, None) == -Fraction(planted)


@pytest.mark.parametrize("optimizer", FACTORS)
def test_keys_of_as_many_heads_take_the_same_rate_either_way(optimizer):
    assert growth(HEAD, optimizer, HEAD, "k") == growth(None, optimizer, None, "k") == 0
    whole, apart = planned(128, optimizer, None, groups=2), planned(128, optimizer, groups=2)
    assert whole["1.k.weight"].lr == apart["1.k.weight"].lr


def test_heads_that_grow_in_size_take_the_rates_of_whole_matrices():
    def rates(rows):
        model, base = (attends(w, size=w // 4) for w in (128, 32))
        options = PlanOptions(head_rows=dict.fromkeys(PROJECTIONS, rows) if rows else {})
        plan = depthmup.plan(
            model, base, scheme="completep", optimizer="muon-rms", options=options,
            example_inputs=torch.zeros(2, 4, dtype=torch.long), own_init="fan_in",
        )  # fmt: skip
        return [(p.name, p.lr, p.decay, p.epsilon) for p in plan.prescriptions]

    assert rates((32, 8)) == rates(None)


def test_decay_and_epsilon_follow_and_other_matrices_stay():
    whole, apart = planned(128, rows=None), planned(128)
    p, q = whole["1.q.weight"], apart["1.q.weight"]
    assert (q.lr / p.lr, q.lr * q.decay) == (0.5, p.lr * p.decay)
    # The norm of a head's gradient, beside that of a matrix of 4 times as many rows.
    assert q.epsilon / p.epsilon == 0.5
    assert apart["1.o.weight"] == whole["1.o.weight"]
    assert any("each head by itself" in note for note in apart.notes)
    assert not any("each head by itself" in note for note in whole.notes)
    assert depthmup.Plan(**depthmup.planning.document.loads(apart.to_json())) == apart


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"optimizer": "adamw"}, "multiple of U V"),
        ({"optimizer": "muonh"}, "multiple of U V"),
        ({"names": ("*.weight",)}, "AdamW trains"),
        ({"names": ("*.query.weight",)}, "No parameter matches"),
        ({"rows": 7}, "divide the rows"),
        ({"rows": 0.5}, "got 0.5"),
        ({"rows": (8, 8, 8)}, "the size of a head"),
        ({"rows": (16, 4)}, "got both"),
        ({"linear": Transposed}, "heads are columns"),
    ],
)
def test_what_no_rule_covers_is_refused(arguments, message):
    arguments = {"width": 64} | arguments
    with pytest.raises(ValueError, match=message):
        planned(arguments.pop("width"), **arguments)


def test_a_head_that_has_more_rows_than_columns_in_one_size_only_is_refused():
    class Wide(nn.Sequential):
        def __init__(self, width):
            super().__init__(
                nn.Linear(8, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, 2)
            )

    with pytest.raises(NotUnderstood, match=r"A head of 1\.weight has more rows"):
        depthmup.plan(
            Wide(64), Wide(16), scheme="mup", optimizer="muon", example_inputs=torch.zeros(1, 8),
            own_init="fan_in", options=PlanOptions(head_rows={"1.weight": 32}),
        )  # fmt: skip


def test_a_rate_of_another_optimizer_is_converted_beforehand():
    options = PlanOptions(head_rows={"*.q.weight": HEAD}, tuned_with="adamw")
    with pytest.raises(ValueError, match="head_rows or tuned_with"):
        depthmup.plan(
            attends(64), attends(32), optimizer="muon", options=options,
            example_inputs=torch.zeros(2, 4, dtype=torch.long),
        )  # fmt: skip
