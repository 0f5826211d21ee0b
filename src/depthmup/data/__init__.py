"""Seeded data sets."""

from depthmup.data.digits import Dataset, digits

__all__ = ["Dataset", "digits"]
