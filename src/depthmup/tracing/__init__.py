"""Tracing: one model's dataflow as facts. The door is ``read(model, inputs) -> Facts``."""

from depthmup.tracing.branches import find_branches
from depthmup.tracing.carriers import Carriers, Placement, onto_modules
from depthmup.tracing.constants import Constants
from depthmup.tracing.facts import Facts, read
from depthmup.tracing.graph import Graph, Hook, ModuleCall, Node, Ref
from depthmup.tracing.mixtures import Mixture
from depthmup.tracing.names import (
    filled,
    inner,
    matches,
    named_by,
    named_modules,
    named_tensors,
    parameters,
    pattern_of,
    patterns_of,
    plain_name,
    unwrapped,
)
from depthmup.tracing.parameter_uses import How, Usage, Use, find_uses
from depthmup.tracing.products import Product
from depthmup.tracing.residuals import ResidualBranch, Residuals, Stream
from depthmup.tracing.trace import ExampleInputs, ForwardError, TraceError, trace
from depthmup.tracing.work import multiplications

__all__ = [
    "Carriers",
    "Constants",
    "ExampleInputs",
    "Facts",
    "ForwardError",
    "Graph",
    "Hook",
    "How",
    "Mixture",
    "ModuleCall",
    "Node",
    "Placement",
    "Product",
    "Ref",
    "ResidualBranch",
    "Residuals",
    "Stream",
    "TraceError",
    "Usage",
    "Use",
    "filled",
    "find_branches",
    "find_uses",
    "inner",
    "matches",
    "multiplications",
    "named_by",
    "named_modules",
    "named_tensors",
    "onto_modules",
    "parameters",
    "pattern_of",
    "patterns_of",
    "plain_name",
    "read",
    "trace",
    "unwrapped",
]
