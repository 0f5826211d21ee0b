"""The former place of ``depthmup.tracing.trace``."""

from depthmup.tracing import ExampleInputs, TraceError, trace

__all__ = ["ExampleInputs", "TraceError", "trace"]
