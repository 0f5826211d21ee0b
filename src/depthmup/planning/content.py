"""Content: what a plan holds, as a value. Everything that is done with a plan takes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from depthmup.planning.depth import StreamDepth
from depthmup.planning.experts import MixtureGrowth
from depthmup.planning.measured import Measured
from depthmup.planning.own_init import OwnInit, OwnLaw
from depthmup.planning.prescribe import Prescription
from depthmup.planning.sites import Multiplier
from depthmup.rules import Family


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanContent:
    """The fields of a ``Plan``, names and numbers only; ``Plan`` says what each of them is."""

    scheme: str
    title: str
    source: str
    optimizer: str
    family: Family
    prescriptions: tuple[Prescription, ...]
    multipliers: tuple[Multiplier, ...]
    notes: tuple[str, ...] = ()
    one_minus_beta: float = 1.0
    log_beta2: float = 1.0
    own_init: OwnInit | None = None
    base_init: Mapping[str, Measured] = field(default_factory=dict)
    base_default: Mapping[str, Measured] = field(default_factory=dict)
    model_init: Mapping[str, Measured] = field(default_factory=dict)
    own_laws: Mapping[str, OwnLaw] = field(default_factory=dict)
    depths: tuple[StreamDepth, ...] = ()
    mixtures: tuple[MixtureGrowth, ...] = ()
    tuned_with: str = ""
    proof: str = ""

    def __getitem__(self, name: str) -> Prescription:
        """The prescription of one parameter, under any of its names."""
        for p in self.prescriptions:
            if name in p.names:
                return p
        names = [p.name for p in self.prescriptions]
        near = [n for n in names if n.endswith(f".{name}")] or get_close_matches(str(name), names)
        raise KeyError(
            f"The plan has no parameter {name!r}; it has {names[0]!r} and {len(names) - 1} others."
            + (f" Did you mean {near[0]!r}?" if near else "")
        )
