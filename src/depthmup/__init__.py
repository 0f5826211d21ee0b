"""Hyperparameters that transfer across the width and depth of neural networks."""

from depthmup._version import __version__

__all__ = ["__version__"]
