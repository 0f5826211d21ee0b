"""Rules of today's networks: each holds where it is measured, and a planted wrong one does not.

Networks train for a few steps at the rates of a rule; what training changed is followed along the
axis of the rule. A slope is that of a line through the logarithms at sizes a factor of two apart;
its error is the spread over seeds. Beside what the rule claims, a wrong exponent is planted whose
slope theory also knows.
"""

import math
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import nn

import depthmup
from depthmup.cli import main
from depthmup.rules import DISPUTED, RUN_RULES, Family, Kind, Power, Ratios, Role, effect, scheme
from tests.mixtures import Layer
from tests.zoo.cases import CASES

SEEDS = range(8)
RULES = {rule.name: rule for rule in RUN_RULES}


def slope_of(measure, sizes):
    """The slope of log2 of a measurement along log2 of a size, and three standard errors."""
    slopes = []
    for seed in SEEDS:
        values = [math.log2(measure(size, seed)) for size in sizes]
        slopes.append(np.polyfit(np.log2(sizes), values, 1)[0])
    return float(np.mean(slopes)), 3 * float(np.std(slopes, ddof=1)) / len(slopes) ** 0.5


# Adapters: outputs after two steps of Adam, each of whose entries moves by the rate in the first.

WIDTH, RANKS = 1024, (4, 8, 16, 32)


def adapted(rank, seed, *, exponent, multiplier, a_at_zero):
    """How far the outputs move that an adapter B A adds, after two steps of Adam.

    At rank 1 the rate is that at which they move by order one: 1/width where B is random, and
    width^-1/2 where both matrices must move.
    """
    torch.manual_seed(seed)
    a, b = nn.Parameter(torch.zeros(rank, WIDTH)), nn.Parameter(torch.zeros(WIDTH, rank))
    if a_at_zero:
        nn.init.normal_(b, std=rank**-0.5)
    else:
        nn.init.normal_(a, std=WIDTH**-0.5)
    x, target = torch.randn(WIDTH), torch.randn(WIDTH)
    scale, rate = rank ** float(multiplier), 1 / WIDTH if a_at_zero else WIDTH**-0.5
    optimizer = torch.optim.Adam([a, b], lr=rate * rank ** float(exponent), eps=1e-30)
    for _ in range(2):
        (-(scale * b @ (a @ x)) @ target).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        return (scale * b @ (a @ x)).square().mean().sqrt().item()


@pytest.mark.parametrize(
    ("name", "gamma", "a_at_zero", "planted", "slope"),
    [
        # alpha = rank; outputs move by rate^2 width rank, and with B random by rate width.
        ("muA, B at zero", "0", False, 0, 1),
        ("muA, B at zero", "0", False, Fraction("0.21"), Fraction("1.42")),
        ("muA, B at zero", "1/2", False, 0, Fraction(1, 2)),  # what LoRA-alpha prescribes
        ("muA, B at zero", "1", False, Fraction(-1, 2), -1),  # alpha held
        ("muA, A at zero", "0", True, Fraction(-1, 2), Fraction(-1, 2)),
    ],
)
def test_the_rank_of_adapters(name, gamma, a_at_zero, planted, slope):
    gamma = Fraction(gamma)
    right = RULES[name].exponents["rank"].value * (1 - gamma)

    def measured(exponent):
        return slope_of(
            lambda rank, seed: adapted(
                rank, seed, exponent=exponent, multiplier=-gamma, a_at_zero=a_at_zero
            ),
            RANKS,
        )

    # What is beside the product of both movements is B's alone, (rank / width)^1/2 of it: at most
    # 18% at rank 32 and 6% at rank 4. Where B is random, its own movement, rank / width, is 3%.
    bias = math.log2((1 + (32 / WIDTH) ** 0.5) / (1 + (4 / WIDTH) ** 0.5)) / 3
    assert_slope(measured(right), 0, bias)
    assert_slope(measured(planted), slope, bias)
    assert abs(measured(planted)[0]) > 0.3  # the planted one fails


def assert_slope(measured, expected, bias):
    value, error = measured
    assert abs(value - float(expected)) <= error + bias, (value, error, expected)


def test_sources_on_the_rank_contradict_each_other_and_it_is_said(capsys):
    assert main(["rules", "--base", "rank=8", "--target", "rank=64"]) == 0
    text = capsys.readouterr().out
    assert "rank^-0.5 (muA, B at zero) against rank^+0.21 (adapters of 35 models)" in text
    assert "fitted here to its source's table of runs" in text
    assert "muA, B at zero         0.354" in text


# Networks under plans: what one step of the plan's groups does to the outputs of single matrices.

HEAD, WIDTHS = 8, (32, 64, 128, 256)
TOKENS = torch.randint(0, 16, (8, 8), generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    """Queries in heads of one size; keys and values in fewer, or out of a latent of some rank."""

    def __init__(self, width, heads, shared=1, rank=0):
        super().__init__()
        self.heads, self.shared, kv = heads, shared, heads // shared
        self.norm, self.q = nn.RMSNorm(width), nn.Linear(width, heads * HEAD, bias=False)
        self.down = nn.Linear(width, rank, bias=False) if rank else nn.Identity()
        self.latent = nn.RMSNorm(rank) if rank else nn.Identity()
        self.k, self.v = (nn.Linear(rank or width, kv * HEAD, bias=False) for _ in range(2))
        self.o = nn.Linear(heads * HEAD, width, bias=False)

    def forward(self, x):
        def split(z):
            return z.unflatten(-1, (-1, HEAD)).transpose(1, 2)

        y = self.norm(x)
        latent = self.latent(self.down(y))
        q = split(self.q(y))
        k, v = (split(m(latent)).repeat_interleave(self.shared, 1) for m in (self.k, self.v))
        z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(z.transpose(1, 2).flatten(2))


class Looped(nn.Module):
    """Two unique blocks, used several times in turn."""

    def __init__(self, width, loops):
        super().__init__()
        self.inputs, self.loops = nn.Embedding(16, width), loops
        self.blocks = nn.ModuleList(Perceptron(width) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 16)

    def forward(self, x):
        x = self.inputs(x)
        for _ in range(self.loops):
            for block in self.blocks:
                x = block(x)
        return self.head(self.norm(x))


class Perceptron(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


def decoder(blocks, width):
    return nn.Sequential(nn.Embedding(16, width), *blocks, nn.RMSNorm(width), nn.Linear(width, 16))


def attends(width, **options):
    heads = width // HEAD
    return decoder((Attention(width, heads, **options) for _ in range(2)), width)


def after_a_step(model, plan, *, planted=None, narrow=()):
    """How far the outputs of every matrix and of the network move by one step, over their start.

    Those of ``narrow`` matrices, which start near zero, by themselves.
    ``planted``: parts of parameters' names, and factors on their rates.
    """
    plan.initialize(model)
    groups = []
    for name, p in model.named_parameters():
        rate = 2e-3 * plan[name].lr
        for part, factor in (planted or {}).items():
            rate *= factor if part in name else 1.0
        groups.append({"params": [p], "lr": rate})
    seen = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(partial(keep, seen, name))
    logits = model(TOKENS)
    inputs = dict(seen)
    nn.functional.cross_entropy(logits.flatten(0, -2), TOKENS.roll(-1, 1).flatten()).backward()
    optimizer = torch.optim.Adam(groups, eps=1e-30)
    optimizer.step()
    moved = {"logits": rms(model(TOKENS) - logits)}
    for name, (x, y) in inputs.items():
        start = 1 if name in narrow else rms(y)
        moved[name] = rms(model.get_submodule(name)(x) - y) / start
    return moved


def keep(seen, name, module, inputs, output):
    """A hook: what a matrix read and gave."""
    seen[name] = inputs[0].detach(), output.detach()


def rms(x):
    return x.detach().square().mean().sqrt().item()


def nearest(values, sizes):
    """The slope of measurements at sizes a factor of two apart, and the half that it is nearest to.

    Exponents here are multiples of 1/2, so a measured slope belongs to the nearest one. What is
    finite at these sizes moves it by less than 1/4.
    """
    slope = float(np.polyfit(np.log2(sizes), np.log2(values), 1)[0])
    return slope, Fraction(round(2 * slope), 2)


def under_plan(make, sizes, planted=None, **options):
    """Slopes along sizes of what a step moves, under plans from the first size; by matrix."""
    rows, narrow = [], set()
    for size in reversed(sizes):  # at the base nothing grows, and nothing narrows
        torch.manual_seed(0)
        model, base = make(size), make(sizes[0])
        plan = depthmup.plan(
            model, base, optimizer="adamw", example_inputs=TOKENS, own_init="fan_in", **options
        )
        narrow |= {p.name.rpartition(".")[0] for p in plan.prescriptions if p.role.narrows}
        factors = {part: (size / sizes[0]) ** by for part, by in (planted or {}).items()}
        rows.insert(0, after_a_step(model, plan, planted=factors, narrow=narrow))
    return {name: nearest([row[name] for row in rows], sizes)[1] for name in rows[0]}


ATTENTION = {
    "grouped, as many groups a head": lambda width: attends(width, shared=2),
    "one group of keys and values": lambda width: attends(width, shared=width // HEAD),
    "a latent of one rank": lambda width: attends(width, rank=16),
    "a latent that widens": lambda width: attends(width, rank=width // 2),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ATTENTION)
def test_keys_and_values_that_are_grouped_or_latent_move_alike_at_every_width(name):
    """Their matrices grow on one side or on both, and the plan's factors follow from that alone."""
    planted = {".k.": 0.5, ".v.": 0.5, "down": 0.5}
    right = under_plan(ATTENTION[name], WIDTHS, scheme="completep")
    wrong = under_plan(ATTENTION[name], WIDTHS, planted, scheme="completep")
    for matrix in set(right) - {"4"}:  # the readout's start is smaller the wider: another law
        assert right[matrix] == 0, matrix
        if matrix != "logits":
            concerned = any(part in f"{matrix}." for part in planted)
            assert wrong[matrix] == (Fraction(1, 2) if concerned else 0), matrix


NARROW_WIDTHS = (256, 1024, 4096)


def through_a_fixed_size(width):
    parts = nn.Linear(8, width), nn.Linear(width, 16), nn.Linear(16, width), nn.Linear(width, 2)
    relus = [nn.ReLU() for _ in parts]
    both = (m for pair in zip(parts, relus, strict=True) for m in pair)
    return nn.Sequential(*list(both)[:-1])


def moved_from_below(width, seed, *, planted):
    """What two steps of Adam below a fixed size make of the matrix to it as it starts."""
    torch.manual_seed(seed)
    model, base = through_a_fixed_size(width), through_a_fixed_size(NARROW_WIDTHS[0])
    x, labels = torch.randn(16, 8), torch.randint(2, (16,))
    plan = depthmup.plan(
        model, base, scheme="mup", optimizer="adam", example_inputs=x, own_init="fan_in"
    )
    plan.initialize(model)
    with torch.no_grad():
        model[2].weight *= (width / NARROW_WIDTHS[0]) ** planted
    start, before = model[2].weight.detach().clone(), model[:2](x).detach()
    optimizer = torch.optim.Adam(plan.param_groups(model, lr=1e-3, eps=1e-30), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return rms((model[:2](x).detach() - before) @ start.T)


@pytest.mark.long
@pytest.mark.parametrize(("planted", "expected"), [(0.0, 0), (0.5, Fraction(1, 2))])
def test_what_is_below_a_fixed_size_moves_it_by_order_one(planted, expected):
    """A start of 1/n. At n^-1/2 changes that are aligned with it add up to n^1/2."""

    def measured(width):
        logs = [np.log(moved_from_below(width, seed, planted=planted)) for seed in range(4)]
        return np.exp(np.mean(logs))

    assert nearest([*map(measured, NARROW_WIDTHS)], NARROW_WIDTHS)[1] == expected


def test_the_start_of_adapters_is_in_dispute_and_both_sides_are_data():
    """What is planted above is the other side's law, and plans have this side's."""
    (adapter,) = (one for one in DISPUTED if "adapter" in one.what)
    assert adapter.there / adapter.here == Power(fan_in=Fraction(1, 2))
    case = next(case for case in CASES if case.name == "lora trained")
    assert case.plan("mup")["blocks.0.mix.up.A"].laws.init == adapter.here


LOOPS = (2, 4, 8, 16)


def test_the_rate_of_looped_blocks_does_not_depend_on_loops():
    """CompleteP's branches, 1/N at held unique blocks, and a rate without N."""
    exponent = RULES["looped blocks"].exponents["loops"].value

    def make(loops):
        return Looped(64, loops)

    right = under_plan(make, LOOPS, {"": float(exponent)}, scheme="completep")
    assert set(right.values()) == {0}
    wrong = under_plan(make, LOOPS, {"blocks": -0.5}, scheme="completep")
    assert wrong["blocks.0.up"] == wrong["blocks.1.down"] == Fraction(-1, 2)
    # The root of depth is for independent blocks: looped ones add up.
    assert grown(make, "completep") == 0
    assert grown(make, "depth-mup") == Fraction(1, 2)


def grown(make, name):
    """The slope along loops of the stream at the start, less what enters it."""
    values = []
    for loops in LOOPS:
        torch.manual_seed(0)
        model, base = make(loops), make(LOOPS[0])
        plan = depthmup.plan(
            model, base, scheme=name, optimizer="adamw", example_inputs=TOKENS, own_init="fan_in"
        )
        plan.initialize(model)
        seen = {}
        model.norm.register_forward_hook(partial(keep, seen, "norm"))
        model(TOKENS)
        values.append(rms(seen["norm"][0] - model.inputs(TOKENS)))
    return nearest(values, LOOPS)[1]


ACTIVE = (2, 4, 8, 16)


def of_mixture(active):
    layer = Layer(256, 16, active, 4, shared=False)
    return nn.Sequential(nn.Linear(8, 256), layer, nn.LayerNorm(256), nn.Linear(256, 4))


@cache
def plan_of_mixture(active):
    return depthmup.plan(
        of_mixture(active),
        of_mixture(ACTIVE[0]),
        scheme="completep+mue",
        optimizer="adamw",
        example_inputs=torch.zeros(32, 8),
        own_init="fan_in",
    )


def mixture(active, *, seed, down):
    """The start and the movement, by one step, of what a mixture adds for one example."""
    torch.manual_seed(seed)
    model, plan, x = of_mixture(active), plan_of_mixture(active), torch.randn(1, 8)
    plan.initialize(model)
    for expert in model[1].experts:
        expert.down.weight.data *= (active / ACTIVE[0]) ** down

    def added():
        with torch.no_grad():
            return model[1](stream) - stream

    stream = model[0](x).detach()
    start = added()
    nn.functional.cross_entropy(model(x), torch.zeros(1, dtype=torch.long)).backward()
    torch.optim.AdamW(plan.param_groups(model, lr=1e-3, eps=1e-30), lr=1e-3).step()
    return rms(start), rms(added() - start)


@pytest.mark.long
@pytest.mark.parametrize(("down", "expected"), [(0.0, 0), (-0.5, Fraction(-1, 2))])
def test_a_mixture_is_as_a_dense_layer_of_the_width_that_is_active(down, expected):
    """At any share K/E; without K^1/2 in the last matrices' start a mean over K experts shrinks."""
    rows = np.array(
        [np.mean([np.log2(mixture(k, seed=s, down=down)) for s in range(12)], 0) for k in ACTIVE]
    )
    for measured in rows.T:
        assert nearest(2**measured, ACTIVE)[1] == expected


def test_active_experts_at_another_share_need_this_rule():
    with pytest.raises(ValueError, match="the share of experts that are active"):
        depthmup.plan(
            of_mixture(4), of_mixture(2), scheme="completep+moe", example_inputs=torch.zeros(32, 8)
        )


HEADS = (4, 8, 16, 32)


def by_heads(heads, *, exponent, apart=True):
    """What a step of torch's Muon does to queries on inputs that made it, heads apart or not."""
    torch.manual_seed(0)
    x, g = torch.randn(16, HEAD * heads), torch.randn(16, HEAD * heads)
    gradients = (g.T @ x).split(HEAD) if apart else [g.T @ x]
    parts = [nn.Parameter(torch.zeros_like(part)) for part in gradients]
    for part, gradient in zip(parts, gradients, strict=True):
        part.grad = gradient.clone()
    torch.optim.Muon(parts, lr=heads ** float(exponent), weight_decay=0.0).step()
    return rms(x @ torch.cat([part.detach() for part in parts]).T)


def test_heads_that_are_orthogonalized_apart_take_a_rate_that_falls_with_their_number():
    right = RULES["Muon by heads"].exponents["heads"].value
    for exponent, apart, expected in (
        (right, True, 0), (0, True, Fraction(1, 2)), (0, False, 0), (right, False, right),
    ):  # fmt: skip
        values = [by_heads(heads, exponent=exponent, apart=apart) for heads in HEADS]
        assert nearest(values, HEADS)[1] == expected


QUERIES, REPETITIONS = 64, (1, 4, 16)


def spectral_factor(repetition):
    return (1 + repetition**0.5) / 2


def step_of_keys(repetition, seed, *, factor, by):
    """A step of Adam on keys that ``repetition`` query heads share.

    By spectrum: the norm of the update over that of the matrix; by entry: how far a key moves.
    """
    torch.manual_seed(seed)
    width = HEAD * QUERIES
    keys = nn.Linear(width, width // repetition, bias=False)
    nn.init.normal_(keys.weight, std=width**-0.5)
    x, queries = torch.randn(2, width), torch.randn(2, QUERIES, HEAD)
    start, before = keys.weight.detach().clone(), keys(x).detach()
    heads = keys(x).unflatten(-1, (-1, HEAD)).repeat_interleave(repetition, dim=1)
    logits = torch.einsum("qhd,khd->hqk", queries, heads) / HEAD
    (-logits.log_softmax(-1).diagonal(dim1=-2, dim2=-1)).sum().backward()
    torch.optim.Adam(keys.parameters(), lr=1e-4 * factor(repetition), eps=1e-30).step()
    if by == "entry":
        return rms(keys(x) - before)
    norm = partial(torch.linalg.matrix_norm, ord=2)
    return float((norm(keys.weight - start) / norm(start)).detach())


@pytest.mark.long
@pytest.mark.parametrize("by", ["spectrum", "entry"])
def test_keys_that_heads_share_move_as_either_rule_says_and_not_as_the_other(by):
    slope, error = slope_of(partial(step_of_keys, factor=spectral_factor, by=by), REPETITIONS)
    flat, flat_error = slope_of(partial(step_of_keys, factor=lambda r: 1, by=by), REPETITIONS)
    between = np.polyfit(
        np.log2(REPETITIONS), [math.log2(spectral_factor(r)) for r in REPETITIONS], 1
    )[0]
    # Edges of Gaussian matrices of 32 rows are off by rows^-2/3: 0.1, over four doublings.
    tolerance = max(error, flat_error) + 0.03
    assert slope == pytest.approx(0 if by == "spectrum" else between, abs=tolerance)
    assert flat == pytest.approx(-between if by == "spectrum" else 0, abs=tolerance)


def test_rules_of_shared_keys_are_stated_as_measured():
    stated = RULES["GQA-muP"].exponents["repetition"]
    one, four, sixteen = (math.log(spectral_factor(r), 4) for r in REPETITIONS)
    assert float(stated.value) == pytest.approx(four - one, abs=0.005)
    assert float(stated.low) < four - one < sixteen - four < float(stated.high)
    assert RULES["entries of keys"].exponents["repetition"].value == 0


LENGTHS = (4, 8, 16, 32)


def drift(length, seed, *, exponent):
    """How far Adam goes down a noisy gradient on a held number of tokens, 8 sequences a step."""
    torch.manual_seed(seed)
    theta = nn.Parameter(torch.zeros(4096))
    optimizer = torch.optim.Adam(
        [theta], lr=1e-4 * length ** float(exponent), betas=(0.0, 0.99), eps=1e-30
    )
    for _ in range(256 // length):
        # The mean of 8 length independent tokens, whose slope of 0.005 is lost in their scatter.
        theta.grad = 0.005 + torch.randn(4096) / (8 * length) ** 0.5
        optimizer.step()
    return -float(theta.detach().mean())


@pytest.mark.parametrize(("planted", "expected"), [(None, 0), (0, -1 / 2), (1, 1 / 2)])
def test_a_longer_sequence_is_a_larger_batch(planted, expected):
    right = RULES["tokens of a batch"].exponents["sequence"].value
    slope, error = slope_of(partial(drift, exponent=right if planted is None else planted), LENGTHS)
    # Adam's first steps know their scatter from few gradients: 1/sqrt(2 steps) at the longest.
    assert slope == pytest.approx(expected, abs=error + 0.05)


class TestNormalized:
    """nuGPT: rates by its table, and a step on spheres as large as its laws say."""

    AT = Ratios(fan_in=4, fan_out=4, depth=3, batch=2, duration=16)
    STEPS = 16 / 2
    TABLE = {
        # as quoted: embeddings m^-1/2, hidden matrices and readout m^-3/4, scales 1; steps^-1/3
        Kind.INPUT: 4 ** (-1 / 2),
        Kind.HIDDEN: 4 ** (-3 / 4),
        Kind.READOUT: 4 ** (-3 / 4),
        Kind.VECTOR: 1.0,
    }

    @pytest.mark.parametrize("kind", Kind)
    def test_the_table(self, kind):
        for in_branch in (False, kind in (Kind.HIDDEN, Kind.VECTOR)):
            laws = scheme("nuGPT").laws(Role(kind=kind, in_branch=in_branch), Family.ENTRYWISE)
            assert laws.lr.at(self.AT) == pytest.approx(self.TABLE[kind] * self.STEPS ** (-1 / 3))
            assert laws.epsilon.at(self.AT) == 1

    @pytest.mark.parametrize(("planted", "expected"), [(None, 1 / 4), (-1, 0), (-1 / 2, 1 / 2)])
    def test_a_step_on_a_sphere(self, planted, expected):
        """Relative to its start: m^1/4, between full alignment and none; for one input, exactly."""
        law = effect(scheme("nugpt"), Family.ENTRYWISE, Role(kind=Kind.HIDDEN))
        assert law.fan_in + law.fan_out == Fraction(1, 4)
        laws = scheme("nugpt").laws(Role(kind=Kind.HIDDEN), Family.ENTRYWISE)
        exponent = float(laws.lr.fan_in) if planted is None else planted
        slope, error = slope_of(lambda n, seed: self.moved(n, seed, exponent), (64, 128, 256, 512))
        # The size of a random sum of n terms is known to 1/sqrt(2 n): 6% over the first size.
        assert slope == pytest.approx(expected, abs=error + 0.03)

    @staticmethod
    def moved(width, seed, exponent):
        torch.manual_seed(seed)
        weight = nn.Parameter(nn.functional.normalize(torch.randn(width, width), dim=-1))
        x = nn.functional.normalize(torch.randn(width), dim=0)
        start = (weight @ x).detach()
        (weight @ x @ torch.randn(width)).backward()
        torch.optim.Adam([weight], lr=1e-4 * width**exponent, eps=1e-30).step()
        weight.data = nn.functional.normalize(weight.data, dim=-1)
        return rms(weight @ x - start) / rms(start)
