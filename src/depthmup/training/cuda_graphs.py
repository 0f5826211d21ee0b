"""CUDA graphs: a training step is recorded once and replayed, which saves kernel launches.

A step of a narrow deep network is hundreds of small kernels, and the host needs longer to launch
one than the accelerator to run it. A CUDA graph launches all of them at once.

A function can be recorded if it takes no arguments, reads and writes fixed memory, never copies a
number from the device to the host, and does the same at every call. Recording does not run it;
the graph that was recorded can be run any number of times.
"""

import warnings
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
    with warnings.catch_warnings():
        # PyTorch only warns of a graph without kernels, as of a step on another device.
        warnings.filterwarnings("error", message="The CUDA Graph is empty")
        try:
            # By default PyTorch captures on one stream per process, of the first device it met.
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                step()
        except UserWarning as empty:
            raise RuntimeError(
                f"A training step left no kernel in the CUDA graph recorded on device "
                f"{torch.cuda.current_device()}. Train without --cuda-graphs."
            ) from empty
    return graph.replay
