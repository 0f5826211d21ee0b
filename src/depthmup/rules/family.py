"""Optimizer families: what the size of an update depends on."""

from enum import StrEnum

from depthmup.rules.role import Kind


class Family(StrEnum):
    """What the size of an update depends on.

    Example:
        >>> Family.RAW.degree, Family.ENTRYWISE.degree
        (1, 0)
    """

    RAW = "raw"  # proportional to the gradient: SGD
    ENTRYWISE = "entrywise"  # every entry has size one: Adam, Lion, RMSprop, sign
    SPECTRAL = "spectral"  # sqrt(max(1, rows/columns)) U V^T: Muon
    SPECTRAL_RMS = "spectral-rms"  # 0.2 sqrt(max(out, in)) U V^T: Muon matched to Adam's RMS

    @property
    def degree(self) -> int:
        """k such that scaling the gradient by s scales the update by s**k."""
        return 1 if self is Family.RAW else 0

    @property
    def is_spectral(self) -> bool:
        return self in (Family.SPECTRAL, Family.SPECTRAL_RMS)

    def serving(self, kind: Kind) -> "Family":
        """The family that trains parameters of this kind.

        Spectral optimizers train hidden matrices; everything else goes to an entrywise one.
        """
        return Family.ENTRYWISE if self.is_spectral and kind is not Kind.HIDDEN else self


OPTIMIZERS: dict[str, Family] = {
    "sgd": Family.RAW,
    "adam": Family.ENTRYWISE,
    "adamw": Family.ENTRYWISE,
    "nadam": Family.ENTRYWISE,
    "radam": Family.ENTRYWISE,
    "adamax": Family.ENTRYWISE,
    "adagrad": Family.ENTRYWISE,
    "rmsprop": Family.ENTRYWISE,
    "lion": Family.ENTRYWISE,
    "sign": Family.ENTRYWISE,
    "muon": Family.SPECTRAL,
    "muon-rms": Family.SPECTRAL_RMS,
}


def family(name: "str | Family") -> Family:
    """The family of an optimizer, by its name or by the family's own.

    Raises:
        ValueError: neither a known optimizer nor a family.

    Example:
        >>> family("AdamW")
        <Family.ENTRYWISE: 'entrywise'>
    """
    key = str(name).lower()
    if key in OPTIMIZERS:
        return OPTIMIZERS[key]
    try:
        return Family(key)
    except ValueError:
        raise ValueError(
            f"Expected an optimizer ({', '.join(OPTIMIZERS)}) or a family "
            f"({', '.join(Family)}); got {name!r}. For another optimizer, name its family: "
            "raw if its update is proportional to the gradient, entrywise if every entry of the "
            "update has the same size whatever the gradient's scale, spectral if its update is "
            "an orthogonalized matrix."
        ) from None
