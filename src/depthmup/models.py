"""Networks that know no exponent: the door to those of ``training.built_in``."""

from depthmup.training.built_in.residual_mlp import ACTIVATIONS, Branch, ResidualMLP, activation

__all__ = [
    "ACTIVATIONS",
    "Branch",
    "ResidualMLP",
    "activation",
]
