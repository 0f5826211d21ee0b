"""Products of two activations: attention in every form, towers, and where their factor can go."""

import pytest
import torch
from planning_zoo import VOCABULARY, tokens, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood, Where
from tests.zoo.attention import HEADS, Attention, Language


def planned(make, target=64, base=16, scheme="depth-mup", **options):
    return depthmup.plan(
        Language(target, make),
        base=Language(base, make),
        example_inputs=tokens(),
        scheme=scheme,
        **options,
    )


def logits(plan):
    return [m for m in plan.multipliers if m.where is Where.LOGITS]


def test_a_scale_that_follows_width_while_the_heads_do_not_grow():
    """1/sqrt(width) with heads of fixed size would shrink the logits."""

    class Fixed(Attention):
        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (
                linear(x).view(batch, length, -1, 8).transpose(1, 2)
                for linear in (self.q, self.k, self.v)
            )
            y = ((q @ k.transpose(-1, -2)) * self.scale).softmax(-1) @ v
            return x + self.out(y.transpose(1, 2).reshape(batch, length, width))

    plan = planned(lambda w: Fixed(w, "softmax", scale=lambda width: width**-0.5))
    assert [m.value for m in logits(plan)] == [approx(2.0)] * 2
    assert not logits(planned(lambda w: Fixed(w, "softmax", scale=lambda width: 0.3)))


class FusedByUnbind(nn.Module):
    """timm's attention: one matrix for queries, keys and values, unpacked by ``unbind``."""

    def __init__(self, width):
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(y.transpose(1, 2).reshape(batch, length, width))


class OneTensorTwice(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qk, self.v = nn.Linear(width, width), nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        qk = self.qk(x)
        return x + self.proj(F.scaled_dot_product_attention(qk, qk, self.v(x)))


def test_a_factor_of_queries_is_not_folded_into_keys():
    """Queries and keys are one tensor: a factor of both would count twice."""
    with pytest.raises(NotUnderstood, match=r"attention logits, scores. at blocks"):
        planned(OneTensorTwice)


def test_distances_over_a_growing_dimension_are_refused():
    class Distance(Attention):
        def forward(self, x):
            return x + self.out((-torch.cdist(self.q(x), self.k(x))).softmax(-1) @ self.v(x))

    with pytest.raises(NotUnderstood, match="distance"):
        planned(lambda w: Distance(w, "softmax"))


def test_weights_over_channels_are_a_mean():
    """Attention between channels sums over tokens, then averages over channels: nothing grows."""

    class Channels(Attention):
        def forward(self, x):
            weights = (self.q(x).transpose(1, 2) @ self.k(x)).softmax(-1)
            return x + self.out((weights @ self.v(x).transpose(1, 2)).transpose(1, 2))

    assert not logits(planned(lambda w: Channels(w, "softmax")))


class Towers(nn.Module):
    """Two towers whose outputs are multiplied into a score."""

    def __init__(self, width, how):
        super().__init__()
        self.one = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width))
        self.two = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width))
        self.how = how

    def forward(self, x):
        u, v = self.one(x), self.two(x)
        if self.how == "cosine":
            return F.normalize(u, dim=-1) @ F.normalize(v, dim=-1).t()
        if self.how == "matrix":
            return u @ v.t()
        return (u * v).mean(-1) if self.how == "mean" else (u * v).sum(-1)


@pytest.mark.parametrize(
    ("how", "value"), [("matrix", 0.25), ("sum", 0.25), ("mean", None), ("cosine", None)]
)
def test_towers_multiplied_into_a_score(how, value):
    """A sum over n coordinates that learn to agree: 1/n, of which a mean has all."""
    plan = depthmup.plan(Towers(64, how), base=Towers(16, how), example_inputs=vectors())
    assert [m.value for m in logits(plan)] == ([approx(value)] if value else [])
    if value:
        assert set(logits(plan)[0].folds) == {"one.2.weight", "one.2.bias"}


class FusedBySplit(FusedByUnbind):
    """nanoGPT's and GPT-2's attention."""

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, HEADS, -1).transpose(1, 2)
            for t in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(y.transpose(1, 2).reshape(batch, length, width))


class FusedByHeads(FusedByUnbind):
    """GPT-NeoX's and BLOOM's attention: queries, keys and values of each head side by side."""

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, HEADS, -1).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(y.transpose(1, 2).reshape(batch, length, width))


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (FusedByUnbind, ((0, 64),)),
        (FusedBySplit, ((0, 64),)),
        (FusedByHeads, ((0, 32), (96, 128))),
    ],
)
def test_queries_inside_a_fused_matrix_are_scaled_apart(make, part, tmp_path):
    """A hook multiplies the queries' coordinates; keys and values stay as they are."""
    plan = planned(make)
    assert [m.value for m in logits(plan)] == [approx(0.5)] * 2
    assert [m.hooks[0].part for m in logits(plan)] == [part] * 2
    assert plan["blocks.0.qkv.weight"].folded == 1
    model = Language(64, make).double()
    plan.initialize(model)
    ids = torch.randint(0, VOCABULARY, (2, 8))
    expected = model(ids)
    plain = Language(64, make).double()
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        for block in plain.blocks:
            for start, stop in part:
                block.qkv.weight[start:stop] /= 2
                block.qkv.bias[start:stop] /= 2
    torch.testing.assert_close(plain(ids), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plan.export(model)(ids), expected, rtol=1e-12, atol=1e-12)
    plan.save(tmp_path / "plan.json")
    assert depthmup.Plan.load(tmp_path / "plan.json").multipliers == plan.multipliers


def test_queries_that_something_else_reads_are_not_scaled():
    class ReadTwice(FusedBySplit):
        def forward(self, x):
            qkv = self.qkv(x)
            q, k, v = qkv.chunk(3, -1)
            return x + self.proj(F.scaled_dot_product_attention(q, k, v) + qkv.sum())

    with pytest.raises(NotUnderstood, match=r"attention logits, scores. at blocks"):
        planned(ReadTwice)


class Tutorial(nn.Module):
    """``nn.MultiheadAttention``, whose queries' weights are a part of one parameter."""

    def __init__(self, width):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, HEADS, batch_first=True)

    def forward(self, x):
        return x + self.attn(x, x, x, need_weights=False)[0]


def test_torchs_own_attention_has_its_queries_scaled(tmp_path):
    plan = planned(Tutorial)
    assert [m.value for m in logits(plan)] == [approx(0.5)] * 2
    model = Language(64, Tutorial).double()
    plan.initialize(model)
    ids = torch.randint(0, VOCABULARY, (2, 8))
    expected = model(ids)
    expected.sum().backward()
    plain = Language(64, Tutorial).double()
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        for block in plain.blocks:
            block.attn.in_proj_weight[:64] /= 2
            block.attn.in_proj_bias[:64] /= 2
    torch.testing.assert_close(plain(ids), expected, rtol=1e-12, atol=1e-12)
    plain(ids).sum().backward()
    grads = [m.blocks[0].attn.in_proj_weight.grad for m in (model, plain)]
    torch.testing.assert_close(grads[0][:64], grads[1][:64] / 2)
    torch.testing.assert_close(grads[0][64:], grads[1][64:])
    model.eval(), plain.eval()
    with torch.no_grad():  # torch has another, fused path here
        torch.testing.assert_close(plain(ids), model(ids), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plan.export(model)(ids), expected, rtol=1e-12, atol=1e-12)
    plan.save(tmp_path / "plan.json")
    assert depthmup.Plan.load(tmp_path / "plan.json").multipliers == plan.multipliers
    assert isinstance(model.blocks[0].attn.in_proj_weight, nn.Parameter)
    plan.detach(model)
    assert not torch.allclose(model(ids), expected)


def test_torchs_encoder_as_in_the_tutorials():
    """Pre-norm layers; training, and evaluation, where torch has a fused path of its own."""

    def layer(width):
        return nn.TransformerEncoderLayer(
            width, HEADS, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )

    plan = planned(layer)
    model = Language(64, layer).double()
    plan.initialize(model)
    ids = torch.randint(0, VOCABULARY, (2, 8))
    training = model(ids)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(ids), training, rtol=1e-12, atol=1e-12)
    assert [m.value for m in logits(plan)] == [approx(0.5)] * 2
