"""The native CPU engine: one C file, compiled on first use. All but training needs no PyTorch."""

from depthmup.training.native.build import BuildError, build, compiler
from depthmup.training.native.library import Library, library, load, supports

__all__ = [
    "BuildError",
    "Library",
    "build",
    "compiler",
    "library",
    "load",
    "supports",
]
