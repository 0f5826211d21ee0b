"""Seeded data sets: the door to those of ``training.built_in``."""

from depthmup.training.built_in.dataset import Dataset, with_label_noise
from depthmup.training.built_in.digits import digits
from depthmup.training.built_in.text import Text, hub_text, local_text, standard_library, text
from depthmup.training.built_in.vision import Images, cifar10, images, mnist, prepared

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
