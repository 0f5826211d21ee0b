"""``depthmup limit``."""

import json
import math

import pytest

from depthmup.cli import main

SMALL = ["--steps", "3", "--batch-size", "2"]


def limit(capsys, *arguments):
    status = main(["limit", *SMALL, *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_finite_depth_approaches_infinite_depth(capsys):
    """Error of order 1/L: doubling the depth halves the distance."""
    _, infinite = limit(capsys)
    gaps = []
    for depth in ("64", "128"):
        status, finite = limit(capsys, "--depth", depth)
        assert status == 0
        gaps.append(abs(finite["losses"][2] - infinite["losses"][2]))
    assert gaps[1] == pytest.approx(gaps[0] / 2, rel=0.1)


def test_an_untrained_network_guesses(capsys):
    _, found = limit(capsys)
    assert found["losses"][0] == pytest.approx(math.log(10))
    assert found["rms"][0][0] == pytest.approx(1.0)
    assert found["rms"][0][-1] == pytest.approx(math.exp(0.5))


def test_a_nonlinear_limit(capsys):
    status, found = limit(capsys, "--activation", "relu")
    assert status == 0
    assert found["status"] == "ok"
    assert found["losses"][1:] != limit(capsys, "--activation", "abs")[1]["losses"][1:]


def test_two_matrices_under_completep(capsys, tmp_path):
    """The mean ODE of a linear network is exact; finite depths approach it as 1/L."""
    completep = ["--block-depth", "2", "--scheme", "completep", "--lr", "0.5"]
    out = tmp_path / "limit.json"
    status, infinite = limit(capsys, *completep, "--out", str(out))
    assert status == 0
    assert infinite["status"] == "ok"
    assert infinite["error_estimate"] < 1e-9
    page = out.with_suffix(".html").read_text()
    assert "two matrices per branch, identity, completep" in page
    gaps = [
        abs(limit(capsys, *completep, "--depth", depth)[1]["losses"][2] - infinite["losses"][2])
        for depth in ("64", "128")
    ]
    assert gaps[1] == pytest.approx(gaps[0] / 2, rel=0.1)
    assert infinite["losses"] != limit(capsys, "--lr", "0.5")[1]["losses"]


@pytest.mark.parametrize(
    "options",
    [
        ["--block-depth", "2", "--scheme", "completep", "--rms-norm", "--decay", "0.1"],
        ["--block-depth", "2", "--depth", "4", "--lr-second", "0.3", "--width-ratio", "2"],
        ["--depth", "4"],
        ["--optimizer", "sign", "--batch-size", "1", "--depth", "4", "--block-depth", "2"],
    ],
)
def test_averages_say_their_error(options, capsys):
    fewer = ["--points", "1024", "--tol", "0.5", "--lr", "0.3", "--activation", "tanh"]
    status, found = limit(capsys, *fewer, *options)
    assert status == 0
    assert 1e-6 < found["error_estimate"] < 0.5
    status, found = limit(capsys, *fewer, *options, "--tol", "1e-7")
    assert status == 1
    assert "unresolved" in found["status"]


def test_files_beside_each_other(tmp_path, capsys):
    out = tmp_path / "new" / "limit.json"
    assert main(["limit", *SMALL, "--out", str(out)]) == 0
    assert json.loads(out.read_text())["status"] == "ok"
    assert "vega" in out.with_suffix(".html").read_text().lower()
    assert "step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--depth", "3.5"], "positive integer or inf"),
        (["--depth", "0"], "depth"),
        (["--steps", "0"], "at least 1"),
        (["--alpha", "1/4"], "explodes"),
        (["--gamma", "1"], "gamma"),
        (["--activation", "swich"], "activation"),
        (["--block-depth", "3"], "1 or 2 matrices"),
        (["--decay", "0.1"], "--decay has no effect with --block-depth 1"),
        (["--optimizer", "sign"], "sign of a sum"),
        (
            ["--optimizer", "sign", "--batch-size", "1", "--momentum", "0.5"],
            "--momentum has no effect",
        ),
        (["--scheme", "completep", "--alpha", "1"], "leave --alpha"),
        (["--points", "1024"], "--points has no effect with a limit in which nothing is sampled"),
        (["--scheme", "no-such-scheme"], "no-such-scheme"),
    ],
)
def test_bad_input(wrong, message, tmp_path, capsys):
    out = tmp_path / "limit.json"
    assert main(["limit", *SMALL, "--out", str(out), *wrong]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "option",
    [("--depth", "8"), ("--activation", "erf"), ("--decay", "0.1"), ("--points", "512")],
)
def test_the_check_refuses_what_it_would_ignore(option, capsys):
    assert main(["limit", *SMALL, "--check", *option]) == 2
    assert f"{option[0]} cannot be combined with --check" in capsys.readouterr().err
