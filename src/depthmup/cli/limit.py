"""``depthmup limit``: training at infinite width, with no network trained."""

import json as json_format
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from depthmup.cli.folders import prepare_file
from depthmup.cli.output import print_json


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train a residual network of infinite width, exactly, by SGD on the digits.

    The identity activation gives the linear network, at any depth; others need infinite depth.
    With --check, networks of growing width and depth are trained and held against the limit.
    """

    depth: str = "inf"
    """Number of residual branches, or inf."""

    activation: str = "identity"
    """identity, erf, sin, cos, relu, abs, tanh, gelu or softplus."""

    steps: int = 10
    """Training steps."""

    batch_size: int = 4
    """Examples per step; cost grows with (steps x batch size)^3."""

    lr: float = 1.0
    """Learning rate."""

    momentum: float = 0.0
    """Heavy-ball momentum."""

    multiplier: float = 1.0
    """Branch multiplier (the paper's a)."""

    alpha: str = "1/2"
    """Branch multiplier proportional to depth^-alpha."""

    gamma: str = "1/2"
    """Updates inside branches proportional to depth^-gamma."""

    loss: Literal["cross-entropy", "mse"] = "cross-entropy"
    """Loss; mse is against one-hot targets."""

    data: Literal["digits"] = "digits"
    """Data set."""

    label_noise: float = 0.3
    """Fraction of labels drawn anew."""

    seed: int = 0
    """Seed of the data order."""

    tol: float = 1e-9
    """Error asked for at infinite depth."""

    out: Path | None = None
    """Write the result as JSON to this file, and the chart beside it as .html."""

    check: bool = False
    """Train real linear networks under Depth-muP and hold them against the limit; minutes."""

    optimum: bool = False
    """Instead, predict how SGD's best learning rate moves with depth, from the kernel at
    initialization; nothing is trained and steps, batch size and learning rate do not matter."""

    depths: tuple[int, ...] = (8, 16, 32, 64, 128)
    """With --optimum: where to predict."""

    base_depth: int = 8
    """With --optimum: where the best learning rate is known; branches are --multiplier there."""

    block_depth: int = 1
    """With --optimum: matrices per branch; with 2, W2 phi(W1 x)."""

    scheme: str = ""
    """With --optimum: a scheme by name, in place of --alpha and --gamma."""

    measured: Path | None = None
    """With --optimum: summary.json of `depthmup transfer`, to show what was measured beside."""

    json: bool = False
    """Print the result as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    from depthmup import limits, reports

    if options.out is not None:
        prepare_file(options.out, option="--out")
        prepare_file(options.out.with_suffix(".html"), option="--out")
    if options.optimum:
        from depthmup.cli import optimum

        return optimum.run(options)
    _only_for_optimum(options)
    depth, steps = _depth(options.depth), _steps(options)
    if options.check:
        from depthmup.cli.agreement import check

        _check_is_of_the_usual(options)
        return check(steps, lr=options.lr, multiplier=options.multiplier, json=options.json)
    common = {
        "lr": options.lr,
        "multiplier": options.multiplier,
        "alpha": options.alpha,
        "gamma": options.gamma,
        "momentum": options.momentum,
        "tol": options.tol,
    }
    if options.activation == "identity":
        solution = limits.linear(steps, depth=depth, **common)  # type: ignore[arg-type]
    else:
        solution = limits.nonlinear(
            steps,
            activation=options.activation,
            depth=depth,
            **common,  # type: ignore[arg-type]
        )
    rms = [line.mean(1).tolist() for line in solution.rms]
    result = {
        "losses": solution.losses.tolist(),
        "outputs": [step.tolist() for step in solution.outputs],
        "positions": solution.positions.tolist(),
        "rms": rms,
        "status": str(solution.status),
        "error_estimate": solution.error_estimate,
        "config": asdict(options),
    }
    text = json_format.dumps(reports.strict(result), indent=2, allow_nan=False)
    if options.out is not None:
        reports.write_text(options.out, text + "\n")
        title = f"Infinite width, depth {options.depth}, {options.activation}"
        chart = reports.limit_chart(
            solution.losses.tolist(), solution.positions.tolist(), rms, title=title
        )
        reports.save_chart(chart, options.out.with_suffix(".html"))
    if options.json:
        print_json(text)
    else:
        print(f"{'step':>4}  {'loss':>9}  {'RMS of x at the output':>22}")
        for t, (loss, line) in enumerate(zip(solution.losses, rms, strict=True)):
            print(f"{t:>4}  {loss:>9.5f}  {line[-1]:>22.5f}")
        print(f"\n{solution.status}; estimated error {solution.error_estimate:.1e}")
        if options.out is not None:
            print(f"The chart: {options.out.with_suffix('.html').resolve()}")
    return 0 if solution.status.ok else 1


def _check_is_of_the_usual(options: Options) -> None:
    """The check chooses sizes itself, and has one rule and one kind of network."""
    for name in ("depth", "activation", "momentum", "alpha", "gamma", "out"):
        if getattr(options, name) != getattr(Options(), name):
            raise ValueError(
                f"--{name} is not for --check, which trains linear networks of its own sizes under "
                "Depth-muP. depthmup.diagnostics.agreement_with_width and agreement_with_depth "
                "take more settings."
            )


def _only_for_optimum(options: Options) -> None:
    for name in ("depths", "base_depth", "block_depth", "scheme", "measured"):
        if getattr(options, name) != getattr(Options(), name):
            raise ValueError(
                f"--{name.replace('_', '-')} is for --optimum; without it, training at one depth "
                "is solved. Add --optimum."
            )


def _depth(text: str) -> float:
    try:
        return math.inf if text.lower() in ("inf", "infinity") else int(text)
    except ValueError:
        raise ValueError(
            f"Expected --depth to be a positive integer or inf; got {text!r}."
        ) from None


def _steps(options: Options) -> list:
    """Minibatches of the digits; inputs are scaled so that U with entries N(0, 1) is theirs."""
    import numpy as np
    import torch

    from depthmup import limits
    from depthmup.data import digits

    if options.steps < 1 or options.batch_size < 1:
        raise ValueError(
            "Expected steps and batch_size to be at least 1; got "
            f"{options.steps} and {options.batch_size}."
        )
    data = digits(label_noise=options.label_noise)
    generator = torch.Generator().manual_seed(options.seed)
    order = data.batches(options.steps, options.batch_size, generator)
    steps = []
    for batch in order:
        # U of variance 1/inputs on xi is U of variance 1 on xi / sqrt(inputs).
        inputs = data.inputs[batch].double().numpy() / math.sqrt(data.inputs.shape[1])
        labels = data.labels[batch].numpy()
        loss = (
            limits.cross_entropy(labels, classes=data.classes)
            if options.loss == "cross-entropy"
            else limits.mse(np.eye(data.classes)[labels])
        )
        steps.append(limits.Step(inputs, loss))
    return steps
