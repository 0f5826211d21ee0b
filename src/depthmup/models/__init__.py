"""Networks that know no exponent."""

from depthmup.models.activation import ACTIVATIONS, Activation, activation
from depthmup.models.residual_mlp import Branch, ResidualMLP
from depthmup.models.transformer import Transformer, TransformerConfig

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Branch",
    "ResidualMLP",
    "Transformer",
    "TransformerConfig",
    "activation",
]
