"""The coordinate check: what it passes, what it catches, what it refuses."""

import html
import json
import re
import shlex
from dataclasses import replace

import own_models
import pytest
import torch
from pytest import approx
from torch import nn

from depthmup.cli.main import main
from depthmup.diagnostics import SAMPLE, Key, as_is, check, locate, observe, spectral_norm
from depthmup.model import Model
from depthmup.models import ResidualMLP
from depthmup.planning import plan
from depthmup.records import Check, Estimate, Exponent, Outcome
from depthmup.reports.check_page import check_page
from depthmup.rules import Observable
from studies import faults

SMALL = {"widths": (16, 32, 64), "depths": (2, 4, 8), "seeds": 3, "steps": 2}


def batch(generator):
    return torch.randn(16, 6, generator=generator), torch.randint(8, (16,), generator=generator)


def make(width, depth):
    return ResidualMLP(inputs=6, width=width, depth=depth, outputs=8, multiplier=0.5)


MINE = Model(make=make, batch=batch)


def exponents(found, observable, axis):
    return {
        e.module: e.estimate.value
        for e in found.exponents
        if (e.observable, e.axis) == (observable, axis)
    }


# The slowest architecture is left to studies/faults.py, which runs all of them.
QUICK = [f for f in faults.FAULTS if f.architecture.startswith("mlp")]
SLOW = [f for f in faults.FAULTS if not f.architecture.startswith("mlp")]


def test_the_study_has_at_least_20_faults_on_3_architectures_and_20_correct_models():
    assert len(faults.FAULTS) >= 20
    assert len({f.architecture for f in faults.FAULTS}) >= 3
    assert len(faults.CORRECT) >= 20
    assert len({(f.architecture, f.name, f.optimizer) for f in faults.FAULTS}) == len(faults.FAULTS)


@pytest.mark.long
@pytest.mark.parametrize("fault", QUICK, ids=lambda f: f"{f.architecture}: {f.name}")
def test_a_seeded_mistake_is_caught_and_named(fault):
    found, named = faults.examine(fault, seeds=3, steps=2)
    assert found.outcome is Outcome.FAIL
    assert named
    assert all(e.cause for e in found.failures)


@pytest.mark.long
@pytest.mark.parametrize("fault", SLOW[::4], ids=lambda f: f"{f.architecture}: {f.name}")
def test_and_in_transformers(fault):
    found, named = faults.examine(fault, seeds=3, steps=2)
    assert (found.outcome, named) == (Outcome.FAIL, True)


@pytest.mark.long(of="checks")
@pytest.mark.parametrize(
    ("architecture", "scheme", "optimizer"),
    [c for c in faults.CORRECT if c[0].startswith("mlp")] + [faults.CORRECT[11]],
)
def test_a_correct_model_is_not_failed(architecture, scheme, optimizer):
    found = faults.run(architecture, scheme=scheme, optimizer=optimizer, seeds=3, steps=2)
    assert found.outcome is not Outcome.FAIL, found.failures


@pytest.mark.long
def test_known_exponents_of_the_stream_and_of_inner_updates():
    """(alpha, gamma) = (1/2, 1/2): the stream moves by L^0, pre-activations by L^-1/2."""
    options = {"widths": (128,), "depths": (4, 16, 64), "seeds": 2, "steps": 3}
    for scheme, gamma in (("1/2,1/2", 0.5), ("1,0", 0.0), ("3/4,1/4", 0.25)):
        found = check(MINE, scheme=scheme, **options)
        inner = exponents(found, "update effect", "depth")["branches.*.matrices.0.weight"]
        branch = exponents(found, "branch output", "depth")["branches.*"]
        # 0.06 from corrections of order 1/L at L = 4, and 0.03 a run, as for the plan's exponents.
        assert inner == approx(-gamma, abs=0.15)
        assert branch == approx(gamma - 1, abs=0.15)
        assert exponents(found, "stream change", "depth")["stream at 1 of depth"] == approx(
            0, abs=0.25
        )


@pytest.mark.long
def test_a_model_whose_own_code_follows_the_scheme_passes_as_it_is():
    def own(width, depth):
        model = ResidualMLP(
            inputs=6, width=width, depth=depth, outputs=8, multiplier=0.5 * (2 / depth) ** 0.5
        )
        with torch.no_grad():
            model.readout.weight.mul_((16 / width) ** 0.5)
        return model

    def optimizers(model, lr):
        made = plan(
            model,
            base=own(SMALL["widths"][0], SMALL["depths"][0]),
            scheme="depth-mup",
            example_inputs=batch(torch.Generator())[0],
            own_init="fan_in",
        )
        groups = [
            {"params": [p], "lr": lr * made[name].laws.lr.at(made[name].ratios)}
            for name, p in model.named_parameters()
        ]
        return [torch.optim.AdamW(groups, weight_decay=0.0)]

    mine = Model(make=own, batch=batch, optimizers=optimizers)
    options = {**SMALL, "plan_options": {"own_init": "fan_in"}, "prepare": as_is}
    assert check(mine, **options).outcome is not Outcome.FAIL
    assert check(replace(mine, optimizers=None), **options).outcome is Outcome.FAIL
    assert check(replace(mine, make=make), **options).outcome is Outcome.FAIL


class TestProbes:
    def test_numbers_are_those_of_the_forward_pass(self):
        torch.manual_seed(0)
        model, base = make(8, 4), make(8, 4)
        x = torch.randn(4, 6)
        made = plan(model, base=base, example_inputs=x)
        found = observe(model, x, locate(model, x), made)
        h = model.input(x)
        squares = []
        for i, branch in enumerate(model.branches):
            out = model.multiplier * branch(h)
            squares.append(out.square().mean())
            h = h + out
            if i == 1:
                half = h
        rms = {str(key): value for key, value in found.values.items()}
        expected = {
            "stream at 0.5 of depth: stream": half.square().mean().sqrt(),
            "stream at 1 of depth: stream": h.square().mean().sqrt(),
            "branches.*: branch output": torch.stack(squares).mean().sqrt(),
            "output: logits": model(x).square().mean().sqrt(),
        }
        for name, value in expected.items():
            assert rms[name] == approx(value.item(), rel=1e-5)

    def test_changes_and_effects_are_those_of_the_weights(self):
        torch.manual_seed(0)
        model, base = make(8, 4), make(8, 4)
        x = torch.randn(4, 6)
        made, points = plan(model, base=base, example_inputs=x), locate(model, x)
        first = observe(model, x, points, made)
        before, old = model(x), {n: p.detach().clone() for n, p in model.named_parameters()}
        with torch.no_grad():
            model.input.weight.mul_(1.5)
        second = observe(model, x, points, made, initial=first, weights=old)
        effect = Key(observable=Observable.UPDATE, module="input.weight")
        assert second.values[effect] == approx(0.5, rel=1e-5)
        change = Key(observable=Observable.LOGITS_CHANGE, module="output")
        assert second.values[change] == approx(
            (model(x) - before).square().mean().sqrt().item(), rel=1e-4
        )

    @pytest.mark.parametrize(
        ("behind", "factor"),
        [
            (lambda y, x: 3 * y.flip(0), 3.0),  # a multiplier of the model's own, in another order
            (lambda y, x: y + 2 * x.mean(-1, keepdim=True), 1.0),  # a forecast's own mean
        ],
        ids=["multiplied", "shifted"],
    )
    def test_a_readout_counts_as_the_logits_that_are_a_multiple_of_it(self, behind, factor):
        class Behind(nn.Module):
            def __init__(self, width, depth):
                super().__init__()
                self.inner = make(width, depth)

            def forward(self, x):
                return behind(self.inner(x), x)

        values = []
        for build in (make, Behind):
            torch.manual_seed(0)
            model, x = build(8, 4), torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
            made = plan(model, base=build(8, 4), example_inputs=x)
            found = observe(model, x, locate(model, x), made).values
            values += [v for k, v in found.items() if k.observable is Observable.READOUT]
        assert values[1] / values[0] == approx(factor, rel=1e-5)

    def test_looking_changes_nothing(self):
        torch.manual_seed(0)
        model = make(8, 4).train()
        x = torch.randn(4, 6)
        made = plan(model, base=make(8, 4), example_inputs=x)
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        observe(model, x, locate(model, x), made)
        assert model.training
        assert all(m.training for m in model.modules())
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        for name, p in model.named_parameters():
            torch.testing.assert_close(p.detach(), before[name], rtol=0, atol=0)

    def test_100_layers_hold_samples_and_no_activations(self):
        """What is kept per layer is at most SAMPLE numbers, however large the batch."""
        torch.manual_seed(0)
        model, base = make(64, 100), make(64, 2)
        x = torch.randn(512, 6)
        found = observe(
            model,
            x,
            locate(model, x),
            plan(model, base=base, example_inputs=x[:2], own_init="fan_in"),
        )
        kept = [len(sample) for sample in found.samples.values()]
        assert max(kept) <= SAMPLE
        assert sum(kept) <= 103 * SAMPLE
        assert max(kept) < 512 * 64

    def test_the_sample_of_a_large_activation_has_its_size(self):
        model, x = make(64, 2), torch.randn(2048, 6)
        found = observe(
            model, x, locate(model, x), plan(model, base=make(64, 2), example_inputs=x[:2])
        )
        key = Key(observable=Observable.STREAM, module="stream at 1 of depth")
        sampled = found.samples[key, 0].square().mean().sqrt().item()
        # Relative error of an RMS from N entries: 1/sqrt(2 N) if Gaussian; 5 sigma, doubled for
        # entries of one example that are alike in size.
        assert sampled == approx(found.values[key], rel=10 / (2 * SAMPLE) ** 0.5)

    def test_attention_logits_are_scaled_products(self):
        torch.manual_seed(0)
        model = faults.growing_heads(16, 1)
        ids, _ = faults.tokens(torch.Generator().manual_seed(0))
        made = plan(model, base=faults.growing_heads(16, 1), example_inputs=ids)
        found = observe(model, ids, locate(model, ids), made)
        layer = model.layers[0]
        x = layer.norm1(model.tokens(ids[:1]))
        q, k = (
            f(x).view(1, 8, 4, 4).transpose(1, 2) for f in (layer.attention.q, layer.attention.k)
        )
        logits = q @ k.transpose(-1, -2) / 2
        key = Key(observable=Observable.ATTENTION_LOGITS, module="layers.*.attention")
        assert found.values[key] == approx(logits.square().mean().sqrt().item(), rel=1e-5)

    def test_spectral_norm(self):
        generator = torch.Generator().manual_seed(0)
        for shape in ((30, 50), (50, 30)):
            matrix = torch.randn(shape, generator=generator)
            exact = torch.linalg.matrix_norm(matrix, 2).item()
            assert 0.9 * exact < spectral_norm(matrix) <= exact * (1 + 1e-5)


class TestBadInput:
    def test_two_sizes(self):
        with pytest.raises(ValueError, match="at least 3 widths"):
            check(MINE, widths=(16, 32), depths=(2, 4, 8))

    def test_equal_sizes(self):
        with pytest.raises(ValueError, match="ratios other than 1"):
            check(MINE, widths=(16, 16, 32), depths=(2, 4, 8))

    def test_one_of_each(self):
        with pytest.raises(ValueError, match="one of each"):
            check(MINE, widths=(16,), depths=(2,))

    def test_a_factory_that_ignores_width(self):
        ignoring = replace(MINE, make=lambda width, depth: make(16, depth))
        with pytest.raises(ValueError, match="ignores its width: at width 16 and 32"):
            check(ignoring, **SMALL)

    def test_a_factory_that_ignores_depth(self):
        ignoring = replace(MINE, make=lambda width, depth: make(width, 2))
        with pytest.raises(ValueError, match="ignores its depth: at depth 2 and 4"):
            check(ignoring, **SMALL)

    def test_no_residual_branches(self):
        plain = replace(
            MINE,
            make=lambda width, depth: nn.Sequential(
                nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 8)
            ),
        )
        with pytest.raises(ValueError, match="No residual branch"):
            check(plain, **SMALL)

    def test_inputs_that_are_not_finite(self):
        broken = replace(MINE, batch=lambda g: (torch.full((2, 6), float("nan")), torch.ones(2)))
        with pytest.raises(ValueError, match="inputs that are not finite"):
            check(broken, **SMALL)

    def test_a_module_that_matches_nothing(self):
        with pytest.raises(ValueError, match=r"No module matches 'layers.\*.mlp'"):
            check(MINE, modules="layers.*.mlp", **SMALL)

    def test_one_seed(self):
        with pytest.raises(ValueError, match="at least 2 seeds"):
            check(MINE, **{**SMALL, "seeds": 1})

    def test_activations_that_stop_being_finite_are_named_with_their_step(self):
        found = check(MINE, lr=1e30, optimizer="sgd", **SMALL)
        assert found.outcome is Outcome.FAIL
        assert found.nonfinite is not None
        assert 1 <= found.nonfinite.step <= SMALL["steps"]
        assert found.nonfinite.module
        assert (found.nonfinite.width, found.nonfinite.depth) == (16, 2)

    def test_a_module_that_gives_nan_is_named_at_initialization_and_at_its_step(self):
        class Breaks(nn.Module):
            def __init__(self, calls):
                super().__init__()
                self.left = calls

            def forward(self, x):
                if self.training:
                    self.left -= 1
                return x * float("nan") if self.left < 0 else x

        def broken(calls):
            def made(width, depth):
                model = make(width, depth)
                model.branches[1].matrices.append(Breaks(calls))
                return model

            return replace(MINE, make=made)

        # In training mode a network runs once for every step.
        found = check(broken(-1), **SMALL).nonfinite
        assert (found.module, found.step) == ("branches.1.matrices.1", 0)
        found = check(broken(1), **SMALL).nonfinite
        assert (found.module, found.step) == ("branches.1.matrices.1", 2)


USER = """
import torch
from depthmup.models import ResidualMLP

def make(width, depth):
    return ResidualMLP(inputs=6, width=width, depth=depth, outputs=8, multiplier=0.5)

def batch(generator):
    return torch.randn(16, 6, generator=generator), torch.randint(8, (16,), generator=generator)
"""
USER_WITH_MUON = """
import torch
from depthmup.models import ResidualMLP

def make(width, depth):
    model = ResidualMLP(
        inputs=6, width=width, depth=depth, outputs=8, multiplier=0.5 * (2 / depth) ** 0.5
    )
    with torch.no_grad():
        for p in model.branches.parameters():
            p.normal_(std=width**-0.5)
        model.input.weight.normal_(std=6**-0.5)
        model.readout.weight.normal_(std=4 / width)
    return model

def batch(generator):
    return torch.randn(16, 6, generator=generator), torch.randint(8, (16,), generator=generator)

def optimizers(model, lr):
    width, depth = model.input.out_features, len(model.branches)
    rest = [
        {"params": [model.input.weight], "lr": 0.1 * lr},
        {"params": [model.readout.weight], "lr": 0.1 * lr * 16 / width},
    ]
    matrices = list(model.branches.parameters())
    return [
        torch.optim.Muon(matrices, lr=lr * FACTOR, weight_decay=0.0),
        torch.optim.AdamW(rest, weight_decay=0.0),
    ]
"""
SIZES = ["--widths", "16", "32", "64", "--depths", "2", "4", "8", "--seeds", "3", "--steps", "2"]


class TestCommand:
    @pytest.fixture
    def model(self, tmp_path):
        path = tmp_path / "user_network.py"
        path.write_text(USER)
        return f"{path}:make"

    def test_a_correct_model_passes_with_a_page(self, model, tmp_path, capsys):
        page = tmp_path / "check.html"
        assert main(["check", "--model", model, *SIZES, "--out", str(page)]) == 0
        assert "pass" in capsys.readouterr().out
        text = page.read_text()
        assert "branches.*.matrices.0" in text
        assert "https://" not in text.split("<script>")[0]

    def test_the_same_model_as_it_is_fails(self, model, capsys):
        assert main(["check", "--model", model, *SIZES, "--apply", "as-is"]) == 1
        out = capsys.readouterr().out
        assert "Likely" in out
        assert "the branch multiplier is missing" in out

    @pytest.mark.parametrize(
        ("factor", "status"), [("(2 / depth) ** 0.5", 0), ("1.0", 1)], ids=["right", "not by depth"]
    )
    def test_a_model_with_its_own_muon_is_checked_with_its_own_optimizers(
        self, factor, status, tmp_path, capsys
    ):
        path = tmp_path / "user_with_muon.py"
        path.write_text(USER_WITH_MUON.replace("FACTOR", factor))
        options = ["--apply", "as-is", "--optimizer", "muon", "--own-init", "fan_in"]
        sizes = [*SIZES, "--seeds", "3"]
        assert main(["check", "--model", f"{path}:make", *sizes, *options]) == status
        if status:
            assert "matrices.0.weight: update effect" in capsys.readouterr().out

    def test_muon_without_optimizers_is_refused(self, model, capsys):
        options = ["--apply", "as-is", "--optimizer", "muon", "--own-init", "fan_in"]
        assert main(["check", "--model", model, *SIZES, *options]) == 2
        assert "give optimizers(model, lr) beside the factory" in capsys.readouterr().err

    def test_json_alone_on_stdout(self, model, capsys):
        assert main(["check", "--model", model, *SIZES, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["outcome"] == "pass"
        assert {e["axis"] for e in found["exponents"]} == {"width", "depth"}

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--model", "nowhere_at_all:make"], "no module"),
            (["--model", "noname"], "module:factory"),
            (["--model", "missing.py:make"], "no file"),
        ],
    )
    def test_bad_input_exits_with_2(self, arguments, says, capsys):
        assert main(["check", *arguments]) == 2
        assert says in capsys.readouterr().err

    def test_a_missing_function_is_named(self, model, capsys):
        assert main(["check", "--model", model, "--batch", "data"]) == 2
        assert "no function 'data'" in capsys.readouterr().err


def test_the_page_escapes_what_users_name():
    found = replace(check(MINE, **SMALL), title="<script>alert(1)</script>")
    assert "<script>alert(1)" not in check_page(found)


@pytest.mark.long(of="checks")
@pytest.mark.parametrize("scheme", ["depth-mup", "completep"])
def test_models_of_transformers_are_not_failed(scheme):
    """Their embeddings are small beside the first branches, so their stream is no single power."""
    transformers = pytest.importorskip("transformers")

    def llama(width, depth):
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=32, hidden_size=width, intermediate_size=2 * width, head_dim=8,
                num_hidden_layers=depth, num_attention_heads=width // 8, use_cache=False,
                num_key_value_heads=width // 16, initializer_range=0.1,
            )
        )  # fmt: skip

    def named(generator):
        ids, targets = faults.tokens(generator)
        return {"input_ids": ids}, targets

    found = check(
        Model(make=llama, batch=named), scheme=scheme, widths=(32, 64, 128), depths=(2, 4, 8),
        seeds=2, steps=2,
    )  # fmt: skip
    assert found.outcome is not Outcome.FAIL, found.failures
    assert any("self_attn" in e.module for e in found.exponents if e.outcome is Outcome.PASS)


def test_the_ends_of_a_sequential_are_told_from_its_blocks():
    """Numbers alone name its layers: the input, the blocks and the readout stay apart."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x):
            return x + self.linear(torch.tanh(x))

    def make(width, depth):
        blocks = (Block(width) for _ in range(depth))
        return nn.Sequential(nn.Linear(6, width), *blocks, nn.Linear(width, 3))

    def batch(generator):
        x = torch.randn(16, 6, generator=generator)
        return x, x[:, :3].argmax(-1)

    result = check(Model(make, batch=batch), widths=(8, 16, 32), depths=(2, 4, 8), seeds=2)
    modules = {e.module.removesuffix(".weight").removesuffix(".bias") for e in result.exponents}
    assert {"0", "*.linear", "-1"} <= modules
    assert "*" not in modules


def test_an_undecided_check_ends_with_the_command_that_decides_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(own_models.SOURCE)
    monkeypatch.chdir(tmp_path)
    words = ["check", "--model", "mine.py:make", "--scheme", "depth-mup", "--widths", "8"]
    words += ["--depths", "2", "4", "8", "--seeds", "2", "--out", "out"]
    monkeypatch.setattr("sys.argv", ["depthmup", *words])
    assert main(words) == 5
    told = capsys.readouterr().out
    [command] = re.findall(r"Decide it with \d+ seeds \(about \d+ s\):\n    (.*)", told)
    assert "--seeds 2 " not in command
    page = re.sub(r"<[^>]+>", "", (tmp_path / "out" / "check.html").read_text())
    assert command in html.unescape(page)
    monkeypatch.setattr("sys.argv", shlex.split(command))
    assert main(shlex.split(command)[1:]) in (0, 1)


def test_where_nothing_is_predicted_no_seeds_are_proposed(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(own_models.SOURCE)
    monkeypatch.chdir(tmp_path)
    words = ["check", "--model", "mine.py:make", "--scheme", "sp", "--widths", "8"]
    words += ["--depths", "2", "4", "8", "--seeds", "2", "--steps", "1"]
    monkeypatch.setattr("sys.argv", ["depthmup", *words])
    assert main(words) == 5
    told = capsys.readouterr().out
    assert "SP predicts no exponent of what was measured" in told
    assert f"\n    {shlex.join(['depthmup', *words, '--all'])}\n" in told


def test_a_table_of_exponents_fits_a_terminal():
    estimate = Estimate(value=1.0, low=0.9, high=1.1)
    off = Exponent(
        observable="update effect", module="transformer.h.*.attn.c_attn.weight", axis="width",
        expected="0", estimate=estimate, outcome=Outcome.FAIL,
    )  # fmt: skip
    found = Check(
        title="mine", scheme="SP", optimizer="sgd", applied=True, widths=(1,), depths=(2,),
        seeds=3, steps=1, lr=0.1, margin=0.25, confidence=0.95, outcome=Outcome.FAIL,
        exponents=(off,),
    )  # fmt: skip
    assert max(map(len, found.summary().splitlines())) > 80
    lines = found.summary(width=80).splitlines()
    assert max(map(len, lines)) <= 80
    # A name longer than its column is cut where it ends, and goes on below.
    assert "transformer.h.*.attn.c_attn.weight:updateeffect" in "".join("".join(lines).split())


def test_seeds_are_proposed_that_make_intervals_narrow_enough():
    def open_one(value, half):
        estimate = Estimate(value=value, low=value - half, high=value + half)
        return Exponent(
            observable="stream", module="x", axis="depth", expected="0", estimate=estimate,
            outcome=Outcome.UNDECIDED,
        )  # fmt: skip

    for value, half, seeds in ((0.0, 1.0, 12), (0.0, 0.51, 4), (0.3, 0.4, 12), (0.0, 90.0, 48)):
        found = Check(
            title="mine", scheme="SP", optimizer="sgd", applied=True, widths=(1,), depths=(2,),
            seeds=3, steps=1, lr=0.1, margin=0.25, confidence=0.95, outcome=Outcome.UNDECIDED,
            exponents=(open_one(value, half),), seconds=6.0,
        )  # fmt: skip
        assert f"Decide it with {seeds} seeds (about {2 * seeds} s):" in str(found)
        assert f"depthmup.check(..., seeds={seeds})" in str(found)


@pytest.mark.parametrize(
    ("block_depth", "scheme", "says"),
    [(1, "depth-mup", ""), (2, "depth-mup", "learn less"), (2, "completep", "keep learning")],
)
def test_blocks_of_two_matrices_have_no_perfect_rule(block_depth, scheme, says):
    def make(width, depth):
        return ResidualMLP(
            inputs=8, width=width, depth=depth, outputs=4, block_depth=block_depth,
            activation_name="relu", layer_norm=True,
        )  # fmt: skip

    def batch(generator):
        return torch.randn(8, 8, generator=generator), torch.arange(8) % 4

    found = check(Model(make, batch=batch), scheme=scheme, widths=16, depths=(2, 4, 8), steps=2)
    told = [note for note in found.notes if "no rule of depth is perfect" in note]
    assert len(told) == (block_depth > 1)
    assert all(says in note for note in told)


def test_a_batch_beside_the_factory_is_no_axis():
    with pytest.raises(ValueError, match=r"Give depthmup\.Model\(make, batch=batch\)"):
        check(lambda width, depth: None, batch=lambda generator: None)
