"""Walks over a graph, back and forward, on forward passes whose order is known."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from depthmup.planning import trace
from depthmup.tracing import ForwardError, Ref


class Diamond(nn.Module):
    """x -> relu -> (neg, exp) -> sum of both -> view: one tensor with two readers."""

    def forward(self, x):
        y = x.relu()
        return (y.neg() + y.exp()).view(-1)


@pytest.fixture(scope="module")
def graph():
    return trace(Diamond(), torch.zeros(2, 3))


def names(nodes):
    return [node.op for node in nodes]


def at(graph, op):
    (index,) = [node.index for node in graph.nodes if node.op == op]
    return index


def everything(node, held=()):
    return True


def operands(node):
    return [ref.node for ref in node.inputs]


def test_back_by_operations_follows_the_first_operand(graph):
    view = at(graph, "view")
    assert names(graph.back(view, {"view", "add", "neg"})) == ["view", "add", "neg", "relu"]


def test_back_visits_each_node_once(graph):
    visited = [node.index for node in graph.back(at(graph, "view"), operands)]
    assert len(visited) == len(set(visited))
    assert set(visited) == graph.ancestors(at(graph, "view"))


def test_back_from_several_nodes_and_from_none(graph):
    starts = [at(graph, "neg"), at(graph, "exp")]
    assert sorted(names(graph.back(starts, {"neg"}))) == ["exp", "neg", "relu"]
    assert not [*graph.back((), operands)]


def test_forward_goes_in_the_order_in_which_nodes_ran(graph):
    behind = [node.index for node in graph.forward(at(graph, "input"), everything)]
    assert behind == sorted(behind)
    assert names(graph.nodes[i] for i in behind) == ["relu", "neg", "exp", "add", "view"]


def test_a_node_is_offered_when_all_that_it_is_made_from_has_been(graph):
    def made_from_held(node, held):
        return all(ref.node in held for ref in node.inputs)

    def without_exp(node, held):
        return node.op != "exp" and made_from_held(node, held)

    relu = at(graph, "relu")
    assert names(graph.forward(relu, made_from_held)) == ["neg", "exp", "add", "view"]
    assert names(graph.forward(relu, without_exp)) == ["neg"]


def test_alone_ends_where_a_tensor_has_several_readers(graph):
    assert names(graph.forward(at(graph, "input"), everything, alone=True)) == ["relu"]
    assert names(graph.forward(at(graph, "neg"), everything, alone=True)) == ["add", "view"]


def test_the_origin_is_the_operation_behind_changes_of_shape(graph):
    assert graph.origin(at(graph, "view")) == at(graph, "add")
    assert graph.origin(at(graph, "exp")) == at(graph, "exp")


def test_returned_calls_stand_outermost_last():
    graph = trace(nn.Sequential(nn.Sequential(nn.ReLU())), torch.zeros(2))
    calls = graph.returned[graph.outputs[0]]
    assert [(call.name, index) for call, index in calls] == [("0.0", 0), ("0", 0), ("", 0)]


def test_a_grouped_product_is_followed_in_single_precision_and_without_values():
    """Stand-ins have it in bfloat16 alone; what else a mixture does there may have no such form."""

    class Grouped(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.Parameter(torch.empty(2, 16, 32))
            self.table = nn.Parameter(torch.empty(32, 8))

        def forward(self, x):
            ends = torch.full((2,), 4, dtype=torch.int32, device=x.device).cumsum(0).int()
            return torch._grouped_mm(x, self.experts, offs=ends).float() @ self.table.float()

    with torch.device("meta"):
        graph = trace(Grouped().to(torch.float32), torch.zeros(8, 16))
    (product,) = (node for node in graph.nodes if node.op == "_grouped_mm")
    assert product.shape == (8, 32)
    assert not any(node.op == "_to_copy" for node in graph.nodes if product.index in node.inputs)
    assert graph.nodes[-1].op == "mm"


class Keeping(nn.Module):
    """Keeps a table that its first call makes, and looks at a value of its inputs."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Linear(3, 3)
        self.register_buffer("kept", None, persistent=False)

    def forward(self, x):
        if self.kept is None:
            self.kept = torch.ones(3) * x.shape[-1]
        return self.matrix(x) * self.kept if bool((x >= 0).all()) else self.matrix(x)


def test_what_a_forward_pass_keeps_is_taken_back():
    """A buffer without values stayed in the model, which then could be followed on none."""
    model = Keeping()
    assert trace(model, torch.ones(2, 3)).by_values
    assert model.kept is None


@pytest.mark.parametrize("reads", [False, True])
def test_a_module_of_two_names_keeps_its_parameters(reads):
    """A stand-in took the place of its weight, on which no plan and no training could work."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(3, 3)
            self.two = self.one

        def forward(self, x):
            x = self.two(self.one(x))
            return x if not reads or bool((x > 0).any()) else -x

    model = Twice()
    weight = model.one.weight
    trace(model, torch.ones(2, 3))
    assert model.one.weight is model.two.weight is weight
    assert isinstance(weight, nn.Parameter)


def test_a_call_that_fails_and_is_caught_ends():
    """Its name stayed as that of whatever ran behind it, and calls ended under their insides'."""

    class Fast(nn.Module):
        def forward(self, x):
            raise NotImplementedError("no kernel here")

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fast, self.plain = Fast(), nn.Linear(3, 3)

        def forward(self, x):
            try:
                return x + self.fast(x)
            except NotImplementedError:
                return x + self.plain(x)

    graph = trace(nn.Sequential(Block(), nn.ReLU()), torch.zeros(2, 3))
    (call, _), _ = graph.returned[graph.outputs[0]]
    assert call.name == "1"
    sums = [node for node in graph.nodes if node.op == "add"]
    assert [node.module for node in sums] == ["0"]
    assert [call.name for call, _ in graph.returned[Ref(sums[0].index)]] == ["0"]


def test_what_is_written_into_a_part_of_a_buffer_is_read_from_there():
    """``out=`` writes as an operation in place does."""

    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 3))

        def forward(self, x):
            room = torch.empty(2, 6)
            torch.mm(x, self.weight, out=room[:, :3])
            return room[:, :3].relu()

    graph = trace(Writes(), torch.zeros(2, 3))
    assert at(graph, "mm") in graph.upstream([at(graph, "relu")])


@torch.library.custom_op("depthmup_tests::looks", mutates_args=())
def looks(x: torch.Tensor) -> torch.Tensor:
    y = x.clone().mul_(2)
    return y if y.sum().item() > 0 else x.clone()


@looks.register_fake
def _(x):
    return torch.empty_like(x)


def test_a_definition_that_cannot_be_followed_leaves_nothing_behind():
    """Nodes behind it have the numbers of those that were taken back."""

    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(3, 3)

        def forward(self, x):
            return self.up(torch.ops.depthmup_tests.looks(x)).relu().exp()

    graph = trace(Looks(), torch.ones(2, 3))
    assert "mul" not in names(graph.nodes)
    assert not graph.overwriting


class Cached(nn.Linear):
    """A module that keeps its outputs for generation, as transformers' do, if it is configured to.

    A cache that shows no shape stands for one that cannot be followed.
    """

    def __init__(self):
        super().__init__(3, 3)
        self.config = SimpleNamespace(use_cache=True)

    def forward(self, x):
        if self.config.use_cache:
            raise IndexError("tuple index out of range")
        return super().forward(x)


def test_a_cache_that_cannot_be_followed_is_left_out_and_that_is_said():
    model = nn.Sequential(Cached(), nn.Linear(3, 2))
    with pytest.warns(UserWarning, match="followed with config.use_cache = False"):
        graph = trace(model, torch.zeros(2, 3))
    assert sum(node.op == "addmm" for node in graph.nodes) == 2
    assert model[0].config.use_cache
    broken = nn.Sequential(Cached(), nn.Linear(4, 2))
    with pytest.raises(ForwardError, match="tuple index out of range"):
        trace(broken, torch.zeros(2, 3))
