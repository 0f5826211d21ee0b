"""Custom models: their functions, the fingerprint of their source, and how processes load them."""

from depthmup.model.batch import check_batch
from depthmup.model.command import Command, check_names, names_of
from depthmup.model.load import find_function
from depthmup.model.model import Functions, Model, by_reference, resolved, with_factory
from depthmup.model.sizes import batches_at, check_axes, ignored, network_at

__all__ = [
    "Command",
    "Functions",
    "Model",
    "batches_at",
    "by_reference",
    "check_axes",
    "check_batch",
    "check_names",
    "find_function",
    "ignored",
    "names_of",
    "network_at",
    "resolved",
    "with_factory",
]
