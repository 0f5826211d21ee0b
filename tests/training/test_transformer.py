"""The transformer: against another implementation, and under every scheme's plan."""

import runpy
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path

import pytest
import torch
from pytest import approx

import depthmup
from depthmup import tracing
from depthmup.models import Transformer, TransformerConfig
from depthmup.planning import Where, recorded
from depthmup.rules import CATALOGUE, Kind, Role
from depthmup.training.built_in.transformer import rotate, rotation

ROOT = Path(__file__).parents[2]
CHOICES = {
    "norm": ("rms", "layer", "none"),
    "qk_norm": (False, True),
    "positions": ("rotary", "learned"),
    "mlp": ("gelu", "swiglu"),
    "tied": (False, True),
    "group_size": (1, 2),
}
ALL = [dict(zip(CHOICES, chosen, strict=True)) for chosen in product(*CHOICES.values())]
# Every choice of every option, each at least once with and without most of the others.
SOME = [
    {},
    {"norm": "layer", "positions": "learned", "tied": True, "group_size": 2},
    {"norm": "none", "qk_norm": True, "mlp": "swiglu", "group_size": 2},
    {"norm": "rms", "qk_norm": True, "positions": "learned", "mlp": "swiglu", "tied": True},
]
SCHEMES = [*(scheme.name for scheme in CATALOGUE), "3/4,1/4"]
LAST = ("attention.output.weight", "mlp.down.weight")


def named(options):
    return "-".join(f"{key}={value}" for key, value in options.items()) or "default"


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(width=32, depth=2, seed=0, **options):
    sizes = {"vocabulary": 19, "head_size": 8, "length": 16}
    config = TransformerConfig(width=width, depth=depth, **{**sizes, **options})
    return Transformer(config, generator=seeded(seed))


TOKENS = torch.randint(19, (3, 12), generator=seeded(1))


def reference(model, tokens):
    """The same network from its weights alone, head by head, rotations as complex numbers."""
    c, w = model.config, model.state_dict()
    length = tokens.shape[1]

    def normed(x, name):
        if f"{name}.weight" not in w:
            return x
        if f"{name}.bias" in w:
            x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return x * w[f"{name}.weight"] + w.get(f"{name}.bias", 0)

    def turned(x):
        if c.positions == "learned":
            return x
        half = c.head_size // 2
        frequency = 10_000 ** -(torch.arange(half, dtype=x.dtype) / half)
        angle = torch.arange(length, dtype=x.dtype)[:, None] * frequency
        z = torch.complex(x[..., :half], x[..., half:]) * torch.exp(1j * angle)
        return torch.cat([z.real, z.imag], -1)

    def product_with(x, name):
        return torch.einsum("btn,mn->btm", x, w[f"{name}.weight"])

    x = w["tokens.weight"][tokens]
    if c.positions == "learned":
        x = x + w["positions.weight"][:length]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    scale = 1 / sqrt(c.head_size) if c.attention_scale is None else c.attention_scale
    for layer in (f"layers.{i}" for i in range(c.depth)):
        at = f"{layer}.attention"
        u = normed(x, f"{at}_norm")
        q, k, v = (product_with(u, f"{at}.{name}") for name in ("query", "key", "value"))
        heads = []
        for head in range(c.width // c.head_size):
            mine = slice(head * c.head_size, (head + 1) * c.head_size)
            shared = head // c.group_size
            theirs = slice(shared * c.head_size, (shared + 1) * c.head_size)
            qh = turned(normed(q[..., mine], f"{at}.query_norm"))
            kh = turned(normed(k[..., theirs], f"{at}.key_norm"))
            scores = scale * torch.einsum("btd,bsd->bts", qh, kh)
            weights = scores.masked_fill(future, -torch.inf).softmax(-1)
            heads.append(torch.einsum("bts,bsd->btd", weights, v[..., theirs]))
        x = x + product_with(torch.cat(heads, -1), f"{at}.output")
        u = normed(x, f"{layer}.mlp_norm")
        up = product_with(u, f"{layer}.mlp.up")
        if c.mlp == "swiglu":
            gate = product_with(u, f"{layer}.mlp.gate")
            up = up * gate / (1 + torch.exp(-gate))
        else:
            up = up * 0.5 * (1 + torch.erf(up / sqrt(2)))
        x = x + product_with(up, f"{layer}.mlp.down")
    return product_with(normed(x, "norm"), "readout")


class TestForward:
    @pytest.mark.parametrize("options", ALL, ids=named)
    def test_as_another_implementation(self, options):
        """Also with gains and biases away from 1 and 0."""
        model = network(**options).double()
        with torch.no_grad():
            for name, p in model.named_parameters():
                if p.dim() == 1:
                    p.add_(torch.randn(p.shape, generator=seeded(len(name)), dtype=p.dtype) * 0.3)
        torch.testing.assert_close(model(TOKENS), reference(model, TOKENS), rtol=1e-9, atol=1e-9)

    def test_the_attention_scale(self):
        model = network(attention_scale=0.7).double()
        logits = model(TOKENS)
        torch.testing.assert_close(logits, reference(model, TOKENS), rtol=1e-9, atol=1e-9)
        assert not torch.allclose(logits, network().double()(TOKENS), atol=1e-3)

    @pytest.mark.parametrize("options", SOME, ids=named)
    def test_later_tokens_change_nothing_before_them(self, options):
        model, other = network(**options).double(), TOKENS.clone()
        other[:, 7] = (other[:, 7] + 1) % 19
        before, after = model(TOKENS), model(other)
        torch.testing.assert_close(after[:, :7], before[:, :7], rtol=1e-12, atol=1e-12)
        assert ((after - before)[:, 7:].abs().amax(-1) > 1e-6).all()

    def test_rotated_products_depend_on_distance_alone(self):
        like = torch.zeros(1, dtype=torch.float64)
        q, k = torch.randn(2, 8, generator=seeded(), dtype=torch.float64)
        cos, sin = rotation(40, 8, like)
        scores = rotate(q.expand(40, 8), cos, sin) @ rotate(k.expand(40, 8), cos, sin).T
        for distance in range(-20, 21):
            diagonal = scores.diagonal(distance)
            torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
        assert scores[0].unique().numel() == 40

    def test_learned_positions_end(self):
        assert network()(TOKENS.repeat(1, 4)).shape == (3, 48, 19)
        with pytest.raises(ValueError, match=r"at most 16 tokens.*got 24\. .*length=24"):
            network(positions="learned")(TOKENS.repeat(1, 2))


class TestInitialization:
    def test_sizes(self):
        """Standard deviations within 5 sigma: their relative error is 1/sqrt(2 * entries)."""
        for tied in (False, True):
            model = network(64, 3, tied=tied, positions="learned", norm="layer", mlp="swiglu")
            for name, p in model.named_parameters():
                if p.dim() == 1:
                    assert torch.equal(p, torch.full_like(p, name.endswith("weight")))
                    continue
                table = name in ("tokens.weight", "positions.weight") and not tied
                expected = 1.0 if table else p.shape[1] ** -0.5
                rms = p.detach().square().mean().sqrt()
                assert rms == approx(expected, rel=5 / sqrt(2 * p.numel()))

    @pytest.mark.parametrize("options", SOME, ids=named)
    def test_a_deeper_network_begins_with_the_shallow_one(self, options):
        shallow, deep = (network(depth=d, **options).state_dict() for d in (2, 5))
        for name, p in shallow.items():
            assert torch.equal(deep[name], p), name
        assert not torch.equal(*(deep[f"layers.{i}.mlp.up.weight"] for i in (1, 2)))

    def test_the_generator_alone_decides(self):
        torch.manual_seed(0)
        untouched = torch.get_rng_state()
        one, same, other = network(), network(), network(seed=1)
        assert torch.equal(torch.get_rng_state(), untouched)
        assert torch.equal(one(TOKENS), same(TOKENS))
        assert not torch.equal(one(TOKENS), other(TOKENS))
        by_default = []
        for _ in range(2):
            torch.manual_seed(3)
            by_default.append(Transformer(one.config)(TOKENS))
        assert torch.equal(*by_default)

    def test_by_way_of_the_meta_device(self):
        direct = network(norm="layer", qk_norm=True)
        with torch.device("meta"):
            model = network(norm="layer", qk_norm=True)
        assert all(p.is_meta for p in model.parameters())
        model.to_empty(device="cpu").initialize(seeded())
        assert torch.equal(model(TOKENS), direct(TOKENS))


@cache
def read(width, depth, **options):
    """What a network of this size is: the same for every scheme, optimizer and form."""
    return tracing.read(network(width, depth, **options), TOKENS)


def planned(options, *, base=(16, 1), target=(32, 2), **settings):
    (small, base_drawn), (model, drawn) = (
        recorded(lambda size=size: network(*size, **options)) for size in (base, target)
    )
    facts = depthmup.PlanOptions(facts=(read(*target, **options), read(*base, **options)))
    return model, depthmup.plan(
        model, base=small, example_inputs=TOKENS, drawn=(drawn, base_drawn), options=facts,
        **settings,
    )  # fmt: skip


def expected_role(name, tied):
    if name == "tokens.weight":
        return Role(kind=Kind.READOUT, tied=True) if tied else Role(kind=Kind.INPUT)
    inside = name.startswith("layers.")
    if "norm" in name:
        return Role(kind=Kind.VECTOR, in_branch=inside)
    if inside:
        return Role(kind=Kind.HIDDEN, in_branch=True, last=name.endswith(LAST))
    return Role(kind=Kind.INPUT if name == "positions.weight" else Kind.READOUT)


class TestPlan:
    @pytest.mark.long
    @pytest.mark.parametrize("options", ALL, ids=named)
    def test_branches_and_roles(self, options):
        """Two branches for each layer; the last matrix of each carries its multiplier."""
        _, plan = planned(options, scheme="completep", optimizer="adamw")
        branches = [m for m in plan.multipliers if m.where is Where.BRANCH]
        folded = [name for m in branches for name in m.folds]
        assert sorted(folded) == sorted(f"layers.{i}.{name}" for i in (0, 1) for name in LAST)
        assert all(m.value == 0.5 for m in branches)
        assert plan.notes == ()
        for p in plan.prescriptions:
            assert p.role == expected_role(p.name, options["tied"]), p.name

    @pytest.mark.long
    @pytest.mark.parametrize("options", SOME, ids=named)
    @pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_at_the_base_every_factor_is_one(self, scheme, optimizer, options):
        _, plan = planned(options, target=(16, 1), scheme=scheme, optimizer=optimizer)
        assert plan.multipliers == ()
        for p in plan.prescriptions:
            assert (p.init, p.lr, p.epsilon, p.decay, p.folded) == (1, 1, 1, 1, 1), p.name

    @pytest.mark.long
    @pytest.mark.parametrize("options", SOME, ids=named)
    @pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_it_trains(self, scheme, optimizer, options):
        model, plan = planned(options, scheme=scheme, optimizer=optimizer)
        plan.initialize(model)
        if optimizer == "muon":
            groups = plan.muon_groups(model, lr=0.02, adamw_lr=3e-3)
            optimizers = [torch.optim.Muon(groups.muon), torch.optim.AdamW(groups.adamw)]
        else:
            kind, lr = (torch.optim.SGD, 0.05) if optimizer == "sgd" else (torch.optim.AdamW, 3e-3)
            optimizers = [kind(plan.param_groups(model, lr=lr))]
        losses = []
        for _ in range(4):
            logits = model(TOKENS[:, :-1]).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, TOKENS[:, 1:].flatten())
            model.zero_grad()
            loss.backward()
            for each in optimizers:
                each.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]

    @pytest.mark.parametrize("options", SOME, ids=named)
    def test_folded_equals_explicit(self, options):
        """The same losses in double precision, and others without the multipliers."""

        def losses(folding, spoil=False):
            model, plan = planned(options, scheme="depth-mup", folding=folding)
            plan.initialize(model)
            model.double()
            if spoil:
                plan.detach(model)
            optimizer = torch.optim.AdamW(plan.param_groups(model, lr=3e-3, eps=1e-3))
            result = []
            for _ in range(4):
                loss = model(TOKENS).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                result.append(loss.item())
            return result

        explicit = losses(False)
        assert losses(True) == approx(explicit, rel=1e-6)  # initialized in single precision
        assert losses(False, spoil=True) != approx(explicit, rel=1e-4)

    @pytest.mark.parametrize("options", SOME, ids=named)
    def test_growing_heads(self, options):
        """Logits get another 1/sqrt(ratio), unless the model's own scale has it."""

        def logits(own):
            small, model = (
                network(n, 1, **options, head_size=n // 2, attention_scale=own(n // 2))
                for n in (16, 64)
            )
            plan = depthmup.plan(model, base=small, example_inputs=TOKENS, own_init="fan_in")
            return [m.value for m in plan.multipliers if m.where is Where.LOGITS]

        assert logits(lambda d: None) == approx([0.5])
        assert logits(lambda d: 1 / d) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "at least 1; got width=0"),
        ({"depth": 0}, "at least 1; got depth=0"),
        ({"length": 0}, "at least 1; got length=0"),
        ({"width": 36}, r"a multiple of head_size \* group_size = 8 \* 1; got 36"),
        ({"group_size": 3}, r"a multiple of head_size \* group_size = 8 \* 3; got 32"),
        ({"head_size": 1}, "an even head_size; got 1"),
        ({"attention_scale": 0.0}, "a positive attention_scale, or None; got 0.0"),
        ({"attention_scale": float("nan")}, "a positive attention_scale, or None; got nan"),
        ({"norm": "batch"}, "norm to be one of layer, rms, none; got 'batch'"),
        ({"positions": "alibi"}, "positions to be one of rotary, learned; got 'alibi'"),
        ({"mlp": "relu"}, "mlp to be one of gelu, swiglu; got 'relu'"),
    ],
)
def test_bad_input(wrong, message):
    with pytest.raises(ValueError, match=message):
        network(**wrong)


def test_the_example_from_the_shell(monkeypatch, capsys):
    from depthmup.cli import plan as verb

    monkeypatch.chdir(ROOT)
    verb.run(verb.Options(model="examples/transformer.py:make", base=("32x1",), target=("64x2",)))
    assert "last of branch" in capsys.readouterr().out


@pytest.mark.long
def test_the_example_transfers():
    """The small network's rate does better in the large one with the plan than without."""
    done = runpy.run_path(str(ROOT / "examples" / "transformer.py"))["main"](steps=4)
    assert done["planned"] < done["small"]
    assert done["planned"] < done["plain"]
