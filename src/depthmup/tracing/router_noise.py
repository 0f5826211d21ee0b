"""Noise that a router adds to its numbers, so that it does not always pick the same experts.

    logits = x W + noise * softplus(x V)

*Source:* Shazeer et al. 2017 (arXiv 1701.06538), equation 4: both matrices read what is routed and
have one output for each expert.
"""

from depthmup.tracing.graph import Graph
from depthmup.tracing.operations import RANDOM, TRANSPARENT
from depthmup.tracing.parameter_uses import How, Usage, Use


def draws_noise(graph: Graph) -> bool:
    """Whether anything random is drawn; without it no router is noisy."""
    return any(node.op in RANDOM for node in graph.nodes)


def may_route(graph: Graph, use: Use) -> bool:
    """Whether a matrix could be a router's: it gives several numbers for every example."""
    matrix = use.how is How.MATRIX and not use.batch and use.activation is not None
    return matrix and len(use.fan_out) == 1 and graph.nodes[use.node].shape[-1] > 1


def noise_parameters(
    graph: Graph, usage: Usage, addend: int, *, total: int, root: int
) -> frozenset[str]:
    """The parameters that set the size of noise; none if an addend is anything else."""
    apart = graph.ancestors(root)
    nodes = graph.ancestors(addend, apart=apart)
    if not any(graph.nodes[node].op in RANDOM for node in nodes):
        return frozenset()
    uses = [use for node in nodes for use in usage.at.get(node, ())]
    matrices = [use for use in uses if use.how is How.MATRIX]
    # A second draw from other data, or a network of its own, is no noise of this router.
    reads_alike = all(
        may_route(graph, use)
        and graph.nodes[use.node].shape[-1] == total
        and use.activation is not None
        and all(
            node in apart or graph.nodes[node].op in TRANSPARENT
            for node in graph.ancestors(use.activation, apart=apart)
        )
        for use in matrices
    )
    return frozenset(use.parameter for use in uses) if reads_alike else frozenset()
