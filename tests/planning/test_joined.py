"""Optimizers joined into one train as they do one by one, and resume exactly."""

import copy
import pickle

import pytest
import torch

import depthmup
from depthmup.models import ResidualMLP, Transformer, TransformerConfig
from depthmup.planning import JoinedOptimizer, PlanMismatch


def make(width, depth):
    return ResidualMLP(inputs=8, width=width, depth=depth, outputs=2)


X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def plan():
    return depthmup.plan(
        make(32, 4), make(16, 2), scheme="completep", optimizer="muon", example_inputs=X
    )


def built(plan):
    torch.manual_seed(0)
    model = make(32, 4)
    plan.initialize(model)
    groups = plan.muon_groups(model, lr=0.02, adamw_lr=3e-3, weight_decay=0.1)
    return model, [torch.optim.Muon(groups.muon, lr=0.02), torch.optim.AdamW(groups.adamw)]


def trained(model, optimizers, steps, schedulers=()):
    for _ in range(steps):
        for one in optimizers:
            one.zero_grad()
        model(X).square().mean().backward()
        for one in (*optimizers, *schedulers):
            one.step()
    return [p.detach().clone() for p in model.parameters()]


def halved(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)


def equal(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_it_trains_as_its_parts_do(plan):
    model, parts = built(plan)
    alone = trained(model, parts, 4, [halved(one) for one in parts])
    model, parts = built(plan)
    joined = JoinedOptimizer(*parts)
    together = trained(model, [joined], 4, [halved(joined)])
    assert equal(alone, together)
    assert not equal(together, [p.detach() for p in built(plan)[0].parameters()])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_trains_on_as_the_original_does(plan, copied):
    model, parts = built(plan)
    joined = JoinedOptimizer(*parts)
    trained(model, [joined], 2)
    again, other = copied((model, joined))
    assert equal(trained(model, [joined], 2), trained(again, [other], 2))


def test_a_checkpoint_resumes_exactly(plan):
    model, parts = built(plan)
    joined = JoinedOptimizer(*parts)
    trained(model, [joined], 2)
    saved = copy.deepcopy((model.state_dict(), joined.state_dict()))
    on = trained(model, [joined], 3)
    model, parts = built(plan)
    resumed = JoinedOptimizer(*parts)
    model.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    assert equal(trained(model, [resumed], 3), on)
    # Momenta are part of it: without them training goes elsewhere.
    model, parts = built(plan)
    model.load_state_dict(saved[0])
    assert not equal(trained(model, [JoinedOptimizer(*parts)], 3), on)


def test_the_plan_verifies_and_watches_it(plan):
    model, parts = built(plan)
    joined = JoinedOptimizer(*parts)
    plan.verify(model, joined)
    plan.watch(model, joined)
    trained(model, [joined], 1)
    for group in joined.param_groups:
        group["lr"] = 1e-3
    with pytest.raises(PlanMismatch, match="before step 2"):
        trained(model, [joined], 1)


def test_the_plan_verifies_muon_where_epsilons_of_matrices_differ():
    """They are AdamW's business: Muon has one of its own, which no group scales."""

    def make(width, depth):
        return Transformer(TransformerConfig(vocabulary=16, width=width, depth=depth))

    tokens = torch.zeros(1, 4, dtype=torch.long)
    model, base = make(64, 4), make(32, 2)
    plan = depthmup.plan(
        model, base, scheme="completep", optimizer="muon", example_inputs=tokens, own_init="fixed"
    )
    assert len({p.epsilon for p in plan.prescriptions if p.family.matrices_only}) > 1
    groups = plan.muon_groups(model, lr=0.02, adamw_lr=3e-3)
    parts = torch.optim.Muon(groups.muon, lr=0.02), torch.optim.AdamW(groups.adamw, lr=3e-3)
    plan.verify(model, parts, initialized_by_plan=False)
    parts[1].param_groups[0]["eps"] *= 3
    with pytest.raises(PlanMismatch, match="epsilons"):
        plan.verify(model, parts, initialized_by_plan=False)


def test_a_plan_rescales_it(plan):
    model, parts = built(plan)
    wanted = trained(model, parts, 2)
    model, _ = built(plan)
    matrices = {name for p in plan.prescriptions if p.family.matrices_only for name in p.names}
    named = dict(model.named_parameters())
    muon = torch.optim.Muon([named[n] for n in matrices], lr=0.02, weight_decay=0.1)
    others = [p for n, p in named.items() if n not in matrices]
    adamw = torch.optim.AdamW(others, lr=3e-3, weight_decay=0.1)
    joined = JoinedOptimizer(muon, adamw)
    plan.rescale(model, joined)
    assert equal(trained(model, [joined], 2), wanted)


def test_a_closure_is_called_once_with_gradients(plan):
    model, parts = built(plan)
    joined, calls = JoinedOptimizer(*parts), []

    def closure():
        calls.append(torch.is_grad_enabled())
        joined.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        return loss

    with torch.no_grad():
        assert float(joined.step(closure)) > 0
    assert calls == [True]


def test_what_cannot_be_joined(plan):
    model, parts = built(plan)
    with pytest.raises(ValueError, match="at least one"):
        JoinedOptimizer()
    with pytest.raises(ValueError, match="more than one parameter group"):
        JoinedOptimizer(*parts, torch.optim.SGD(model.named_parameters(), lr=0.1))
    trained(model, parts, 1)
    with pytest.raises(ValueError, match="taken no step"):
        JoinedOptimizer(*parts)
