"""How long planning takes, and what a planned model's training step costs.

    python benchmarks/planning.py            # both
    python benchmarks/planning.py --only-70b # the plan of a 70B-parameter Llama, on meta

A folded plan adds nothing to the forward pass and a few parameter groups to the optimizer, so the
ratio of step times should be 1.00.
"""

import platform
import resource
import statistics
import sys
import time

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


def plan_70b() -> None:
    with torch.device("meta"):
        model = llama(8192, 80, vocabulary=128256, head=128)
        base = llama(1024, 8, vocabulary=128256, head=128)
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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"70b parameters: {count / 1e9:.1f}e9")
    print(f"70b plan seconds: {seconds:.2f}")
    print(f"70b plan CPU seconds: {cpu:.2f}")
    print(f"70b peak GB: {peak:.2f}")
    print(f"70b branches: {sum(m.where == 'branch' for m in plan.multipliers)}")


def step_ratio(rounds: int = 15, steps: int = 4) -> None:
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
    print(f"planned step ms: {1e3 * statistics.median(times[0]):.1f}")
    print(f"plain step ms: {1e3 * statistics.median(times[1]):.1f}")
    print(f"planned / plain: {statistics.mean(ratios):.3f} +- {error:.3f}")


if __name__ == "__main__":
    print(
        f"hardware: {platform.machine()} {platform.processor()}, "
        f"{torch.get_num_threads()} thread(s), torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )
    plan_70b()
    if "--only-70b" not in sys.argv:
        step_ratio()
