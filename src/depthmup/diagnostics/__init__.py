"""Probes on live networks, and networks against the theory."""

from depthmup.diagnostics.agreement import (
    Agreement,
    Approach,
    agreement_with_depth,
    agreement_with_width,
)

__all__ = ["Agreement", "Approach", "agreement_with_depth", "agreement_with_width"]
