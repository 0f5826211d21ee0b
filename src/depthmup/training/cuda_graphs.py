"""CUDA graphs: a training step is recorded once and replayed, which saves kernel launches.

A step of a narrow deep network is hundreds of small kernels, and the host needs longer to launch
one than the accelerator to run it. A CUDA graph launches all of them at once.

A function can be recorded if it takes no arguments, reads and writes fixed memory, never copies a
number from the device to the host, and does the same at every call. Recording does not run it;
the graph that was recorded can be run any number of times.
"""

from collections.abc import Callable

import torch

Recorder = Callable[[Callable[[], object]], Callable[[], object]]
"""Takes a training step and returns a function that replays it."""

WARM_UP = 3
"""Training steps before the recording: cuBLAS and other libraries allocate their workspaces in the
first ones, which a graph must not contain. They train like any other step."""


def cuda_graph(step: Callable[[], object]) -> Callable[[], object]:
    """The step as a CUDA graph on the current device, whose memory lives as long as the graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
