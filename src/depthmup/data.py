"""Seeded data sets: the door to those of ``training.built_in``."""

from depthmup.training.built_in.dataset import Dataset, digits, with_label_noise
from depthmup.training.built_in.vision import Images, cifar10, images, mnist, prepared

__all__ = [
    "Dataset",
    "Images",
    "cifar10",
    "digits",
    "images",
    "mnist",
    "prepared",
    "with_label_noise",
]
