"""Several processes that work together on one network."""

from torch import multiprocessing


def together(work, *arguments, ranks=2):
    """Run ``work(rank, ranks, *arguments)`` in each; they fork from one that has loaded PyTorch.

    Tests that do are ``xdist_group("several")``: one process loads it for all of them.
    """
    multiprocessing.set_forkserver_preload(
        ["torch._dynamo", "torch.distributed.fsdp", "depthmup.diagnostics"]
    )
    multiprocessing.start_processes(
        work, args=(ranks, *arguments), nprocs=ranks, start_method="forkserver"
    )
