"""A slice of the zoo: published architectures, planned and checked in every way that it knows."""

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("transformers", reason="pip install 'depthmup[hf]'")

import logging

from studies import zoo

# A decoder with separate and with fused queries, an embedding that is scaled and tied, a network
# of convolutions. Plain models and those by hand are test_every_model's.
SLICE = ("Llama", "GPT2", "BioGpt", "ResNet")


@pytest.fixture
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SLICE)
def test_an_architecture_is_right(name, quiet):
    """Every factor by a second reading of the rules; folded and explicit training alike."""
    architecture = next(a for a in zoo.architectures(("transformers",)) if a.name == name)
    verdict, count = zoo.verdict(architecture)
    assert verdict.status == "right", verdict.why
    assert "differ by" in verdict.why
    assert count > 50


def test_a_wrong_factor_is_seen(quiet, monkeypatch):
    architecture = next(a for a in zoo.architectures() if a.name == "Llama")
    planned = zoo.planned

    def wrong(architecture):
        for scheme, optimizer, (first, *rest) in planned(architecture):
            yield scheme, optimizer, (dataclasses.replace(first, lr=first.lr * 1.01), *rest)

    monkeypatch.setattr(zoo, "planned", wrong)
    verdict, _ = zoo.verdict(architecture)
    assert (verdict.status, "lr of model.embed_tokens" in verdict.why) == ("wrong", True)


def test_a_package_that_is_not_installed_is_counted(monkeypatch):
    monkeypatch.setattr(zoo, "installed", lambda package: False)
    monkeypatch.setattr(zoo, "architectures", lambda packages: iter(()))
    lines = zoo.table(packages=("timm",))
    assert "| timm | not installed | | | |" in lines
