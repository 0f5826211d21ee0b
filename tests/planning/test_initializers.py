"""What a model's own code draws its parameters from is read from the calls, exactly."""

import math

import pytest
import torch
from planning_zoo import ResidualMLP, Transformer, vectors
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import recorded
from depthmup.planning.initializers import InitRecorder
from depthmup.planning.resets import by_default


def parameter(fill, *shape):
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            made = fill(*shape)
            self.p = made if isinstance(made, nn.Parameter) else nn.Parameter(made)

    return One


def filled(initializer, **options):
    def fill(*shape):
        p = nn.Parameter(torch.empty(*shape))
        initializer(p, **options)
        return p

    return fill


def in_parts(*shape):
    p = torch.empty(*shape)
    with torch.no_grad():
        p.normal_()
        p[: shape[0] // 2].mul_(3.0)
        p[-1].zero_()
        p.mul_(0.5)
    return p


def time_steps(*shape):
    """Mamba's: softplus^-1 of a log-uniform variable, which is used twice in one expression."""
    low, high = math.log(1e-3), math.log(0.1)
    dt = torch.exp(torch.rand(*shape) * (high - low) + low).clamp(min=1e-4)
    return dt + torch.log(-torch.expm1(-dt))


INITIALIZERS = {
    "normal": (filled(nn.init.normal_, mean=0.5, std=0.02), math.hypot(0.5, 0.02)),
    "uniform": (filled(nn.init.uniform_, a=-1.0, b=3.0), math.sqrt((1 - 3 + 9) / 3)),
    "constant": (filled(nn.init.constant_, val=-0.3), 0.3),
    "kaiming, fan-out": (
        filled(nn.init.kaiming_normal_, mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 600),
    ),
    "xavier": (filled(nn.init.xavier_uniform_), math.sqrt(2 / 1000)),
    "truncated far out": (filled(nn.init.trunc_normal_, std=0.02), 0.02),
    # 1 - 2 x phi(x) / (2 Phi(x) - 1) at x = 1 is the variance between -1 and 1.
    "truncated": (
        filled(nn.init.trunc_normal_, std=1.0, a=-1.0, b=1.0),
        math.sqrt(1 - 2 * math.exp(-0.5) / math.sqrt(2 * math.pi) / math.erf(2**-0.5)),
    ),
    "orthogonal": (filled(nn.init.orthogonal_, gain=2.0), 2 / math.sqrt(600)),
    "eye": (filled(nn.init.eye_), math.sqrt(400 / (600 * 400))),
    "randn times": (lambda *s: 0.02 * torch.randn(*s), 0.02),
    "rand shifted": (lambda *s: (torch.rand(*s) - 0.5) * 2, math.sqrt(1 / 3)),
    "in parts": (in_parts, 0.5 * math.sqrt((300 * 9 + 299) / 600)),
    "bfloat16": (lambda *s: torch.randn(*s).to(torch.bfloat16) / 4, 0.25),
}  # fmt: skip


@pytest.mark.parametrize("meta", [False, True], ids=["values", "meta"])
@pytest.mark.parametrize("name", INITIALIZERS)
def test_the_root_mean_square_is_exact(name, meta):
    fill, expected = INITIALIZERS[name]
    torch.manual_seed(0)
    with torch.device("meta" if meta else "cpu"):
        model, drawn = recorded(parameter(fill, 600, 400))
    # Quantiles of truncated and transformed variables stand for them to 1 in 1000.
    assert drawn["p"].rms == approx(expected, rel=1e-3)
    if not meta:  # 240,000 entries: 0.15% for normal ones, 5 sigma
        measured = model.p.detach().double().square().mean().sqrt().item()
        assert drawn["p"].rms == approx(measured, rel=7.5e-3)


@pytest.mark.parametrize("meta", [False, True], ids=["values", "meta"])
def test_state_space_models(meta):
    """arange, logarithms and one draw used twice: fixed, whatever the width."""
    with torch.device("meta" if meta else "cpu"):
        _, decay = recorded(
            parameter(lambda *s: torch.log(torch.arange(1, s[1] + 1.0).repeat(s[0], 1)), 8, 16)
        )
        _, steps = recorded(parameter(time_steps, 8))
    exact = math.sqrt(sum(math.log(k) ** 2 for k in range(1, 17)) / 16)
    assert decay["p"].rms == approx(exact)
    torch.manual_seed(0)
    sample = time_steps(1 << 20).double().square().mean().sqrt().item()
    assert steps["p"].rms == approx(sample, rel=2e-3)


def test_layers_of_torch_as_they_come():
    def make():
        return nn.ModuleDict(
            {
                "embedding": nn.Embedding(50, 64, padding_idx=0),
                "attention": nn.MultiheadAttention(64, 4),
                "lstm": nn.LSTM(32, 64),
                "norm": nn.utils.parametrizations.weight_norm(nn.Linear(300, 200)),
                "up": nn.ConvTranspose2d(4, 8, 3),
                "encoder": nn.TransformerEncoder(
                    nn.TransformerEncoderLayer(32, 4), 2, enable_nested_tensor=False
                ),
            }
        )

    torch.manual_seed(0)
    model, drawn = recorded(make)
    for name, p in model.named_parameters():
        size = p.detach().double().square().mean().sqrt().item()
        error = 5 * math.sqrt(2 / (4 * p.numel()))
        assert size == approx(drawn[name].rms, rel=max(error, 1e-6), abs=1e-12), name
    assert drawn["embedding.weight"].rms == approx(math.sqrt(49 / 50))


def test_a_table_with_a_row_for_padding_is_known_exactly():
    """A few hundred numbers alone would leave three laws open."""

    def make(width):
        table = nn.Embedding(20, width)
        nn.init.normal_(table.weight, std=0.02)
        nn.init.zeros_(table.weight[0])
        return nn.Sequential(table, nn.Linear(width, 4))

    for seed in range(5):
        torch.manual_seed(seed)
        (base, of_base), (model, of_model) = (recorded(lambda w=w: make(w)) for w in (12, 24))
        plan = depthmup.plan(
            model, base=base, drawn=(of_model, of_base), example_inputs=torch.arange(8)
        )
        assert plan.own_laws["0.weight"].ratio == 1, seed
        plan.initialize(model)


def test_an_unknown_source_is_not_guessed():
    given = torch.randn(8, 8)
    _, drawn = recorded(parameter(lambda: given.clone()))
    assert drawn == {}
    _, drawn = recorded(parameter(lambda: torch.randn(8, 8) + torch.randn(8, 8)))
    assert drawn == {}


UNKNOWN = {
    "a mean for each entry": lambda *s: torch.normal(torch.zeros(*s), 0.02),
    "a deviation for each entry": lambda *s: torch.normal(0.0, torch.full(s, 0.02)),
    "several at once": lambda *s: scaled_at_once(torch.randn(*s)),
    "whole numbers": lambda *s: (3 * torch.rand(*s)).int().float(),
    "yes or no": lambda *s: (0.02 * torch.randn(*s)).bool().float(),
    "a matrix and its transpose": lambda n, _: symmetric(torch.randn(n, n)),
    "two halves": lambda *s: product_of_halves(torch.randn(*s)),
}


def symmetric(matrix):
    return matrix + matrix.t()


def product_of_halves(tensor):
    tensor[-2:] = 0.0
    return tensor[: len(tensor) // 2 - 1] * tensor[len(tensor) // 2 - 1 : -2]


def scaled_at_once(tensor):
    torch._foreach_mul_([tensor], 0.02)
    return tensor


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_law_of_other_arguments_is_not_taken(name):
    """Entries of size 0.02 were recorded as of size 1, sums of two draws as twice one."""
    _, drawn = recorded(parameter(UNKNOWN[name], 600, 400))
    assert drawn == {}


def test_nothing_is_left_behind():
    before = nn.init._no_grad_trunc_normal_
    with pytest.raises(RuntimeError, match="broken"), InitRecorder():
        raise RuntimeError("broken")
    assert nn.init._no_grad_trunc_normal_ is before
    torch.manual_seed(0)
    seen, _ = recorded(lambda: nn.Linear(4, 4))
    torch.manual_seed(0)
    assert torch.equal(seen.weight, nn.Linear(4, 4).weight)


def test_a_hypothesis_of_what_modules_draw_themselves():
    model = nn.Sequential(nn.Linear(16, 4), nn.MultiheadAttention(8, 2))
    expected = recorded(lambda: nn.Sequential(nn.Linear(16, 4), nn.MultiheadAttention(8, 2)))[1]
    assert {k: d.rms for k, d in by_default(model).items()} == approx(
        {k: d.rms for k, d in expected.items()}
    )


def sizes(width, depth):
    return recorded(lambda: ResidualMLP(width, depth))


class TestPlans:
    @pytest.mark.parametrize("seed", range(20))
    def test_few_numbers_are_told_exactly(self, seed):
        """Widths of 4 and 6, biases of two numbers: nothing to estimate, nothing refused."""
        torch.manual_seed(seed)
        (model, ours), (base, theirs) = sizes(6, 3), sizes(4, 2)
        plan = depthmup.plan(model, base=base, example_inputs=vectors(), drawn=(ours, theirs))
        assert not any("refuse" in note for note in plan.notes)
        for name, matrix in (("blocks.0.up.bias", 4 / 6), ("out.bias", 4 / 6), ("inp.bias", 1)):
            assert plan.own_laws[name].ratio == approx(matrix**0.5, rel=1e-9)
        plan.initialize(model)

    def test_both_on_meta(self):
        with torch.device("meta"):
            (model, ours), (base, theirs) = sizes(64, 8), sizes(16, 2)
        plan = depthmup.plan(model, base=base, example_inputs=vectors(), drawn=(ours, theirs))
        torch.manual_seed(0)
        real = ResidualMLP(64, 8)
        weight = real.blocks[3].up.weight.detach().clone()
        plan.initialize(real)
        torch.testing.assert_close(real.blocks[3].up.weight.detach(), weight)  # 1/sqrt(fan-in)

    def test_a_taper_over_layers_is_divided_out(self):
        """torchtitan, 0.02 / sqrt(2 (layer + 1)); each layer starts as its pair."""

        def make(width, depth):
            model = Transformer(width, depth)
            for i, block in enumerate(model.blocks):
                for linear in (block.attention.proj, block.mlp[2]):
                    nn.init.trunc_normal_(linear.weight, std=0.02 / (2 * (i + 1)) ** 0.5)
            return model

        tokens = torch.zeros(2, 8, dtype=torch.long)
        (model, ours), (base, theirs) = (recorded(lambda s=s: make(*s)) for s in ((32, 8), (16, 2)))
        plan = depthmup.plan(
            model, base=base, scheme="completep", example_inputs=tokens, drawn=(ours, theirs)
        )
        assert not any("refuse" in note for note in plan.notes)
        for i in range(8):
            name = f"blocks.{i}.attention.proj.weight"
            counterpart = int(plan[name].base_name.split(".")[1])
            assert plan.own_laws[name].ratio == approx(
                ((counterpart + 1) / (i + 1)) ** 0.5, rel=1e-6
            )
        assert {int(plan[f"blocks.{i}.mlp.2.weight"].base_name[7]) for i in range(4)} == {0}

    def test_weights_that_were_changed_since_are_measured(self):
        (model, ours), (base, theirs) = sizes(64, 2), sizes(16, 2)
        plan = depthmup.plan(model, base=base, example_inputs=vectors(), drawn=(ours, theirs))
        with torch.no_grad():
            model.out.weight.mul_(2.0)  # its start is now that of the base
        before = model.out.weight.detach().clone()
        plan.initialize(model)
        torch.testing.assert_close(model.out.weight.detach(), before / 4)

    def test_biases_drawn_as_zero_fit_whatever_was_declared(self):
        """Every norm's: a ratio of zero to zero says nothing."""

        def make(width, depth):
            layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)]
            return nn.Sequential(
                nn.Linear(6, width), *layers, nn.LayerNorm(width), nn.Linear(width, 3)
            )

        (model, ours), (base, theirs) = (recorded(lambda w=w: make(w, 2)) for w in (32, 8))
        plan = depthmup.plan(
            model, base=base, example_inputs=vectors(), drawn=(ours, theirs), own_init="fan_in",
        )  # fmt: skip
        assert plan.own_laws["3.bias"].ratio == plan.own_laws["3.weight"].ratio == 1
        assert plan.own_laws["1.0.weight"].ratio == approx((8 / 32) ** 0.5)

    def test_what_was_drawn_is_saved_with_the_plan(self, tmp_path):
        with torch.device("meta"):
            (model, ours), (base, theirs) = sizes(64, 8), sizes(16, 2)
        plan = depthmup.plan(model, base=base, example_inputs=vectors(), drawn=(ours, theirs))
        plan.save(tmp_path / "plan.json")
        assert depthmup.Plan.load(tmp_path / "plan.json") == plan


def test_a_sparse_buffer_is_left_alone():
    class Masked(nn.Linear):
        def __init__(self, width):
            super().__init__(width, 4)
            self.register_buffer("mask", torch.eye(3).to_sparse(), persistent=False)

    drawn = recorded(lambda: Masked(8))[1]
    assert set(drawn) == {"weight", "bias"}
