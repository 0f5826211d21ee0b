"""Architectures written by hand: what people build in 2026 that is no class of a package."""

from tests.zoo.by_hand import images, language, recurrent, vectors
from tests.zoo.by_hand.parts import BY_HAND

__all__ = ["BY_HAND", "images", "language", "recurrent", "vectors"]
