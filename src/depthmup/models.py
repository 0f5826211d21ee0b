"""Networks that know no exponent: the door to those of ``training.built_in``."""

from depthmup.training.built_in.residual_mlp import ACTIVATIONS, MLPBranch, ResidualMLP, activation
from depthmup.training.built_in.transformer import Transformer, TransformerConfig

__all__ = [
    "ACTIVATIONS",
    "MLPBranch",
    "ResidualMLP",
    "Transformer",
    "TransformerConfig",
    "activation",
]
