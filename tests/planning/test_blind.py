"""What thirty-nine models that nobody had seen showed, each kind as one small program."""

import ast
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood
from depthmup.rules import Kind
from tests.zoo import blind_models as unseen

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
STEPS = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))
IDS = torch.randint(1, 20, (3, 7), generator=torch.Generator().manual_seed(0))


def planned(make, inputs, base=(16, 2), target=(64, 6), **options):
    sizes = [dict(zip(("width", "depth"), size, strict=True)) for size in (base, target)]
    given = {"scheme": "completep", "proof": "off", "own_init": "fan_in"} | options
    return depthmup.plan(
        lambda width, depth: make(width, depth), base=sizes[0], target=sizes[1],
        example_inputs=inputs, **given,
    )  # fmt: skip


def factors(plan):
    return [(p.name, p.role, p.init, p.lr, p.epsilon, p.decay) for p in plan.prescriptions]


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Recurrent(nn.Module):
    """Layers on what a recurrent one gives, of which each step takes an input of its own."""

    def __init__(self, width, depth, kind):
        super().__init__()
        self.inp, self.rnn = nn.Linear(8, width), kind(width, width, batch_first=True)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)))
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        return self.out(self.layers(self.rnn(self.inp(x))[0]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.RNN, nn.GRU])
def test_steps_of_a_recurrent_layer_are_no_depth(kind):
    plan = planned(lambda w, d: Recurrent(w, d, kind), (STEPS,))
    assert [(s.additions, s.base_additions, s.ratio) for s in plan.depths] == [(6, 2, 3.0)]
    assert not plan["rnn.weight_hh_l0"].role.in_branch


class Functional(unseen.Fused):
    """The same as ``Fused``, each addition written as one."""

    def forward(self, x):
        p = self.p
        x = x @ p["in"]
        for i in range(self.d):
            h = F.normalize(x, dim=-1) * x.shape[-1] ** 0.5
            x = x + torch.relu(h @ p[f"u{i}"]) @ p[f"v{i}"]
        return x @ p["out"]


def test_a_residual_sum_inside_of_addmm():
    assert factors(planned(unseen.Fused, (X,))) == factors(planned(Functional, (X,)))


def test_two_vectors_that_make_a_complex_one():
    plan = planned(unseen.LRU, (STEPS[..., :4],))
    role = plan["layers.0.nu"].role
    assert (role.kind, role.in_branch) == (Kind.VECTOR, True)
    assert plan["layers.0.c_re"].role.kind is Kind.HIDDEN


class Shadowed(nn.Module):
    """Its layers are listed once more, under the name of one of nn.Module's own methods."""

    def __init__(self, width, depth):
        super().__init__()
        layers = [nn.Linear(8, width), *(Layer(width) for _ in range(depth)), nn.Linear(width, 3)]
        self.parameters = nn.ModuleList(layers)
        self.stages = [layers]

    def forward(self, x):
        for layer in self.stages[0]:
            x = layer(x)
        return x


def test_a_module_called_as_a_method():
    plan = planned(Shadowed, (X,))
    assert {p.role.kind for p in plan.prescriptions if p.name.endswith("up.weight")} == {
        Kind.HIDDEN
    }


class InSeries(unseen.LowRank):
    def forward(self, x):
        x = self.inp(x)
        for a, b, n in zip(self.a, self.b, self.norms, strict=True):
            x = x + F.linear(F.linear(F.gelu(n(x)), b), a)
        return self.out(x)


def test_a_product_of_matrices_that_was_declared_is_no_score():
    """What the refusal offers, followed to the letter, is the plan of the two one by one."""
    with pytest.raises(NotUnderstood, match="a factor of a computed weight") as refused:
        planned(unseen.LowRank, (X,))
    offered = re.search(r"roles=({.*?})", str(refused.value))[1]
    plan = planned(unseen.LowRank, (X,), roles=ast.literal_eval(offered))
    assert factors(plan) == factors(planned(InSeries, (X,)))


class Gated(nn.Module):
    def __init__(self, width, how, fixed=8):
        super().__init__()
        self.norm, self.how = nn.LayerNorm(width), how
        self.gate, self.up = (nn.Linear(width, fixed, bias=False) for _ in range(2))
        self.both = nn.Linear(width, 2 * fixed, bias=False)
        self.down = nn.Linear(fixed, width, bias=False)

    def forward(self, x):
        return x + self.down(self.how(self, self.norm(x)))


TWICE = {
    "swiglu": lambda m, y: F.silu(m.gate(y)) * m.up(y),
    "one matrix, cut": lambda m, y: torch.mul(*m.both(y).chunk(2, -1)),
    "outer": lambda m, y: torch.einsum("bi,bj->bij", m.gate(y), 2 * m.up(y)).mean(1),
}
ONCE = {
    "a gate that begins at a half": lambda m, y: torch.sigmoid(m.gate(y)) * m.up(y),
    "no gate": lambda m, y: F.silu(m.up(y)),
}


def gated(how):
    return lambda width, depth: nn.Sequential(
        nn.Linear(8, width), *(Gated(width, how) for _ in range(depth)), nn.Linear(width, 3)
    )


def branch_growth(how, widths=(32, 64, 128, 256)):
    """How much larger the first branch is at the start from the least width to the largest."""
    sizes = []
    for width in widths:
        squares = []
        for seed in range(4):
            torch.manual_seed(seed)
            model = gated(how)(width, 2)
            if width > widths[0]:
                torch.manual_seed(seed)
                base = gated(how)(widths[0], 2)
                depthmup.plan(
                    model, base, scheme="mup", example_inputs=(X,), own_init="fan_in", proof="off"
                ).initialize(model)
            given = model[0](X)
            squares.append((model[1](given) - given).square().mean().item())
        sizes.append(sum(squares) / len(squares))
    return (sizes[-1] / sizes[0]) ** 0.5


@pytest.mark.parametrize("name", TWICE)
def test_what_multiplies_two_narrow_outputs_does_not_vanish(name):
    assert 0.6 < branch_growth(TWICE[name]) < 1.7  # of 1/n each is 0.13


@pytest.mark.parametrize("name", ONCE)
def test_one_narrow_output_alone_starts_as_a_readout(name):
    plan = planned(gated(ONCE[name]), (X,))
    assert plan["1.up.weight"].role.narrows
    assert plan["1.up.weight"].init == pytest.approx(1 / 4)


def test_outputs_summed_over_layers_are_declared_as_the_message_says():
    sounds = (torch.randn(3, 1, 24),)
    with pytest.raises(NotUnderstood, match=r"outputs of skip\.\*\.weight are summed") as refused:
        planned(unseen.WaveNet, sounds)
    offered = ast.literal_eval(re.search(r"branches=({.*})", str(refused.value))[1])
    plan = planned(unseen.WaveNet, sounds, branches=offered)
    assert {s.label: s.ratio for s in plan.depths} == {"res.*": 3.0, "skip.*": 3.0}
    assert not any("summed over layers" in note for note in plan.notes)


def test_outputs_summed_over_layers_that_were_declared_are_noted():
    plan = planned(unseen.WaveNet, (torch.randn(3, 1, 24),), roles={"skip.*.weight": "hidden"})
    assert any("skip.*.weight are summed over layers" in note for note in plan.notes)


def test_two_streams_that_read_each_other():
    plan = planned(unseen.Evoformer, (IDS,), target=(64, 4))
    assert {s.ratio for s in plan.depths} == {2.0}
    assert len(plan.depths) == 2


@pytest.mark.parametrize(("make", "inputs"), [(unseen.Equilibrium, (X,)), (unseen.Einsums, (IDS,))])
def test_depth_and_width_together_are_each_alone(make, inputs):
    """A norm that all layers share, and the last layer's norm that carries a multiplier."""
    assert planned(make, inputs).prescriptions


class TiedAlone(nn.Module):
    """Nothing but the model itself can multiply what its tied table gives."""

    def __init__(self, width, depth):
        super().__init__()
        self.table = nn.Embedding(20, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)))

    def forward(self, ids):
        return F.linear(torch.tanh(self.layers(self.table(ids))), self.table.weight)


def test_outputs_that_the_model_itself_multiplies_are_proven():
    plan = planned(TiedAlone, (IDS,), proof="auto", target=(64, 2), own_init=None)
    assert [hook.module for one in plan.multipliers for hook in one.hooks] == [""]
    assert plan.proof.startswith("Proven to within most of a power, at width x 4: 3 steps change")
