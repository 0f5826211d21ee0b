"""``depthmup transfer --model`` and ``--train`` as a person and as a script would use them."""

import json
import sys

import pytest
from own_models import SOURCE

from depthmup.cli import main
from depthmup.cli.transfer import Options
from depthmup.cli.verbs import parse

TINY = [
    *("--base", "16x2", "--depths", "2", "4", "--widths", "16", "32", "--seeds", "2"),
    *("--lrs", "0.001953125", "0.0078125", "0.03125", "--steps", "10", "--own-init", "fan_in"),
    *("--executor", "in-process", "--json"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine_own.py").write_text(SOURCE)
    return folder


@pytest.fixture(scope="module", autouse=True)
def forget():
    yield
    sys.modules.pop("mine_own", None)


def transfer(folder, *more, out="out"):
    model = f"{folder}/mine_own.py:make"
    return main(["transfer", "--model", model, *TINY, "--out", str(folder / out), *more])


def test_summary_page_and_report(folder, capsys):
    assert transfer(folder, "--target", "64x16") == 0
    found = json.loads(capsys.readouterr().out)
    out = folder / "out"
    assert found == json.loads((out / "summary.json").read_text())
    assert [s["axis"] for s in found["schemes"]] == ["depth", "width"]
    assert found["config"]["settings"] == {"own_init": "fan_in"}
    page = (out / "report.html").read_text()
    assert "To make this page again" in page
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["target"] == {"width": 64, "depth": 16}
    assert certificate["refusals"]
    for name in ("report.html", "summary.json", "certificate.json"):
        (out / name).rename(out / f"first-{name}")
    assert main(["report", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    for name in ("report.html", "certificate.json"):
        assert (out / name).read_text() == (out / f"first-{name}").read_text()


def test_shards_join_to_the_same(folder, capsys):
    assert transfer(folder, out="whole") == 0
    whole = json.loads(capsys.readouterr().out)
    for shard in ("1/2", "2/2"):
        assert transfer(folder, "--shard", shard, out="parts") == 0
    assert "depthmup merge" in capsys.readouterr().err
    assert not (folder / "parts" / "report.html").exists()
    assert main(["merge", str(folder / "parts"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schemes"] == whole["schemes"]


def test_a_function_that_trains_by_itself(folder, capsys):
    train = f"{folder}/mine_own.py:train"
    words = ["--train", train, "--base", "8x2", "--depths", "2", "4", "--steps", "5"]
    words += ["--lrs", *(str(2.0 ** (-6 + k / 2)) for k in range(13)), "--executor", "in-process"]
    assert main(["transfer", *words, "--schemes", "sp", "--out", str(folder / "own")]) == 0
    said = capsys.readouterr().out
    assert "The best learning rate transfers from depth 2 to 4." in said


def test_one_command_has_the_options_of_all_that_can_be_measured(capsys):
    with pytest.raises(SystemExit):
        parse(["transfer", "--help"])
    shown = capsys.readouterr().out
    for name in ("--model", "--train", "--activation", "--preset", "--base", "--target", "--ray"):
        assert (name in shown) == (name != "--ray")
    words = ["transfer", "--train=m:f", "--base", "8x2", "--scheme", "sp", "--optimizer", "sgd"]
    options = parse(words)
    assert isinstance(options, Options)
    assert (options.schemes, options.optimizers) == (("sp",), ("sgd",))


@pytest.mark.parametrize("option", ["--activation", "--preset", "--label-noise", "--data"])
def test_options_of_the_built_in_networks_are_refused(folder, option, capsys):
    value = {"--label-noise": "0.1", "--preset": "tiny"}.get(option, "relu")
    assert transfer(folder, option, value, out="never") == 2
    assert f"{option} is for the built-in networks" in capsys.readouterr().err
    assert not (folder / "never").exists()


def test_options_of_a_model_are_refused_for_the_built_in_networks(folder, capsys):
    assert main(["transfer", "--clip", "0.5", "--out", str(folder / "never")]) == 2
    assert "--clip is for custom models (--model)" in capsys.readouterr().err
    assert not (folder / "never").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--base", "16"], "WIDTHxDEPTH"),
        (["--target", "big"], "WIDTHxDEPTH"),
        (["--schemes", "nope"], "Expected a scheme"),
        (["--optimizers", "nope"], "Expected an optimizer"),
        (["--depths", "4", "8"], "contain the base's, 2"),
        (["--lrs", "nan"], "Expected lrs to be positive"),
        (["--window", "11"], "between 1 and the number of steps"),
        (["--warmup", "2"], "warmup to be a fraction"),
        (["--batch", "nothing"], "no function 'nothing'"),
        (["--train", "mine_own:train"], "one of --model, a factory, --train"),
        (["--log", "neptune:x"], "tensorboard:FOLDER"),
        (["--shard", "3/2"], "a shard i/k"),
        (["--workers", "-1"], "Expected workers"),
        (["--tolerance", "0"], "a positive tolerance"),
    ],
)
def test_bad_input_is_refused(folder, wrong, message, capsys):
    assert transfer(folder, *wrong, out="bad") == 2
    assert message in capsys.readouterr().err


def test_an_error_in_the_code_comes_with_its_traceback(folder, tmp_path, capsys):
    text = SOURCE.replace(
        "    x = torch", "    calls.append(1)\n    1 / (len(calls) - 60)\n    x = torch"
    )
    (tmp_path / "mine_own.py").write_text("calls = []\n" + text)
    words = ["--model", f"{tmp_path}/mine_own.py:make", *TINY, "--out", str(tmp_path / "out")]
    assert main(["transfer", *words]) == 3
    said = capsys.readouterr().err
    assert "Finished runs are stored, but training make at width" in said
    assert "mine_own.py" in said
    assert "ZeroDivisionError: division by zero" in said
    assert main(["transfer", *words]) == 0


def test_axes_by_name_on_the_command_line(tmp_path):
    (tmp_path / "sized.py").write_text(
        SOURCE.replace("def batch(generator):", "def batch(generator, batch):").replace(
            "randn(32,", "randn(batch,"
        )
    )
    asked = [
        "transfer", "--model", f"{tmp_path}/sized.py:make", "--base", "width=8", "depth=2",
        "batch=16", "steps=10", "--along", "batch=16,32", "steps=10,20", "--lrs",
        "0.001953125", "0.0078125", "0.03125", "--seeds", "2", "--run", "none", "sde",
        "--executor", "in-process", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    assert main(asked) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [row["axis"] for row in summary["schemes"]] == ["batch", "batch", "steps", "steps"]
    assert any("the steps are held" in said for said in summary["config"]["question"])
    assert summary["schemes"][0]["batches"] == [16, 32]
