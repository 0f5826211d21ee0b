"""The former place of ``depthmup.tracing.carriers``."""

from depthmup.tracing import Placement, into_parameters, onto_modules

__all__ = ["Placement", "into_parameters", "onto_modules"]
