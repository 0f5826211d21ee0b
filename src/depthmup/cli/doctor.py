"""``depthmup doctor``: versions, hardware and the training engine of this installation."""

from dataclasses import dataclass

from depthmup.cli.output import print_json
from depthmup.records import environment
from depthmup.records.text import aligned

ON_CUDA = (
    "stacked engine with CUDA graphs, by --device cuda, --precision float32, tf32 or bf16; tested "
    "on the CPU, speed not measured"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show versions and hardware, which engine trains networks here, and why.

    depthmup doctor --gpu
    """

    json: bool = False

    gpu: bool = False
    """Also train on every GPU: compare with the CPU, and measure speed. Takes minutes."""


def run(options: Options) -> int:
    import torch

    from depthmup.cli.doctor_gpu import gpu_lines
    from depthmup.records.cache import cache_folder
    from depthmup.training import engine_for
    from depthmup.training.native import compiler

    tried = gpu_lines() if options.gpu else iter(())
    chosen = engine_for()
    try:
        cache = str(cache_folder())
    except RuntimeError as error:
        cache = f"none: {error}"
    facts = {
        **environment(),
        "engine": chosen.name,
        "why": chosen.why,
        "compiler": compiler(),
        "cache": cache,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "on cuda": ON_CUDA,
    }
    if options.json:
        print_json({**facts, "gpus": list(tried)} if options.gpu else facts)
        return 0
    rows = [(name, "none" if value is None else str(value)) for name, value in facts.items()]
    print(*aligned(rows, left=(0, 1)), sep="\n")
    for line in tried:
        print(line, flush=True)
    if chosen.name == "stacked" and compiler() is None:
        print(
            "\nThe native engine trains several times as many networks per second. It needs a C "
            "compiler:\ninstall one (e.g. `apt install gcc`, `xcode-select --install`), then run "
            "this again."
        )
    return 0
