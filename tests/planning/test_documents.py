"""Plans as text: JSON both ways, the table, words, a data frame."""

import io
import json
import re
from fractions import Fraction

import pytest
import torch
from planning_zoo import ResidualMLP, Transformer, tokens, traced, vectors
from pytest import approx

import depthmup
from depthmup.planning import PlanDocumentError, show
from depthmup.rules import Power


def make_plan(**options):
    torch.manual_seed(0)
    options = {"scheme": "completep", "example_inputs": tokens(), "own_init": "fixed"} | options
    facts = traced(Transformer, (32, 8), (16, 2), tokens())
    return depthmup.plan(
        Transformer(32, 8), base=Transformer(16, 2), **{"options": facts, **options}
    )


class TestJSON:
    @pytest.mark.parametrize("folding", [True, False])
    @pytest.mark.parametrize(
        "own_init",
        ["fixed", None, {"tokens.weight": "fixed", "*": Power(fan_in="-1/2")}, Power(depth="-1/2")],
        ids=["fixed", "measured", "mapping", "power"],
    )
    def test_there_and_back(self, tmp_path, folding, own_init):
        plan = make_plan(folding=folding, own_init=own_init)
        plan.save(tmp_path / "plan.json")
        again = depthmup.Plan.load(tmp_path / "plan.json")
        assert again == plan
        assert str(again) == str(plan)
        again.save(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_text() == (tmp_path / "plan.json").read_text()

    def test_a_loaded_plan_is_applied_like_the_saved_one(self, tmp_path):
        plan, models = make_plan(folding=False, own_init=None), []
        plan.save(tmp_path / "plan.json")
        for p in (plan, depthmup.Plan.load(tmp_path / "plan.json")):
            torch.manual_seed(3)
            models.append(Transformer(32, 8))
            p.initialize(models[-1])
        x = tokens()
        assert torch.equal(models[0](x), models[1](x))

    def test_an_own_init_without_exponents(self, tmp_path):
        plan = make_plan(own_init=Power())
        plan.save(tmp_path / "plan.json")
        assert depthmup.Plan.load(tmp_path / "plan.json").own_init == Power()

    def test_exponents_are_exact(self, tmp_path):
        make_plan(scheme="1/3,2/3").save(tmp_path / "plan.json")
        content = json.loads((tmp_path / "plan.json").read_text())
        assert content["plan"]["multipliers"][0]["law"] == {"depth": "-1/3"}

    def test_a_pattern_may_have_the_name_of_a_ratio(self, tmp_path):
        """It was read as the exponent of a power; none at all as a power of nothing."""

        class Deep(torch.nn.Module):
            def __init__(self, width):
                super().__init__()
                self.depth = torch.nn.Parameter(torch.ones(width))
                self.inp, self.out = torch.nn.Linear(6, width), torch.nn.Linear(width, 2)

            def forward(self, x):
                return self.out(self.inp(x) * self.depth)

        for own_init in ({"depth": "fixed"}, {}):
            plan = depthmup.plan(Deep(16), Deep(8), example_inputs=vectors(), own_init=own_init)
            plan.save(tmp_path / "plan.json")
            again = depthmup.Plan.load(tmp_path / "plan.json")
            assert again == plan
            assert again.own_init == (own_init or None)

    @pytest.mark.parametrize("change", ["lr", "init", "name", "multiplier"])
    def test_tampering_is_noticed(self, tmp_path, change):
        path = tmp_path / "plan.json"
        make_plan().save(path)
        content = json.loads(path.read_text())
        if change == "multiplier":
            content["plan"]["multipliers"][0]["value"] = 2.0
        else:
            content["plan"]["prescriptions"][0][change] = "x" if change == "name" else 2.0
        path.write_text(json.dumps(content))
        with pytest.raises(PlanDocumentError, match="changed after it was saved"):
            depthmup.Plan.load(path)

    def test_another_version(self, tmp_path):
        path = tmp_path / "plan.json"
        make_plan().save(path)
        content = json.loads(path.read_text()) | {"depthmup_plan": 99}
        path.write_text(json.dumps(content))
        with pytest.raises(PlanDocumentError, match="version 99"):
            depthmup.Plan.load(path)

    @pytest.mark.parametrize("text", ["", "{}", "[1]", '{"depthmup_plan": 1}', "not json"])
    def test_no_plan_at_all(self, tmp_path, text):
        path = tmp_path / "plan.json"
        path.write_text(text)
        with pytest.raises(PlanDocumentError, match=r"Expected JSON written by plan\.save"):
            depthmup.Plan.load(path)


class TestTable:
    def test_repeated_layers_share_a_row_and_nothing_is_missing(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "200")  # all columns side by side
        text = str(make_plan(own_init=None))
        # Long names continue below; the first column without them:
        assert "x8" in text
        assert text.split("Source:")[0].count("blocks.*") == 12
        assert text.count("A = 0.25") == 4  # attention and mlp: their last weight and its bias
        for expected in ("r^-1, folded", "m_in^-1/2 A", "A = 0.5", "readout", "CompleteP"):
            assert expected in text
        assert "tied" not in text
        assert "m_in^-1/2" in text.split("own init")[1]

    def test_rows_split_where_prescriptions_differ(self):
        plan = make_plan()
        names = {p.name for p in plan.prescriptions}
        assert sum(row.count for row in show.rows(plan)) == len(names)

    def test_explicit_multipliers_are_shown(self):
        text = str(make_plan(folding=False))
        assert "0.25 by hook" in text
        assert "17 multipliers stay explicit, as hooks: branch, readout." in text

    def test_a_wide_screen_shows_the_table(self, monkeypatch):
        monkeypatch.delenv("COLUMNS", raising=False)
        from rich.console import Console

        plan = make_plan()
        console = Console(record=True, width=300, file=io.StringIO())
        console.print(plan)
        columns = {"parameter", "role", "init", "multiplier", "lr", "epsilon", "decay"}
        for text in (str(plan), console.export_text()):
            head = text.partition("───")[0]
            assert columns <= set(head.split())

    @pytest.mark.parametrize("width", [60, 80, 120])
    def test_a_narrow_screen_shows_every_fact_in_its_columns(self, width, monkeypatch):
        from rich.console import Console

        plan = make_plan()
        console = Console(record=True, width=width, file=io.StringIO())
        console.print(plan)
        monkeypatch.setenv("COLUMNS", str(width))
        for text in (str(plan), console.export_text()):
            assert max(map(len, text.splitlines())) <= width
            words = " ".join(text.split())
            for row in show.rows(plan):
                assert row.pattern in words
                assert str(row.first.role) in words
                for value, law in filter(None, show.factors(row.first).values()):
                    assert f"{value:.4g}" in words.split()
                    assert set(law.split()) <= set(words.replace("(", " ").split())

    def test_a_notebook_shows_the_table_and_not_the_fields(self):
        plan = make_plan()
        assert len(repr(plan)) < 120
        html = plan._repr_html_()
        assert html.count("<tr>") == 1 + len(show.rows(plan))
        patterns = re.findall(r"<code>(blocks\.\*\.mlp\.[^<]*\.weight)</code>", html)
        assert patterns == ["blocks.*.mlp.0.weight", "blocks.*.mlp.2.weight"]

    def test_words_have_the_factors_that_they_name(self):
        """A law without the folded multiplier beside it would be a wrong formula."""
        plan = make_plan()
        for p in plan.prescriptions:
            letters = {
                "m_in": p.ratios.fan_in,
                "m_out": p.ratios.fan_out,
                "r": p.ratios.depth,
                "A": p.folded,
            }
            said = re.findall(r"times ([-+.e\d]+) \(law ([^,)]*)", plan.explain(p.name))
            for value, law in said:
                product = 1.0
                for word in law.split():
                    letter, _, power = word.partition("^")
                    product *= letters[letter] ** float(Fraction(power or 1))
                assert float(value) == pytest.approx(product, rel=1e-5), (p.name, law)
        assert "(law m_in^-1 A" in plan.explain("blocks.3.mlp.2.weight")

    def test_text_is_as_wide_as_it_needs_to_be(self, monkeypatch):
        monkeypatch.delenv("COLUMNS", raising=False)
        lines = str(make_plan()).splitlines()
        header = next(line for line in lines if "multiplier" in line)
        assert len(header) > 150
        assert not any("…" in line for line in lines)

    def test_frame(self):
        plan = make_plan()
        frame = plan.to_pandas().set_index("parameter")
        assert len(frame) == len(plan.prescriptions)
        row = frame.loc["blocks.3.mlp.2.weight"]
        assert row["lr"] == approx(1 / 2 / 4)
        assert (row["lr_law"], row["r"], row["m_in"]) == ("m_in^-1", 4, 2)


class TestWords:
    def test_a_folded_matrix(self):
        text = make_plan(own_init=None).explain("blocks.3.mlp.2.weight")
        for part in (
            "hidden, last of branch",
            "The model has 4 times as many branches as the base",
            "times 0.25 (law r^-1), folded into blocks.3.mlp.2.bias, blocks.3.mlp.2.weight",
            "the model's own is m_in^-1/2",
            "Learning rate (entrywise): times 0.125 (law m_in^-1 A, m_in = 2, A = 0.25)",
            "arXiv 2505.01618",
        ):
            assert part in text

    def test_tied_names_and_hooks(self):
        torch.manual_seed(0)
        plan = depthmup.plan(
            Transformer(32, 8, tied=True), base=Transformer(16, 2, tied=True),
            example_inputs=tokens(), own_init="fixed",
        )  # fmt: skip
        text = plan.explain("head.weight")
        assert "tied parameter: tokens.weight, head.weight" in text
        assert "folded into norm.bias, norm.weight" in text

    def test_unknown_parameter(self):
        plan = make_plan()
        first = next(p.name for p in plan.prescriptions if "." in p.name)
        for near in (first[:-1], first.partition(".")[2]):
            with pytest.raises(KeyError, match=f"Did you mean '{re.escape(first)}'"):
                plan.explain(near)
        with pytest.raises(KeyError, match="The plan has no parameter 'x'"):
            make_plan().explain("x")


def test_planning_does_not_touch_the_random_state():
    torch.manual_seed(0)
    model, base = ResidualMLP(32, 4), ResidualMLP(16, 2)
    state = torch.get_rng_state()
    plan = depthmup.plan(model, base=base, example_inputs=vectors(), own_init="fan_in")
    plan.initialize(model)
    assert torch.equal(state, torch.get_rng_state())


class Alternating(torch.nn.Module):
    """Residual blocks of two layers in a Sequential; of every other block the layers are wider."""

    def __init__(self, width, depth):
        super().__init__()
        self.first = torch.nn.Linear(6, width)
        self.h = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.LayerNorm(width),
                torch.nn.Linear(width, (2 + 2 * (i % 2)) * width),
                torch.nn.ReLU(),
                torch.nn.Linear((2 + 2 * (i % 2)) * width, width),
            )
            for i in range(depth)
        )

    def forward(self, x):
        x = self.first(x)
        for block in self.h:
            x = x + block(x)
        return x


def test_no_two_rows_have_one_pattern():
    plan = depthmup.plan(
        Alternating(32, 10), Alternating(16, 2), scheme="completep", example_inputs=(vectors(8),)
    )
    patterns = [row.pattern for row in show.rows(plan)]
    assert len({*patterns}) == len(patterns)
    assert "h.{0,2,...,8}.1.weight" in patterns
    assert "h.{1,3,...,9}.1.weight" in patterns
    assert "h.*.0.weight" in patterns
