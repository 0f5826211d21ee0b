"""Networks that know no exponent: the door to those of ``training.built_in``."""

from depthmup.training.built_in.activation import ACTIVATIONS, activation
from depthmup.training.built_in.residual_mlp import Branch, ResidualMLP

__all__ = [
    "ACTIVATIONS",
    "Branch",
    "ResidualMLP",
    "activation",
]
