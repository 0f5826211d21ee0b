"""Tools: functions of depth on Chebyshev points, equations on them, factors that grow."""
