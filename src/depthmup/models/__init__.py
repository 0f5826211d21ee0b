"""Networks that know no exponent."""

from depthmup.models.activation import ACTIVATIONS, Activation, activation
from depthmup.models.residual_mlp import Branch, ResidualMLP

__all__ = ["ACTIVATIONS", "Activation", "Branch", "ResidualMLP", "activation"]
