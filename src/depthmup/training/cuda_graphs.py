"""Recording a step once and replaying it, so that the host need not launch every kernel.

A narrow deep network is hundreds of small kernels per step, each of which the host takes longer to
launch than an accelerator to run. A CUDA graph launches them all at once.

What can be recorded: a function without arguments that reads and writes fixed memory, never asks
the device for a number, and does not change what it would do next time. Recording does not run
it; what it returned is run instead, any number of times.
"""

from collections.abc import Callable

import torch

Recorder = Callable[[Callable[[], object]], Callable[[], object]]
"""Takes a step, returns what does the same by replaying."""

WARM_UP = 3
"""Steps that are taken before one is recorded: libraries set themselves up in the first ones,
which must not happen while recording. They are steps of training like any other."""


def cuda_graph(step: Callable[[], object]) -> Callable[[], object]:
    """The step as a CUDA graph on the current device; it holds its memory while it is kept."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
