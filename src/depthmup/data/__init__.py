"""Seeded data sets."""

from depthmup.data.dataset import Dataset
from depthmup.data.digits import digits

__all__ = ["Dataset", "digits"]
