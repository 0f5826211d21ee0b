"""How long planning takes, and what a planned model's training step costs.

A folded plan adds nothing to the forward pass and a few parameter groups to the optimizer, so the
ratio of step times should be 1.00.
"""

import resource
import statistics
import time
from pathlib import Path

import torch
import transformers

import depthmup


def llama(width: int, depth: int, *, vocabulary: int, head: int) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=width * 7 // 2,
        num_hidden_layers=depth,
        num_attention_heads=width // head,
        num_key_value_heads=max(width // head // 8, 1),
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def peak_gigabytes() -> float:
    """Of this process; what getrusage says begins with what the parent held when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [x for x in status.read_text().splitlines() if x.startswith("VmHWM")]
        return int(line.split()[1]) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def deepseek(width: int, depth: int) -> torch.nn.Module:
    """DeepSeek-V3, 671e9 parameters at 7168 x 61: 256 experts in a layer, 8 of them active."""
    config = transformers.DeepseekV3Config(
        hidden_size=width,
        intermediate_size=width * 18 // 7,
        moe_intermediate_size=width * 2 // 7,
        num_hidden_layers=depth,
        num_attention_heads=width // 56,
        num_key_value_heads=width // 56,
        use_cache=False,
    )
    return transformers.DeepseekV3ForCausalLM(config)


def plan_time(name: str, model: torch.nn.Module, base: torch.nn.Module) -> str:
    """How long a model on the meta device takes to be planned."""
    count = sum(p.numel() for p in model.parameters())
    start, cpu = time.perf_counter(), time.process_time()
    plan = depthmup.plan(
        model,
        base=base,
        scheme="completep",
        example_inputs={"input_ids": torch.zeros(1, 16, dtype=torch.long)},
        own_init="fixed",
    )
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = peak_gigabytes()
    branches = sum(m.where == "branch" for m in plan.multipliers)
    return (
        f"A {name} of {count / 1e9:.1f}e9 parameters, {branches} branches, is planned in "
        f"{seconds:.1f} s ({cpu:.1f} s of processor time) with {peak:.1f} GB."
    )


def plan_70b(layers: int = 80) -> str:
    with torch.device("meta"):
        model, base = (
            llama(*size, vocabulary=128256, head=128) for size in ((8192, layers), (1024, 8))
        )
    return plan_time("Llama", model, base)


def plan_671b() -> str:
    with torch.device("meta"):
        model, base = deepseek(7168, 61), deepseek(1792, 8)
    return plan_time("DeepSeek-V3", model, base)


def step_ratio(rounds: int, steps: int = 4) -> str:
    """Time planned and plain models in turn, so that a change of the machine's load hits both."""
    torch.manual_seed(0)
    ids = torch.randint(0, 512, (4, 64))
    base = llama(64, 2, vocabulary=512, head=16)
    planned, plain = (llama(256, 8, vocabulary=512, head=16) for _ in range(2))
    plan = depthmup.plan(planned, base=base, scheme="completep", example_inputs={"input_ids": ids})
    plan.initialize(planned)
    pairs = [
        (planned, torch.optim.AdamW(plan.param_groups(planned, lr=1e-3, weight_decay=0.1))),
        (plain, torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=0.1)),
    ]
    times: list[list[float]] = [[], []]
    for round_ in range(rounds + 1):
        for which, (model, optimizer) in enumerate(pairs):
            start = time.perf_counter()
            for _ in range(steps):
                loss = model(input_ids=ids, labels=ids).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if round_:  # the first is for warming up
                times[which].append((time.perf_counter() - start) / steps)
    ratios = [a / b for a, b in zip(*times, strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    planned_ms, plain_ms = (1e3 * statistics.median(each) for each in times)
    return (
        f"A training step takes {planned_ms:.1f} ms planned and {plain_ms:.1f} ms plain (a Llama "
        f"of width 256 and depth 8): ratio {statistics.mean(ratios):.3f} ± {error:.3f}."
    )


class MLP(torch.nn.Module):
    """Two layers: a step takes well under a millisecond, so that the watch weighs most."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inp, self.out = torch.nn.Linear(64, width), torch.nn.Linear(width, 10)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.inp(input_ids)))


def watched_steps(name: str, pairs: int) -> str:
    """Steps that plan.watch looks before, and the same steps without it, in pairs.

    A schedule moves the rates at every step, so that no look is spared. The watch is set up once;
    between the parts of a pair its hook alone is taken out and put back.
    """
    torch.manual_seed(0)
    if name == "an MLP of two layers":
        model, base, x = MLP(512), MLP(64), torch.randn(128, 64)
    else:
        model = llama(128, 12, vocabulary=512, head=16)
        base, x = llama(64, 2, vocabulary=512, head=16), torch.randint(0, 512, (4, 64))
    plan = depthmup.plan(model, base=base, scheme="completep", example_inputs={"input_ids": x})
    plan.initialize(model)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-3), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    hooks = optimizer._optimizer_step_pre_hooks
    plan.watch(model, optimizer)
    watch = dict(hooks)
    optimizer.step()  # the first look reads all that the others compare with

    def seconds(watched: bool) -> float:
        hooks.clear()
        hooks.update(watch if watched else {})
        start = time.process_time()
        out = model(input_ids=x)
        (out if isinstance(out, torch.Tensor) else out.logits).square().mean().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        return time.process_time() - start

    ratios = []
    for pair in range(pairs + 1):
        taken = {watched: seconds(watched) for watched in (pair % 2 == 0, pair % 2 == 1)}
        ratios.append(taken[True] / taken[False])
    # The median and its interval by ranks: what else runs on a machine leaves long tails.
    ratios, reach = sorted(ratios[1:]), 0.98 * pairs**0.5
    low, high = (
        ratios[min(max(round(pairs / 2 + side * reach), 0), pairs - 1)] for side in (-1, 1)
    )
    return (
        f"A step of {name} takes {statistics.median(ratios):.4f} times as long with plan.watch "
        f"(95% interval {low:.4f} to {high:.4f}, {pairs} pairs)."
    )


def table(quick: bool) -> list[str]:
    return [
        plan_70b(),
        plan_671b(),
        "",
        step_ratio(3 if quick else 15),
        watched_steps("a transformer of 12 layers", 5 if quick else 250),
        watched_steps("an MLP of two layers", 50 if quick else 8000),
    ]
