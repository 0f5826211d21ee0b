"""``depthmup regimes --map``: Figure 1 computed and from trained networks, and its exit status."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import pytest

from depthmup.cli import main
from depthmup.reports import save_chart
from reproduction import map_command
from reproduction.claims import regime_map as figure_1
from reproduction.pages.regime_map import MapPoint, regime_map, regime_maps, regimes_page

TINY = ["--measured", "--depths", "8", "16", "32", "--seeds", "2"]


@pytest.fixture
def one_computed(monkeypatch):
    """The computed map is another test's."""
    monkeypatch.setattr(figure_1, "ALPHAS", figure_1.ALPHAS[4:5])
    monkeypatch.setattr(figure_1, "GAMMAS", figure_1.GAMMAS[:1])


def drawn(capsys, path, *pairs):
    status = main(["regimes", "--map", str(path), *TINY, "--pairs", *pairs, "--json"])
    return status, json.loads(capsys.readouterr().out)["measured"]


def test_the_map_agrees_with_the_claims(tmp_path, monkeypatch, capsys):
    """A slice of Figure 1 that crosses every region; the full one is a command away."""
    monkeypatch.setattr(figure_1, "ALPHAS", figure_1.ALPHAS[2::2])
    monkeypatch.setattr(figure_1, "GAMMAS", figure_1.GAMMAS[::4])
    assert main(["regimes", "--map", str(tmp_path / "map.svg"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["disagreements"] == 0
    assert {point["region"] for point in found["points"]} >= {
        "unstable at initialization",
        "unstable in training",
        "trivial",
        "redundant",
        "Depth-muP",
    }
    assert (tmp_path / "map.svg").read_text().startswith("<svg")


def test_a_map_in_no_known_format(tmp_path, capsys):
    assert main(["regimes", "--map", str(tmp_path / "map.bmp")]) == 2
    assert "to end in .html" in capsys.readouterr().err


@pytest.mark.long
def test_networks_lie_where_the_claims_say(one_computed, tmp_path, capsys):
    """Also where branches are small enough to hide, at these depths, that noise explodes."""
    pairs = {
        "1/2,1/2": "Depth-muP",
        "1/4,3/4": "unstable at initialization",
        "1/2,0": "unstable in training",
        "1/2,1": "trivial",
    }
    status, found = drawn(capsys, tmp_path / "map.svg", *pairs)
    assert [point["region"] for point in found["points"]] == list(pairs.values())
    # kappa is the one exponent that six networks of three depths do not settle.
    assert [point["decided"] for point in found["points"]] == [False, True, True, True]
    assert (status, found["disagreements"], found["undecided"]) == (0, 0, 1)
    assert "Measured on trained networks" in (tmp_path / "map.svg").read_text()


@pytest.mark.parametrize(("decided", "status"), [(True, 1), (False, 0)])
def test_a_pair_found_elsewhere_is_an_error_if_it_is_decided(
    one_computed, tmp_path, capsys, monkeypatch, decided, status
):
    half = Fraction(1, 2)
    elsewhere = MapPoint(
        alpha=half, gamma=half, region="trivial", expected="Depth-muP", decided=decided
    )
    monkeypatch.setattr(map_command, "_measured", lambda pairs, **options: ([elsewhere], []))
    arguments = ["regimes", "--map", str(tmp_path / "map.svg"), "--measured"]
    assert main(arguments) == status
    said = capsys.readouterr().out
    assert ("(1/2, 1/2): trivial, not Depth-muP" in said) == decided
    assert ("(1/2, 1/2): undecided, perhaps trivial" in said) != decided


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--measured"], "--map FILE"),
        (["--measured", "--map", "{}/map.svg", "--pairs", "1/2"], "alpha,gamma"),
        (["--measured", "--map", "{}/map.svg", "--pairs", "1/2,one"], "gamma"),
        (["--measured", "--map", "{}/map.svg", "--depths", "8", "12", "16"], "multiples of 8"),
    ],
)
def test_bad_input_is_refused_before_anything_is_trained(arguments, says, tmp_path, capsys):
    assert main(["regimes", *(a.format(tmp_path) for a in arguments)]) == 2
    assert says in capsys.readouterr().err


def test_undecided_pairs_are_hollow_and_quarters_are_not_rounded():
    half = Fraction(1, 2)
    points = [
        MapPoint(alpha=half, gamma=half / k, region="trivial", expected="trivial", decided=decided)
        for k, decided in ((1, True), (2, False))
    ]
    layers = regime_map(points, title="").to_dict()["layer"]
    shown = {layer["mark"]["filled"]: layer["data"]["values"] for layer in layers[1:3]}
    assert [row["gamma"] for row in shown[True]] == [0.5]
    assert [row["gamma"] for row in shown[False]] == [0.25]
    axis = layers[1]["encoding"]["y"]["axis"]
    assert (axis["values"], axis["format"]) == ([0.25, 0.5], ".2~f")


def test_a_picture_shows_every_pair_and_the_names(tmp_path):
    half = Fraction(1, 2)
    points = [
        MapPoint(alpha=half, gamma=half / k, region="trivial", expected="trivial")
        for k in (1, 2, 4, 8)
    ]
    path = tmp_path / "map.svg"
    save_chart(regime_maps({"computed": points}), path)
    picture = path.read_text()
    squares = re.findall(r'aria-label="alpha[^"]*; pair[^"]*"[^>]* d="(M[^"]*)"', picture)
    assert len(squares) == 4
    assert all(float(square[1:].split(",")[0]) < -5 for square in squares)
    assert re.search(r'opacity="1">trivial<', picture)


def test_a_page_explains_the_marks_that_it_has():
    half = Fraction(1, 2)
    point = MapPoint(alpha=half, gamma=half, region="Depth-muP", expected="Depth-muP")
    plain = regimes_page({"computed": [point]}, headline="Found.")
    assert "hollow" not in plain
    assert "cross" not in plain.split("<script")[0]
    assert "Depth-muP, HyperP" in plain
    left_open = regimes_page({"measured": [replace(point, decided=False)]}, headline="Found.")
    assert "A hollow square is a pair" in left_open
    wrong = regimes_page({"measured": [replace(point, region="trivial")]}, headline="Found.")
    assert "A cross marks a pair" in wrong
