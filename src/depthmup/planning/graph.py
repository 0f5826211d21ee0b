"""The former place of ``depthmup.tracing.branches``."""

from depthmup.tracing import Branch, Residuals, Stream, find_branches

__all__ = ["Branch", "Residuals", "Stream", "find_branches"]
