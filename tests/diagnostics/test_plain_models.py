"""Plain torch models with default initialization, and what used to be failed or missed."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from depthmup.diagnostics import check, locate, planned
from depthmup.diagnostics.effects import independent_inputs
from depthmup.diagnostics.grid import staircase
from depthmup.model import Model
from depthmup.records import Outcome
from depthmup.rules import CATALOGUE, Family, Kind, Observable, Role, completep, predict
from depthmup.tracing import parameters
from studies import faults
from studies.plain import examine
from studies.plain import planned as planned_plain
from tests.zoo import plain

SIZES = {"widths": (32, 64, 128), "depths": (2, 4, 8), "seeds": 3, "steps": 2}


def outcomes(result, observable, axis):
    return {
        e.module: e.outcome
        for e in result.exponents
        if (e.observable, e.axis) == (str(observable), axis)
    }


def test_there_are_twenty():
    assert len(plain.PLAIN) == 20


@pytest.mark.long
@pytest.mark.parametrize("name", plain.PLAIN)
def test_every_one_is_planned_and_initialized(name):
    made, model = planned_plain(name, width=32)
    assert not any("refuse" in note for note in made.notes)
    made.initialize(model)


@pytest.mark.long
@pytest.mark.parametrize("name", plain.PLAIN)
def test_every_one_is_checked_with_no_flag(name):
    result = examine(name, steps=2)
    assert result.outcome is not Outcome.FAIL, result.failures


class Both(nn.Module):
    """Two branches of bare parameters, added in one module: no module shows either."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second, self.third, self.fourth = (
            nn.Parameter(torch.randn(width, width) / width**0.5) for _ in range(4)
        )

    def forward(self, x):
        x = x + F.relu(F.layer_norm(x, x.shape[-1:]) @ self.first) @ self.second
        return x + F.relu(F.layer_norm(x, x.shape[-1:]) @ self.third) @ self.fourth


class Half(nn.Module):
    """A module and a bare parameter behind it: what the module gives is not what is added."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Parameter(torch.randn(width, 2 * width) / (2 * width) ** 0.5)

    def forward(self, x):
        return x + F.linear(F.relu(self.up(self.norm(x))), self.down)


class TestBranches:
    @pytest.mark.parametrize("block", [Half, plain.LayerScale, plain.Functional])
    def test_a_branch_is_what_is_added_and_not_what_a_module_gives(self, block):
        """The multiplier is folded behind the module: its output has none."""
        make = plain.mlp(block)
        result = check(Model(make=make, batch=plain.vectors), scheme="completep", **SIZES)
        assert result.outcome is not Outcome.FAIL, result.failures
        (outcome,) = outcomes(result, Observable.BRANCH, "depth").values()
        assert outcome is Outcome.PASS

    def test_the_difference_is_the_branch(self):
        torch.manual_seed(0)
        model, x = plain.mlp(Half)(16, 2), torch.randn(4, plain.FEATURES)
        point = next(p for p in locate(model, x).points if p.module == "blocks.0")
        assert (point.side, point.index, point.subtracted) == ("difference", 0, 0)

    def test_a_stream_that_grows_with_depth_fails_though_its_branches_are_not_in_view(self):
        def spoiled(model, made, lr):
            optimizers = planned(model, made, lr)
            weights = parameters(model)
            with torch.no_grad():  # as if there were no multiplier
                for p in made.prescriptions:
                    if p.role.last:
                        weights[p.name].mul_(p.ratios.depth)
            return optimizers

        subject = Model(make=plain.mlp(Both), batch=plain.vectors)
        right = check(subject, scheme="completep", **SIZES)
        assert any(note.startswith("Not checked: ") for note in right.notes)
        streams = outcomes(right, Observable.STREAM, "depth")
        assert streams.pop("stream at 1 of depth") is Outcome.PASS
        wrong = check(
            subject, prepare=spoiled,
            scheme="completep", widths=(64,), depths=(2, 8, 32), seeds=3, steps=1,
        )  # fmt: skip
        assert Outcome.FAIL in outcomes(wrong, Observable.STREAM, "depth").values()

    def test_an_addition_outside_of_the_layers_is_counted(self):
        class Extra(nn.Module):
            def __init__(self, width, depth):
                super().__init__()
                self.body = plain.mlp(plain.two_matrices)(width, depth)
                self.body.end = nn.Identity()
                self.extra, self.end = plain.two_matrices(width), nn.Linear(width, plain.CLASSES)

            def forward(self, x):
                return self.end(self.extra(self.body(x)))

        result = check(Model(make=Extra, batch=plain.vectors), scheme="completep", **SIZES)
        assert result.outcome is not Outcome.FAIL, result.failures
        assert any("3, 5, 9 branches at depths 2, 4, 8" in note for note in result.notes)


class TestBounds:
    @pytest.mark.parametrize("scheme", [*CATALOGUE, completep("3/4")], ids=lambda s: s.name)
    def test_streams_do_not_grow_where_branches_are_small(self, scheme):
        prediction = predict(scheme, Family.ENTRYWISE, Observable.STREAM)
        assert prediction.at_most == (scheme.alpha > 0.5)
        assert (prediction.depth == 0) == (scheme.alpha >= 0.5)


class TestDecay:
    @pytest.mark.long
    @pytest.mark.parametrize(
        "fault", [f for f in faults.FAULTS if f.observable == "decay"], ids=lambda f: f.name
    )
    def test_a_decay_that_does_not_follow_the_rate_is_caught(self, fault):
        result, named = faults.examine(fault, seeds=2, steps=1)
        assert (result.outcome, named) == (Outcome.FAIL, True)

    def test_no_decay_is_said(self):
        result = check(
            Model(make=plain.mlp(plain.two_matrices), batch=plain.vectors),
            scheme="completep", widths=(16, 32, 64), depths=(2,), seeds=2, steps=1,
        )  # fmt: skip
        assert any("lr * decay was not checked" in note for note in result.notes)

    def test_what_is_predicted_is_what_the_scheme_gives(self):
        role = Role(kind=Kind.HIDDEN, in_branch=True)
        for family in Family:
            prediction = predict(completep(), family, Observable.DECAY, role=role)
            assert (prediction.width, prediction.depth) == (0, 0)


class TestManyInputs:
    def test_how_many_are_independent(self):
        generator = torch.Generator().manual_seed(0)
        for count in (8, 64, 256):
            x = torch.randn(count, 128, generator=generator)
            # Mean squared cosines of count^2/2 pairs, of relative error sqrt(2), around 1/n.
            error = 5 * 2 / count * count / 128
            assert 1 / independent_inputs(x) == pytest.approx(1 / count, abs=error / count + 1e-3)
            assert independent_inputs(x.repeat(4, 1)) < 1.5 * count

    @pytest.mark.long
    def test_a_right_llama_on_more_tokens_than_width_is_not_failed(self):
        transformers = pytest.importorskip("transformers")

        def llama(width, depth):
            return transformers.LlamaForCausalLM(
                transformers.LlamaConfig(
                    vocab_size=256, hidden_size=width, intermediate_size=2 * width, head_dim=16,
                    num_hidden_layers=depth, num_attention_heads=width // 16, use_cache=False,
                    num_key_value_heads=width // 16,
                )
            )  # fmt: skip

        def words(generator):
            ids, targets = (torch.randint(256, (8, 32), generator=generator) for _ in range(2))
            return {"input_ids": ids}, targets

        result = check(Model(make=llama, batch=words), scheme="completep", **SIZES)
        assert result.outcome is not Outcome.FAIL, result.failures


@pytest.mark.long
def test_the_bias_of_a_readout_is_a_part_of_the_logits():
    """Relative to a readout that starts at 1/sqrt(n), a bias of one size would grow."""
    make = plain.mlp(plain.one_matrix, norm=False)
    result = check(Model(make=make, batch=plain.vectors), scheme="depth-mup", **SIZES)
    assert outcomes(result, Observable.READOUT_UPDATE, "width")["end.bias"] is Outcome.PASS


def test_the_staircase_has_every_size_of_both_and_leaves_out_the_large_corner():
    cells = staircase((1, 2, 3, 4), (1, 2, 3, 4))
    assert len(cells) == 10
    assert {w for w, _ in cells} == {d for _, d in cells} == {1, 2, 3, 4}
    assert (4, 4) not in cells
    assert staircase((8,), (1, 2, 3)) == [(8, 1), (8, 2), (8, 3)]
