"""Processor time in units that a slow machine, or one that others use too, leaves as they are.

A limit in seconds would be a statement about the machine. The unit is a fixed piece of work of the
kind that this package does, small matrices under Python, timed right beside what is measured: about
a tenth of a second on a core of 2024.
"""

import time

import numpy as np


def unit():
    """Seconds of the processor that the fixed piece of work takes now."""
    matrix, total = np.eye(16) / 2, 0.0
    start = time.process_time()
    for _ in range(25_000):
        matrix = matrix @ matrix + np.eye(16) / 2
        matrix /= 1 + np.abs(matrix).max()
        total += float(matrix[0, 0])
    assert total > 0
    return time.process_time() - start
