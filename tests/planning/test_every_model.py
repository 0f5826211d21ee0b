"""Eleven invariants of planning, each on every model of the zoo."""

import re
from fnmatch import fnmatchcase

import pytest
import torch
from pytest import approx

import depthmup
from depthmup.planning import NotUnderstood, PlanMismatch
from studies.zoo import PAIRS, recomputed, trajectory
from tests.zoo.cases import CASES, PLANNED
from tests.zoo.disguise import disguised

FACTORS = ("init", "lr", "epsilon", "decay")


def each(cases):
    """The tests of a case follow one another in one process, which traces it once."""
    marked = [pytest.param(c, id=c.name, marks=pytest.mark.xdist_group(c.name)) for c in cases]
    return pytest.mark.parametrize("case", marked, scope="module")


def factors(plan):
    return {p.name: tuple(getattr(p, name) for name in FACTORS) for p in plan.prescriptions}


def optimizer_of(plan, model):
    return torch.optim.AdamW(plan.param_groups(model, lr=1e-3, weight_decay=0.1, eps=1e-6))


def settings(groups):
    """What every parameter is trained with."""
    keys = ("lr", "weight_decay", "eps")
    return {id(p): [float(g[key]) for key in keys] for g in groups for p in g["params"]}


@pytest.mark.long
@each([case for case in CASES if case.expect])
def test_factors_are_those_derived_by_hand(case):
    plan = case.plan()
    for pattern, expected in case.expect.items():
        matching = [p for p in plan.prescriptions if fnmatchcase(p.name, pattern)]
        assert matching, pattern
        for p in matching:
            assert (p.init, p.lr) == approx(expected), p.name
    assert not (case.silent and plan.notes)


@each([case for case in CASES if case.refuses])
def test_a_refusal_says_why_and_names_a_part_of_the_model(case):
    with pytest.raises(NotUnderstood, match=case.refuses) as refused:
        case.plan()
    model, _ = case.built(case.target, "meta")
    names = {part for name, _ in model.named_parameters() for part in name.split(".")}
    assert names & set(re.findall(r"\w+", str(refused.value)))


@pytest.mark.long
@each(PLANNED)
def test_every_optimizers_factors_are_those_of_a_second_reading_of_the_rules(case):
    """And the first of them is proven: whatever contradicts it raises."""
    seen = 0
    for number, (scheme, optimizer) in enumerate(PAIRS):
        plan = case.plan(scheme, optimizer, proof="off" if number else "auto")
        for p in plan.prescriptions:
            expected = recomputed(p, scheme)
            for factor in FACTORS if expected else ():
                seen += 1
                assert getattr(p, factor) == approx(getattr(expected, factor)), (
                    scheme, optimizer, factor, p.name
                )  # fmt: skip
    assert seen > 30


@pytest.mark.long
@each(PLANNED)
def test_at_the_base_nothing_changes(case):
    plan = case.plan(target=case.base)
    assert set(factors(plan).values()) == {(1, 1, 1, 1)}
    assert plan.multipliers == ()


@pytest.mark.long
@each(PLANNED)
def test_two_hops_are_one(case):
    """From the base to one twice as wide and deep, and from there to the target."""
    middle = (2 * case.base[0], 2 * case.base[1])
    once = factors(case.plan())
    hops = (case.plan(target=middle), case.plan(base=middle))
    first, second = map(factors, hops)
    names = {p.name for p in hops[0].prescriptions} & once.keys()
    assert len(names) > 2
    for name in names:
        product = [a * b for a, b in zip(first[name], second[name], strict=True)]
        assert once[name] == approx(tuple(product)), name


@pytest.mark.long
@each(PLANNED)
def test_width_and_depth_at_once_are_both_one_by_one(case):
    """Under CompleteP, whose epsilon tells what stands inside of branches."""
    wide, deep = ((case.target[0], case.base[1]), (case.base[0], case.target[1]))
    both, wider, deeper = (
        case.plan("completep", "adamw", target=target) for target in (case.target, wide, deep)
    )
    one, other = factors(wider), factors(deeper)
    for p in both.prescriptions:
        of_width = one.get(p.name, one.get(p.base_name))
        if of_width is None or p.name not in other:
            continue  # a base of this plan that the others do not have
        product = [a * b for a, b in zip(of_width, other[p.name], strict=True)]
        assert factors(both)[p.name] == approx(tuple(product)), p.name


@pytest.mark.long
@each(PLANNED)
def test_a_model_without_memory_is_planned_alike(case):
    (model, drawn), (base, base_drawn) = (case.built(s, "meta") for s in (case.target, case.base))
    plan = depthmup.plan(
        model, base=base, scheme="depth-mup", example_inputs=case.inputs, drawn=(drawn, base_drawn)
    )
    assert factors(plan) == factors(case.plan())


@pytest.mark.long
@each(PLANNED)
def test_names_say_nothing(case):
    (model, drawn), (base, base_drawn) = map(case.built, (case.target, case.base))
    renamed, base_renamed = disguised(model), disguised(base)
    assert any(old != new for old, new in renamed.items())
    plan = depthmup.plan(
        model, base=base, scheme="depth-mup", example_inputs=case.inputs, proof="off",
        drawn=(
            {renamed[name]: value for name, value in drawn.items()},
            {base_renamed[name]: value for name, value in base_drawn.items()},
        ),
    )  # fmt: skip
    expected = {renamed[name]: values for name, values in factors(case.plan()).items()}
    assert factors(plan) == expected


@pytest.mark.long
@each(PLANNED)
def test_a_saved_plan_is_the_plan(case, tmp_path):
    plan = case.plan()
    plan.save(tmp_path / "plan.json")
    again = depthmup.Plan.load(tmp_path / "plan.json")
    assert again.prescriptions == plan.prescriptions
    assert again.multipliers == plan.multipliers
    model, _ = case.built(case.target)
    given = [plan_.param_groups(model, lr=1e-3) for plan_ in (plan, again)]
    assert settings_without(given[0]) == settings_without(given[1])


def settings_without(groups):
    return [{key: value for key, value in group.items() if key != "params"} for group in groups]


@pytest.mark.long
@each(PLANNED)
def test_groups_that_are_made_are_groups_that_are_rescaled_and_verify_sees_a_fault(case):
    plan, (model, _) = case.plan(), case.built(case.target)
    plan.initialize(model)
    optimizer = optimizer_of(plan, model)
    plain = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, eps=1e-6)
    plan.rescale(model, plain)
    made, rescaled = settings(optimizer.param_groups), settings(plain.param_groups)
    assert made.keys() == rescaled.keys()
    for key, values in made.items():
        assert rescaled[key] == approx(values, rel=1e-12)
    for one in (optimizer, plain):
        plan.verify(model, one)
        one.param_groups[-1]["lr"] *= 1.5
        with pytest.raises(PlanMismatch):
            plan.verify(model, one)


@pytest.mark.filterwarnings("ignore:The input of")
@pytest.mark.long
@each(PLANNED)
def test_folded_and_explicit_multipliers_follow_one_trajectory(case):
    folded, explicit = (trajectory(case, folding=folding) for folding in (True, False))
    # Double precision, three steps: rounding is 1e-12; what computes in single precision, 1e-6.
    assert (folded - explicit).abs().max() < 1e-5 * explicit.square().mean().sqrt()
