"""The native CPU engine: one C file, compiled on first use."""

from depthmup.training.native.build import BuildError, build, cache_folder, compiler
from depthmup.training.native.library import Library, library, load
from depthmup.training.native.member import supports
from depthmup.training.native.train import train_native

__all__ = [
    "BuildError",
    "Library",
    "build",
    "cache_folder",
    "compiler",
    "library",
    "load",
    "supports",
    "train_native",
]
