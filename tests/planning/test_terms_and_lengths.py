"""What is added to logits, and vectors of length one: numbers that multiply more than one thing."""

import pytest
import torch
from planning_zoo import VOCABULARY, tokens, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood, Where

HEADS, LENGTH = 2, tokens().shape[-1]
DISTANCES = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)[None] + LENGTH - 1


def on_the_sum(q, k, table, scale):
    return (q @ k.transpose(-1, -2) + q @ table[:LENGTH].t()) * scale


def on_the_queries(q, k, table, scale):
    q = q * scale
    return q @ k.transpose(-1, -2) + q @ table[:LENGTH].t()


def by_distance(q, k, table, scale):
    moved = (q @ table.t()).gather(-1, DISTANCES.expand(len(q), HEADS, LENGTH, LENGTH))
    return (q @ k.transpose(-1, -2) + moved) * scale


def shifted(q, k, table, scale):
    """Transformer-XL's way to bring rows of relative positions into their places."""
    rows = F.pad(q @ table[:LENGTH].t(), (1, 0)).view(len(q), HEADS, LENGTH + 1, LENGTH)
    return (q @ k.transpose(-1, -2) + rows[:, :, 1:]) * scale


def behind_the_scale(q, k, table, scale):
    return q @ k.transpose(-1, -2) * scale + q @ table[:LENGTH].t()


def looked_up(q, k, table, scale):
    """Rows picked by an index are keys: their product with queries has a factor of its own."""
    rows = torch.einsum("bhid,ijd->bhij", q, table[DISTANCES])
    return (q @ k.transpose(-1, -2) + rows) * scale


class Attention(nn.Module):
    def __init__(self, width, logits):
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.v, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn(2 * LENGTH - 1, width // HEADS))
        self.logits, self.scale = logits, (width // HEADS) ** -0.5

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            linear(x).view(batch, length, HEADS, -1).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        y = self.logits(q, k, self.table, self.scale).softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Model(nn.Module):
    def __init__(self, width, make):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.block = make(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        return self.head(self.block(self.tokens(ids)))


def planned(make, target=64):
    return depthmup.plan(Model(target, make), base=Model(16, make), example_inputs=tokens())


@pytest.mark.parametrize("logits", [on_the_sum, on_the_queries, by_distance, shifted])
def test_a_table_multiplied_with_queries_is_freed_from_the_scale_of_the_logits(logits):
    """q R / sqrt(d): R is a matrix of fan-in d, whose product is of order one without 1/sqrt(d)."""
    plan = planned(lambda w: Attention(w, logits))
    (undone,) = (m for m in plan.multipliers if m.where is Where.CONSTANT)
    assert (undone.value, undone.folds) == (approx(2.0), ("block.table",))
    table = plan["block.table"]
    # Four times the fan-in: half the standard deviation and a quarter of the step, times two.
    assert (table.init, table.lr) == (approx(1.0), approx(0.5))
    (product,) = (m for m in plan.multipliers if m.where is Where.LOGITS)
    assert product.value == approx(0.5)
    assert "block.k.weight" in product.folds  # queries are read by the table as well


def test_a_table_that_is_not_scaled_is_a_matrix_like_any_other():
    plan = planned(lambda w: Attention(w, behind_the_scale))
    assert not [m for m in plan.multipliers if m.where is Where.CONSTANT]
    assert (plan["block.table"].init, plan["block.table"].lr) == (approx(0.5), approx(0.25))


def test_rows_that_are_looked_up_are_keys():
    """q r / d in all: rows of order one, and half of 1/sqrt(d) once more."""
    plan = planned(lambda w: Attention(w, looked_up))
    values = [m.value for m in plan.multipliers if m.where is Where.LOGITS]
    assert values == [approx(0.5)] * 2
    assert plan["block.table"].folded == approx(0.5)
    assert plan["block.table"].init == approx(0.5)


@pytest.mark.parametrize("logits", [on_the_sum, on_the_queries, by_distance, behind_the_scale])
def test_what_a_table_adds_stays_as_large(logits):
    """Measured: the difference that the table makes to the logits, at 4 and at 64 times a width."""

    def added(width):
        torch.manual_seed(0)
        make = lambda w: Attention(w, logits)  # noqa: E731
        model = Model(width, make)
        plan = depthmup.plan(model, base=Model(16, make), example_inputs=tokens())
        plan.initialize(model)
        block, x = model.block, torch.randn(8, LENGTH, width)
        q = block.q(x).view(8, LENGTH, HEADS, -1).transpose(1, 2)
        none = torch.zeros_like(block.table)
        with torch.no_grad():
            with_it, without = (logits(q, q, t, block.scale) for t in (block.table, none))
        return float((with_it - without).std())

    # 15 rows of the table are 15 random directions: 2 sd of a ratio of two such means is 0.37.
    assert added(1024) == approx(added(64), rel=0.37)


def test_a_bias_inside_of_the_scale_is_freed_from_it():
    """(q k + b) / sqrt(d): the effect of b would vanish."""

    class Biased(Attention):
        def __init__(self, width):
            super().__init__(width, None)
            self.table, self.bias = None, nn.Parameter(torch.zeros(HEADS, LENGTH, LENGTH))

        def forward(self, x):
            q, k, v = (
                linear(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
                for linear in (self.q, self.k, self.v)
            )
            y = ((q @ k.transpose(-1, -2) + self.bias) * self.scale).softmax(-1) @ v
            return x + self.out(y.transpose(1, 2).reshape(x.shape))

    plan = planned(Biased)
    assert plan["block.bias"].folded == approx(2.0)
    assert plan["block.bias"].lr == approx(2.0)


def by_hand(x):
    return x / (x * x).sum(-1, keepdim=True).sqrt()


def by_root(x):
    return x * (x.pow(2).sum(-1, keepdim=True) + 1e-6).rsqrt()


UNIT = {
    "normalize": lambda x: F.normalize(x, dim=-1),
    "by hand": by_hand,
    "by root": by_root,
    "norm": lambda x: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6),
}
OF_ORDER_ONE = {
    "rms": lambda x: x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt(),
    "times its root": lambda x: F.normalize(x, dim=-1) * x.shape[-1] ** 0.5,
}


class Normalized(nn.Module):
    """``ends``: the branch ends in the norm as well (a sandwich)."""

    def __init__(self, width, norm, *, gain=False, ends=False):
        super().__init__()
        self.ends = ends
        self.first, self.second = nn.Linear(6, width), nn.Linear(width, width)
        self.head, self.norm = nn.Linear(width, 4), norm
        self.gain = nn.Parameter(torch.ones(width)) if gain else 1.0

    def forward(self, x):
        x = F.relu(self.first(x))
        y = F.relu(self.second(self.norm(x) * self.gain))
        x = x + (self.norm(y) if self.ends else y)
        return self.head(self.norm(x) * self.gain)


def normalized(norm, **options):
    plan = depthmup.plan(
        Normalized(64, norm, **options),
        base=Normalized(16, norm, **options),
        example_inputs=vectors(),
        scheme="depth-mup",
    )
    assert not plan.notes
    return plan


@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize("norm", UNIT)
def test_matrices_that_read_a_vector_of_length_one(norm, gain):
    """Its entries shrink as 1/sqrt(n): so much more must the matrix give."""
    plan = normalized(UNIT[norm], gain=gain)
    assert [plan[f"{name}.weight"].folded for name in ("second", "head")] == approx([2.0, 2.0])


SUM = {
    "normalize": lambda x: F.normalize(x, p=1, dim=-1),
    "by hand": lambda x: x / x.abs().sum(-1, keepdim=True),
    "by hand, with an epsilon": lambda x: x / (x.abs().sum(-1, keepdim=True) + 1e-6),
    "by reciprocal": lambda x: x * x.abs().sum(-1, keepdim=True).reciprocal(),
}


@pytest.mark.parametrize("norm", SUM)
def test_a_length_of_another_power(norm):
    plan = normalized(SUM[norm])
    assert [plan[f"{name}.weight"].folded for name in ("second", "head")] == approx([4.0, 4.0])


def test_a_branch_that_ends_in_a_vector_of_length_one_must_be_multiplied():
    with pytest.raises(NotUnderstood, match="branch at second must be multiplied by 2"):
        normalized(UNIT["normalize"], ends=True)


@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize("norm", OF_ORDER_ONE)
def test_norms_to_order_one_need_nothing(norm, gain):
    """x-transformers writes RMSNorm as a vector of length one, times sqrt(n)."""
    plan = normalized(OF_ORDER_ONE[norm], gain=gain, ends=True)
    assert not plan.multipliers


@pytest.mark.parametrize("gain", [False, True])
def test_a_softmax_that_gates_features_makes_them_smaller_by_their_number(gain):
    """Its n numbers sum to one: what it multiplies is of size 1/n, times the features'."""
    plan = normalized(lambda x: x * x.softmax(-1), gain=gain)
    assert [plan[f"{name}.weight"].folded for name in ("second", "head")] == approx([4.0, 4.0])


class Gated(nn.Module):
    """A branch that ends in a gate over its features, as PatchTSMixer's do; or in a mean by it."""

    def __init__(self, width, *, mean=False):
        super().__init__()
        self.first, self.head, self.mean = nn.Linear(6, width), nn.Linear(width, 4), mean
        self.inner, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.ends = nn.Identity()

    def forward(self, x):
        x = self.first(x)
        y = F.relu(self.inner(x))
        y = y * self.gate(y).softmax(-1)
        return self.head(x + self.ends(y.sum(-1, keepdim=True).expand_as(y) if self.mean else y))


@pytest.mark.parametrize(("mean", "value"), [(False, [4.0]), (True, [])])
def test_a_branch_that_a_softmax_gates_is_multiplied_by_its_features(mean, value):
    plan = depthmup.plan(
        Gated(64, mean=mean),
        base=Gated(16, mean=mean),
        example_inputs=vectors(),
        scheme="completep",
    )
    assert [m.value for m in plan.multipliers if m.where is Where.BRANCH] == value
    assert not plan.notes


def test_a_gated_branch_is_of_one_size_at_all_widths():
    added = []
    for width in (64, 256, 1024):
        torch.manual_seed(0)
        model = Gated(width)
        plan = depthmup.plan(model, base=Gated(64), example_inputs=vectors(), scheme="completep")
        plan.initialize(model)
        model.ends.register_forward_hook(lambda module, args, output: added.append(output.detach()))
        with torch.no_grad():
            model(torch.randn(256, 6))
    sizes = [float(branch.square().mean().sqrt()) for branch in added]
    assert sizes == approx([sizes[0]] * 3, rel=0.1)
