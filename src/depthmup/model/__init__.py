"""Custom models: their functions, the fingerprint of their source, and how processes load them."""

from depthmup.model.load import find_function, size
from depthmup.model.model import Functions, Model, by_reference, resolved

__all__ = ["Functions", "Model", "by_reference", "find_function", "resolved", "size"]
