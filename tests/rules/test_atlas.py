"""Optimizer classes of public packages are planned as they were measured."""

import csv

import pytest
import torch

from depthmup.rules import DECAYS, EPSILON, Family, named
from depthmup.rules.atlas import FILE, entries

with FILE.open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))


def foreign(module, name):
    """A class of a package that need not be installed."""
    return type(name, (torch.optim.Optimizer,), {"__module__": module})


def test_every_row_has_a_verdict_and_none_is_wrong():
    verdicts = [row["verdict"] for row in ROWS]
    assert set(verdicts) <= {"right", "refused", "not run"}
    assert verdicts.count("right") >= 200
    for row in ROWS:
        assert row["family"] in ("", "none", *Family), row
        assert row["verdict"] == "right" or row["why"], row


@pytest.mark.parametrize(
    ("module", "name", "planned"),
    [
        ("timm.optim.lion", "Lion", ("lion", Family.ENTRYWISE)),
        ("dion.normuon", "NorMuon", ("spectral-ratio", Family.SPECTRAL_RATIO)),
        ("optimi.adam", "Adam", ("optimi.adam", Family.ENTRYWISE)),  # its decay is coupled
        ("mine.optim", "Adam", ("mine.adam", Family.ENTRYWISE)),  # whose decay nobody measured
        ("mine.optim", "AdamW", ("adamw", Family.ENTRYWISE)),
    ],
)
def test_a_class_is_planned_as_it_was_measured(module, name, planned):
    assert named(foreign(module, name)) == planned


def test_what_is_not_of_its_name_has_no_decay_that_is_known():
    assert "optimi.adam" not in DECAYS
    assert EPSILON["optimi.adam"] == EPSILON["adam"]


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("timm.optim.lamb", "Lamb", r"by its settings: 'entrywise' .*'relative'"),
        ("heavyball", "Scion", r"heavyball\.Scion 3\.2\.1 has no rule"),
        ("omnimuon", "Muon", "does not follow|no rule: its updates follow its group's learning"),
    ],
)
def test_a_class_without_a_rule_is_refused_with_what_was_measured(module, name, message):
    with pytest.raises(ValueError, match=message) as caught:
        named(foreign(module, name))
    assert "family_of" in str(caught.value)


def test_entries_of_a_class():
    (entry,) = entries(torch.optim.RAdam)
    assert (entry.family, entry.verdict) == ("entrywise", "right")
    assert entries(foreign("mine", "Adam")) == ()
