"""Seeded data sets."""

from depthmup.data.dataset import Dataset
from depthmup.data.digits import digits
from depthmup.data.text import Text, hub_text, local_text, standard_library, text

__all__ = ["Dataset", "Text", "digits", "hub_text", "local_text", "standard_library", "text"]
