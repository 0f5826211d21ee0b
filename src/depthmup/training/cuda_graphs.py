"""CUDA graphs: a training step is recorded once and replayed, which saves kernel launches.

A step of a narrow deep network is hundreds of small kernels, and the host needs longer to launch
one than the accelerator to run it. A CUDA graph launches all of them at once.

A function can be recorded if it takes no arguments, reads and writes fixed memory, never copies a
number from the device to the host, and does the same at every call. Recording does not run it;
the graph that was recorded can be run any number of times. Whether a person's own step does all
that is found out by trying.
"""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Capture = Callable[[Callable[[], object]], Callable[[], object]]
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
                f"{torch.cuda.current_device()}. Use --no-cuda-graphs."
            ) from empty
    return graph.replay


ROUNDING = 0.1
"""Largest difference between a replay and the step itself, as a fraction of the step's change: an
optimizer turns the rounding of small gradients into whole updates of a few weights."""


class NotReplayable(RuntimeError):
    """A step that must be taken by running it; the message has the reason."""


def replayed(
    step: Callable[[], object], state: Sequence[Tensor], record: Capture
) -> Callable[[], object]:
    """Take one step, and return how to take the next ones by replay.

    ``state`` is all that the step changes. Where a replay fails or differs, no step is taken.
    """
    before = [tensor.clone() for tensor in state]
    try:
        replay = record(step)
    except RuntimeError as error:
        _restore(state, before)
        raise NotReplayable(_first_line(error)) from error
    replay()
    after = [tensor.clone() for tensor in state]
    _restore(state, before)
    step()
    same = [_same(*tensors) for tensors in zip(before, after, state, strict=True)]
    if not torch.stack(same).all():
        _restore(state, before)
        raise NotReplayable("a recorded step gives other numbers than the step itself")
    return replay


def _first_line(error: BaseException) -> str:
    """Of the error at which recording began to fail: those after it follow from it."""
    first, earlier = error, error.__context__
    while earlier is not None:
        first = earlier if isinstance(earlier, RuntimeError) else first
        earlier = earlier.__context__
    return (str(first).splitlines() or [type(first).__name__])[0]


@torch.no_grad()
def _restore(state: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    for tensor, content in zip(state, before, strict=True):
        tensor.copy_(content)


@torch.no_grad()
def _same(before: Tensor, replayed: Tensor, stepped: Tensor) -> Tensor:
    """Whether two steps from ``before`` agree; members that are no longer finite do not count."""
    change, apart = (
        torch.linalg.vector_norm(torch.nan_to_num(a.float() - b.float(), 0.0, 0.0, 0.0))
        for a, b in ((stepped, before), (replayed, stepped))
    )
    same: Tensor = apart <= ROUNDING * change
    return same


def warn_of(reason: object) -> None:
    warnings.warn(
        f"Training steps are run one by one, without CUDA graphs, which is slower: {reason}",
        stacklevel=3,
    )
