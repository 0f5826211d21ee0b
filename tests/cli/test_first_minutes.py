"""What a newcomer types first: bare command, version, typos, commas, other code pages."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from depthmup import __version__
from depthmup.cli import main
from depthmup.cli.spelling import as_meant
from depthmup.cli.transfer import Options
from depthmup.cli.verbs import EXAMPLES, GROUPS, VERBS, module_of, parse
from depthmup.rules import NAMES


def test_the_bare_command_shows_the_commands_in_80_columns(capsys):
    assert main([]) == 2
    bare = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == bare
    assert max(map(len, bare.splitlines())) <= 80


def test_the_overview_has_every_command():
    commands = {name for group in GROUPS.values() for name in group}
    assert commands == {*VERBS, "completion"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_are_commands(example):
    program, *words = example.split()
    assert program == "depthmup"
    parse(words)


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_the_version(word, capsys):
    assert main([word]) == 0
    assert capsys.readouterr().out == f"depthmup {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("tranfer", "transfer"), ("Plan", "plan"), ("limits", "limit")]
)
def test_a_typo_of_a_command_gets_a_suggestion(typed, meant, capsys):
    assert main([typed]) == 2
    assert f"Did you mean `depthmup {meant}`?" in capsys.readouterr().err


def test_a_typo_of_an_option_is_answered_with_options_of_the_command_alone(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        main(["transfer", "--dephts", "8"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--depths" in said
    assert "depthmup transfer --help" in said
    assert "depthmup check" not in said


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--depths 8,16,32", "--depths 8 16 32"),
        ("--depths=8,16", "--depths 8 16"),
        ("--lrs 1e-3,3e-3,0.01", "--lrs 1e-3 3e-3 0.01"),
        ("--scheme sp,depth-mup 3/4,1/4", "--scheme sp depth-mup 3/4,1/4"),
        ("--schemes sp,completep+moe-1/2", "--schemes sp completep+moe-1/2"),
        ("--schemes 1/2,1/2", "--schemes 1/2,1/2"),
        ("--base width=64,depth=4", "--base width=64,depth=4"),
        ("--out a,b", "--out a,b"),
    ],
)
def test_lists_with_commas(typed, words):
    assert as_meant(typed.split(), Options) == words.split()


@pytest.mark.parametrize("help_of", [["completion", "--help"], ["help", "completion"]])
def test_completion_has_a_help(help_of, capsys):
    assert main(help_of) == 0
    assert "completion" in capsys.readouterr().out


def test_help_of_a_verb_is_its_help(capsys):
    shown = []
    for words in (["help", "plan"], ["plan", "--help"]):
        assert main(words) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "--optimizer" in shown[0]


@pytest.mark.parametrize(
    ("shell", "command"),
    [("bash", "complete -F"), ("zsh", "#compdef depthmup"), ("fish", "function _tyro_depthmup")],
)
def test_completion_of_the_shell(shell, command, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert command in script
    assert "Schemes by name (sp, mup, depth-mup" in script
    assert not [what for what in NAMES if f"{{{what}}}" in script]


def test_completion_that_lacks_a_package_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("depthmup.records.packages.find_spec", lambda name: None)
    assert main(["completion", "tcsh"]) == 2
    assert "Completion for tcsh needs shtab" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_code_pages_without_a_minus_sign(encoding):
    """The words of a table, through the streams of a process of its own."""
    code = (
        "from depthmup.cli.output import show_everywhere; show_everywhere();"
        "print('\\u22128.48 [\\u22120.26, \\u221e] \\u03b1 \\u4e2d')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode(encoding).strip() == "-8.48 [-0.26, inf] alpha \\u4e2d"


class TestNotebooks:
    """What a cell shows that ends in a value: a line, or a table, and never all fields."""

    def test_a_scheme(self):
        from depthmup.rules import scheme

        assert repr(scheme("completep")).startswith("<Scheme completep: alpha = 1, gamma = 0;")

    def test_a_solution(self):
        from depthmup import limits

        steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        solution = limits.linear(steps, depth=4, lr=0.5)
        assert len(repr(solution)) < 100
        assert solution._repr_html_().count("<tr>") == 3

    def test_a_certificate(self):
        from depthmup.records.certificate import Certificate, Lack, Refusal

        refused = Certificate(
            target={"depth": 64},
            base={"depth": 4},
            optima=(),
            log2_lrs=(),
            seeds=1,
            title="a <b>",
            refusals=(Refusal(lack=next(iter(Lack)), reason="Too few <sizes>.", advice="More."),),
        )
        assert repr(refused) == "<Certificate for depth 64: refused, 1 reason>"
        html = refused._repr_html_()
        assert "a &lt;b&gt;" in html
        assert "Too few &lt;sizes&gt;. More." in html


class TestOneMeaningOfOut:
    """A folder in every command; or one of two files, with the other beside it."""

    LIMIT = ("limit", "--steps", "2", "--batch-size", "1")

    @pytest.mark.parametrize("named", ["made", "made/x.html", "made/x.json"])
    def test_page_and_data(self, named, tmp_path):
        import json

        assert main([*self.LIMIT, "--out", str(tmp_path / named)]) == 0
        stem = "x" if "." in named else "limit"
        page, data = (tmp_path / "made" / f"{stem}.{kind}" for kind in ("html", "json"))
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert json.loads(data.read_text(encoding="utf-8"))["status"] == "ok"
        assert f'href="{data.name}"' in page.read_text(encoding="utf-8")

    def test_the_map_of_regimes(self, tmp_path):
        assert parse(["regimes", "--out", str(tmp_path / "map.svg")]).map == tmp_path / "map.svg"

    def test_another_suffix_is_refused(self, tmp_path, capsys):
        assert main([*self.LIMIT, "--out", str(tmp_path / "x.csv")]) == 2
        assert "ends in .html or .json" in capsys.readouterr().err

    def test_the_plan_has_a_page(self, tmp_path, capsys):
        from depthmup.planning import Plan

        model = Path(__file__).parents[2] / "examples" / "own_model.py"
        words = ["--model", f"{model}:make", "--base", "32x2", "--target", "64x4"]
        assert main(["plan", *words, "--out", str(tmp_path)]) == 0
        plan = Plan.load(tmp_path / "plan.json")
        page = (tmp_path / "plan.html").read_text(encoding="utf-8")
        assert page.count("<tr>") == 1 + len(plan_rows(plan))
        capsys.readouterr()
        assert main(["plan", *words, "--json"]) == 0
        assert capsys.readouterr().out.strip() == (tmp_path / "plan.json").read_text()


ANY_ORDER = """
import torch


def make(depth, width, ratio=1):
    blocks = [torch.nn.Linear(width, width) for _ in range(depth)]
    return torch.nn.Sequential(torch.nn.Linear(8, width), *blocks, torch.nn.Linear(width, 3))


def batch(generator):
    return torch.randn(4, 8, generator=generator), torch.zeros(4, dtype=torch.long)
"""


BLOCK = """

class Block(torch.nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)

    def forward(self, x):
        return x + super().forward(x).relu()
"""


class TestSizesOfPlans:
    """``--base`` and ``--target`` of plan are written as those of transfer."""

    def plan(self, tmp_path, *words):
        (tmp_path / "mine.py").write_text(ANY_ORDER, encoding="utf-8")
        given = ["--model", f"{tmp_path / 'mine.py'}:make", "--scheme", "mup", *words]
        return main(["plan", *given, "--out", str(tmp_path / "plan")])

    @pytest.mark.parametrize(
        "words",
        [
            ["--base", "16x2", "--target", "32x2"],
            ["--base", "width=16", "depth=2", "--target", "width=32"],
            ["--base", "depth=2,width=16,ratio=1", "--target", "width=32"],
        ],
    )
    def test_arguments_go_by_their_names(self, words, tmp_path):
        from depthmup.planning import Plan

        assert self.plan(tmp_path, *words) == 0
        plan = Plan.load(tmp_path / "plan" / "plan.json")
        assert (plan["0.weight"].shape, plan["0.weight"].base_shape) == ((32, 8), (16, 8))

    def test_the_depth_may_be_declared(self, tmp_path, capsys):
        """Not any depth: rates for eight times as deep a model hardly move one that is twice."""
        from depthmup.planning import Plan

        words = ["--base", "16x2", "--target", "16x4", "--scheme", "depth-mup"]
        (tmp_path / "mine.py").write_text(
            ANY_ORDER.replace("[torch.nn.Linear(width, width)", "[Block(width)") + BLOCK,
            encoding="utf-8",
        )
        out = tmp_path / "plan"
        given = ["--model", f"{tmp_path / 'mine.py'}:make", *words, "--out", str(out)]
        for depth, ratio in ([], 2), (["--depth", "3"], 3):
            assert main(["plan", *given, *depth]) == 0
            inside = [p for p in Plan.load(out / "plan.json").prescriptions if p.role.in_branch]
            assert {p.ratios.depth for p in inside} == {ratio}
        assert main(["plan", *given, "--depth", "8"]) == 2
        assert "depth^0 is expected" in capsys.readouterr().err

    def test_a_rate_of_another_optimizer_is_converted(self, tmp_path):
        from depthmup.planning import Plan

        words = ["--base", "16x2", "--target", "16x2", "--optimizer", "muon-rms"]
        assert self.plan(tmp_path, *words, "--tuned-with", "muon") == 0
        plan = Plan.load(tmp_path / "plan" / "plan.json")
        # 0.02 sqrt(max(1, 16/16)) U V^T = 0.02 / (0.2 sqrt(16)) * 0.2 sqrt(16) U V^T.
        assert plan["1.weight"].lr == pytest.approx(1 / (0.2 * 16**0.5))
        assert plan["0.weight"].lr == 1.0
        page = (tmp_path / "plan" / "plan.html").read_text(encoding="utf-8")
        assert "plan.muon_groups(model, lr=lr" in page
        assert "match_rms_adamw" in page
        assert "plan.param_groups" not in page

    @pytest.mark.parametrize(("target", "warned"), [("8x2", True), ("32x2", False)])
    def test_a_smaller_target_is_warned_of(self, target, warned, tmp_path, capsys):
        assert self.plan(tmp_path, "--base", "16x2", "--target", target) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert ("The model to train is smaller than its base" in shown) is warned

    def test_an_axis_that_the_base_lacks_is_refused(self, tmp_path, capsys):
        assert self.plan(tmp_path, "--base", "16x2", "--target", "32x2", "ratio=3") == 2
        assert "name axes of --base; got ratio as well" in capsys.readouterr().err
        assert self.plan(tmp_path, "--base", "width=16,depth=2,batch=8", "--target", "batch=9") == 2
        assert "keep the base's batch" in capsys.readouterr().err
        assert not (tmp_path / "plan").exists()


def plan_rows(plan):
    from depthmup.planning.show import rows

    return rows(plan)


def test_the_list_of_claims_as_json(capsys):
    import json

    assert main(["reproduce", "--list", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)
    assert {"name", "title", "source"} <= set(claims[0])


def test_a_folder_is_loaded_and_ci_fails_unless_it_transfers(tmp_path, capsys):
    import depthmup
    from depthmup.sweep import StoreError

    tiny = [
        "--depths",
        "2,4",
        "--base",
        "16x2",
        "--lrs",
        "0.001953125,0.0078125,0.03125,0.125",
        "--seeds",
        "2",
    ]
    tiny += ["--steps", "10", "--window", "5", "--workers", "1", "--schemes", "sp"]
    out = str(tmp_path / "out")
    assert main(["transfer", *tiny, "--out", out, "--json"]) == 0
    report = depthmup.load(out)
    assert len(report.to_pandas("trials")) == 2 * 4 * 2
    assert report.verdict != "transfers"
    again = main(["transfer", *tiny, "--out", out, "--fail-unless", "transfers", "--json"])
    assert again == {"drifts": 1, "undecided": 5}[report.verdict]
    capsys.readouterr()
    with pytest.raises(StoreError, match="neither"):
        depthmup.load(tmp_path)


def test_a_fitted_table_is_loaded(tmp_path):
    import depthmup
    from depthmup.tables import example

    report = depthmup.fit(
        example(), axes={"depth": "n_layers"}, lr="lr", loss="final_loss", by=("scheme",)
    )
    report.save(tmp_path)
    assert depthmup.load(tmp_path).verdict == report.verdict


def test_an_optimizer_by_its_class():
    import torch

    import depthmup

    sizes = {"base": {"width": 8, "depth": 2}, "depth": (2, 4)}
    for given in (torch.optim.AdamW, (torch.optim.AdamW,), "adamw"):
        assert depthmup.Design(**sizes, optimizers=given).optimizers == ("adamw",)


@pytest.mark.parametrize("verb", ["transfer", "plan", "check", "fit", "limit", "regimes", "report"])
def test_examples_of_a_help_are_commands(verb, capsys):
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out.replace("\\\n", " ")
    lines = [line for line in shown.splitlines() if line.strip().startswith("depthmup ")]
    examples = [shlex.split(line) for line in lines]
    assert examples
    for _, named, *words in examples:
        assert named == verb
        parse([named, *as_meant(words, module_of(named).Options)])


@pytest.mark.parametrize("verb", VERBS)
def test_a_help_fits_the_page_and_shows_options_as_typed(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([verb, "--help"]) == 0
    head, options = capsys.readouterr().out.split("\nOptions\n")
    assert max(len(line) for line in head.splitlines() if not line.startswith("    ")) <= 80
    assert max(map(len, options.splitlines())) <= 80
    # Words begin in one column; a line begins with an option, or with a group's title.
    begun = {len(line) - len(line.lstrip()) for line in options.splitlines() if line}
    assert begun <= {0, 2, 27}
