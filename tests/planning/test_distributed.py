"""Two processes, sharded or replicated, compute what one computes; compiled models too."""

import json

import pytest
import torch
from distributed_worker import BASE, FORMS, TARGET, WRAPPED, label, losses, work
from planning_zoo import ResidualMLP, Transformer, batches, tokens, train, vectors
from pytest import approx
from several import together

import depthmup
from depthmup.planning.hooks import attached


@pytest.mark.long
@pytest.mark.xdist_group("several")
def test_two_processes_equal_one(tmp_path):
    """Explicit hooks on a tied model, and a folded one: losses and unfolded gradient norms."""
    together(work, str(tmp_path))
    result = json.loads((tmp_path / "losses.json").read_text())
    expected = {form: losses("one", "before", *form) for form in FORMS}
    assert len(result) == len(WRAPPED)
    for how, order, form in WRAPPED:
        name = label(how, order, form)
        # Sums in another order, in float32, over five steps of Adam.
        for got, want in zip(result[name], expected[form], strict=True):
            assert got == approx(want, rel=2e-4), name


@pytest.mark.long
@pytest.mark.parametrize("folding", [True, False], ids=["folded", "explicit"])
@pytest.mark.parametrize("order", ["before", "after"])
def test_compiled_in_one_graph(order, folding):
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model, base = Transformer(*TARGET, tied=True), Transformer(*BASE, tied=True)
        options = {
            "base": base, "scheme": "completep", "example_inputs": tokens(),
            "folding": folding,
        }  # fmt: skip
        plan = depthmup.plan(model, **options) if order == "before" else None
        called = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
        plan = plan or depthmup.plan(called, **options)
        plan.initialize(called)
        assert attached(called) == (0 if folding else 17)
        optimizer = torch.optim.AdamW(plan.param_groups(called, lr=1e-2))
        data = batches(tokens(), (2, 8, 32), 5, dtype=torch.float32)
        results.append(train(called, [optimizer], data))
    assert results[0] == approx(results[1], rel=1e-4)


def test_prefixes_of_wrappers():
    torch.manual_seed(0)
    model = ResidualMLP(32, 4)
    plan = depthmup.plan(
        model, base=ResidualMLP(16, 2), example_inputs=vectors(), own_init="fan_in"
    )
    expected = [g["param_names"] for g in plan.param_groups(model, lr=1.0)]
    compiled = torch.compile(model)
    assert "_orig_mod.inp.weight" in dict(compiled.named_parameters())
    inside = ResidualMLP(32, 4)
    for i, block in enumerate(inside.blocks):
        inside.blocks[i] = torch.compile(block)
    assert "blocks.0._orig_mod.up.weight" in dict(inside.named_parameters())
    parallel = torch.nn.DataParallel(model)
    assert "module.inp.weight" in dict(parallel.named_parameters())
    for wrapped in (compiled, inside, parallel):
        assert [g["param_names"] for g in plan.param_groups(wrapped, lr=1.0)] == expected
        again = depthmup.plan(
            wrapped, base=ResidualMLP(16, 2), example_inputs=vectors(), own_init="fan_in"
        )
        assert again.prescriptions == plan.prescriptions
        assert again.multipliers == plan.multipliers
