"""A slice of the zoo: published architectures, planned and checked in every way that it knows."""

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("transformers", reason="pip install 'depthmup[hf]'")

import logging

from benchmarks import zoo

# A decoder with separate and with fused queries, an embedding that is scaled and tied, a network
# of convolutions.
SLICE = ("Llama", "GPT2", "BioGpt", "ResNet")


@pytest.fixture
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SLICE)
def test_a_published_architecture_is_right(name, quiet):
    """Every factor by a second reading of the rules; folded and explicit training alike."""
    architecture = next(a for a in zoo.architectures() if a.name == name)
    verdict, count = zoo.verdict(architecture)
    assert verdict.status == "right", verdict.why
    assert "differ by" in verdict.why
    assert count > 100


def test_a_wrong_factor_is_seen(quiet, monkeypatch):
    architecture = next(a for a in zoo.architectures() if a.name == "Llama")
    plan = zoo.planned

    def wrong(*args, **options):
        model, made = plan(*args, **options)
        first, *rest = made.prescriptions
        spoiled = dataclasses.replace(first, lr=first.lr * 1.01)
        return model, dataclasses.replace(made, prescriptions=(spoiled, *rest))

    monkeypatch.setattr(zoo, "planned", wrong)
    verdict, _ = zoo.verdict(architecture)
    assert (verdict.status, "lr of model.embed_tokens" in verdict.why) == ("wrong", True)
