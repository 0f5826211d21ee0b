"""Linearized blocks against forward-mode differentiation, and Section 9.2."""

import pytest
import torch
from cells import cell
from planted import NO, OPEN, YES, finding
from pytest import approx
from torch.func import functional_call, jvp

from depthmup.records import Cell
from depthmup.rules import ODE, general
from depthmup.sweep import InProcess, Store
from depthmup.training import build
from reproduction import Setting, named, reproduce
from reproduction.claims.linearization import distances_of, linearized


def updated(**options):
    """A network, its initial matrices, and random updates in place."""
    torch.manual_seed(0)
    model = build(cell(depth=3, width=12, block_depth=2, **options)).double()
    initial = [[m.weight.detach().clone() for m in b.matrices] for b in model.branches]
    with torch.no_grad():
        for parameter in model.branches.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model, initial


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "gelu"},
        {"activation": "tanh"},
        {"activation": "gelu", "nonlinearity": "pre"},
        {"activation": "gelu", "layer_norm": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("mean_subtraction", [True, False])
def test_linearized_blocks_are_their_first_order_expansions(options, mean_subtraction):
    model, initial = updated(mean_subtraction=mean_subtraction, **options)
    inputs = torch.randn(5, 64, dtype=torch.float64)
    x = model.input(inputs)
    for branch, start in zip(model.branches, initial, strict=True):
        names = [name for name, _ in branch.named_parameters()]
        old = dict(zip(names, start, strict=True))
        new = {name: p.detach() - old[name] for name, p in branch.named_parameters()}
        value, change = jvp(lambda p, b=branch, x=x: functional_call(b, p, (x,)), (old,), (new,))
        x = x + model.multiplier * (value + change)
    torch.testing.assert_close(linearized(model, initial)(inputs), model.readout(x))


def test_without_updates_a_linearized_network_is_the_network_and_has_its_gradient():
    model = build(cell(depth=3, width=12, block_depth=2, activation="gelu")).double()
    initial = [[m.weight.detach().clone() for m in b.matrices] for b in model.branches]
    inputs = torch.randn(5, 64, dtype=torch.float64)
    gradients = []
    for forward in (model, linearized(model, initial)):
        model.zero_grad()
        out = forward(inputs)
        torch.testing.assert_close(out, model(inputs))
        out.square().sum().backward()
        gradients.append([p.grad.clone() for p in model.branches.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_blocks_of_one_matrix_without_nonlinearity_are_linear_already():
    one = cell(depth=4, activation="identity", steps=5)
    result = distances_of(cell=one.to_json())
    # Single precision, relative to a change of a tenth or so.
    assert result["outputs"] < 1e-3
    assert result["blocks"] < 1e-3


def test_a_run_that_diverges_has_no_distance():
    wild = cell(6.0, depth=4, block_depth=2, activation="gelu", steps=30)
    assert distances_of(cell=wild.to_json()) == approx(
        {"outputs": float("nan"), "blocks": float("nan")}, nan_ok=True
    )


def planted(size_of, **setting):
    def law(settings):
        described = Cell.from_json(settings["cell"])
        return dict.fromkeys(
            ("outputs", "blocks"), size_of(described) * (1 + 0.01 * described.seed)
        )

    return finding("sec9.2", law, sizes={"depths": (8, 16, 32, 64), "seeds": 3}, **setting)


def update(described):
    """The size of an update relative to the weight's; relu flips units."""
    size = described.optimizer.lr * described.network.width
    return size**0.5 if described.network.activation == "relu" else size


def test_planted_exponents_decide():
    right = planted(update)
    assert right.verdict is YES
    assert {c.verdict for c in right.comparisons} == {YES}
    assert planted(lambda c: 0.1).verdict is NO
    assert planted(lambda c: float("nan")).verdict is OPEN


@pytest.mark.parametrize("rule", [ODE, general("1/2", 0)], ids=["ode", "gamma 0"])
def test_rules_whose_updates_do_not_shrink_are_found_out(rule):
    assert planted(update, depth_mup=rule).verdict is NO


@pytest.mark.long(slice=False)
def test_small_networks_tell_the_rules_apart(tmp_path):
    """Whether the right one is sure enough is a matter of size; the wrong one is found out.

    At (1, 0) a block's distance has the exponent 0.02 +- 0.19, and -1/2 is claimed with 0.25.
    """
    (claim,) = named(["sec9.2"])
    sizes = {"width": 32, "depths": (8, 16, 32), "seeds": 3}
    with Store(tmp_path / "results.sqlite") as store:
        for rule, possible in ((None, {YES, OPEN}), (ODE, {NO})):
            setting = Setting(sizes=sizes, **({"depth_mup": rule} if rule else {}))
            experiment = claim.experiment(setting)
            reproduce([(claim, experiment)], store=store, executor=InProcess())
            assert claim.finding(experiment, store).verdict in possible
