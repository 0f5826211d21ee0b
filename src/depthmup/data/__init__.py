"""Seeded data sets."""

from depthmup.data.dataset import Dataset, with_label_noise
from depthmup.data.digits import digits
from depthmup.data.text import Text, hub_text, local_text, standard_library, text
from depthmup.data.vision import Images, cifar10, images, mnist, prepared

__all__ = [
    "Dataset",
    "Images",
    "Text",
    "cifar10",
    "digits",
    "hub_text",
    "images",
    "local_text",
    "mnist",
    "prepared",
    "standard_library",
    "text",
    "with_label_noise",
]
