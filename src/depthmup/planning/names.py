"""Names of parameters and modules; they live with the reading of models."""

from depthmup.tracing.names import (
    filled,
    matches,
    named_tensors,
    parameters,
    pattern_of,
    plain_name,
    unwrapped,
)

__all__ = [
    "filled",
    "matches",
    "named_tensors",
    "parameters",
    "pattern_of",
    "plain_name",
    "unwrapped",
]
