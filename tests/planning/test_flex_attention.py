"""``flex_attention``: logits, and a person's own function of them, as in attention by hand."""

import pytest
import torch
from planning_zoo import VOCABULARY, tokens
from pytest import approx
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import depthmup
from depthmup.planning import Where

HEADS, LENGTH = 2, tokens().shape[-1]


class Attention(nn.Module):
    def __init__(self, width, how):
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.v, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.how, self.head = how, width // HEADS
        if how == "table":
            self.bias = nn.Parameter(torch.zeros(HEADS, 2 * LENGTH))

    def options(self):
        if self.how == "distance":
            return {"score_mod": lambda score, b, h, i, j: score - (i - j).abs()}
        if self.how == "table":
            return {"score_mod": lambda score, b, h, i, j: score + self.bias[h, i - j + LENGTH]}
        if self.how == "own scale":
            return {"score_mod": lambda score, b, h, i, j: score * self.head**-0.5}
        if self.how == "fixed scale":
            return {"scale": 0.25}
        if self.how == "causal":
            mask = create_block_mask(
                lambda b, h, i, j: i >= j, None, None, LENGTH, LENGTH, device="cpu"
            )
            return {"block_mask": mask}
        return {}

    def forward(self, x):
        q, k, v = (
            linear(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        y = flex_attention(q, k, v, **self.options())
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


class Model(nn.Module):
    def __init__(self, width, how):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.block, self.head = Attention(width, how), nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        return self.head(self.block(self.tokens(ids)))


def planned(how):
    return depthmup.plan(
        Model(64, how), base=Model(16, how), example_inputs=tokens(), scheme="completep"
    )


@pytest.mark.parametrize(
    ("how", "value"),
    [
        ("plain", 0.5),
        ("distance", 0.5),
        ("table", 0.5),
        ("causal", 0.5),
        ("fixed scale", 0.25),
        ("own scale", None),
    ],
)
def test_logits_follow_the_size_of_heads(how, value):
    """1/sqrt(d) as it comes, times 1/2; a fixed scale needs 1/4; its square is 1/d already."""
    plan = planned(how)
    logits = [m for m in plan.multipliers if m.where is Where.LOGITS]
    assert [m.value for m in logits] == ([approx(value)] if value else [])
    assert not plan.notes


def test_what_a_function_of_scores_closes_over_is_seen():
    bias = planned("table")["block.bias"]
    assert bias.role.in_branch
    assert (bias.init, bias.folded) == (1.0, 1.0)
