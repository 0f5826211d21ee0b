"""``depthmup limit``: training at infinite width, computed without training a network."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from depthmup import limits

from depthmup import rules
from depthmup.cli.clone import reproduction
from depthmup.cli.folders import page_and_data
from depthmup.cli.output import answer, write_files
from depthmup.cli.spelling import arguments
from depthmup.records.packages import need
from depthmup.records.text import aligned


@dataclass(frozen=True, kw_only=True)
class Options:
    """Compute how a residual network of infinite width trains with SGD on the digits.

    The result is exact for linear networks (the identity activation) at any depth and for others at
    infinite depth; otherwise averages are taken over sampled neurons or particles, and their error
    is estimated. With --check, in a clone of the repository, networks of growing width and depth
    are trained and compared with the limit.

        depthmup limit --depth inf --steps 10 --out runs/limit
        depthmup limit --block-depth 2 --scheme completep --check
    """

    depth: str = "inf"
    """Number of residual branches, or inf."""

    activation: str = "identity"
    """Activation: identity, erf, sin, cos, relu, abs, tanh, gelu or softplus."""

    steps: int = 10
    """Training steps."""

    batch_size: int = 4
    """Examples per step; the cost grows as (steps x batch size)^3."""

    block_depth: int = 1
    """Matrices per branch: 1, or 2 for W2 phi(W1 x)."""

    scheme: str = ""
    """Scheme by name (depth-mup, completep, ode), instead of --alpha and --gamma."""

    optimizer: Literal["sgd", "sign"] = "sgd"
    """sgd, or sign: steps by the sign of every gradient entry (needs --batch-size 1)."""

    lr: float = 1.0
    """Learning rate."""

    lr_second: float | None = None
    """Learning rate of the second matrix of a branch; by default the first matrix's."""

    width_ratio: float = 1.0
    """With --block-depth 2: hidden width of a branch divided by the width."""

    decay: float = 0.0
    """With --block-depth 2: weight decay of branches; a step multiplies weights by 1 - lr decay."""

    rms_norm: bool = False
    """With --block-depth 2: apply RMSNorm before every branch."""

    points: int | None = None
    """Number of sampled neurons or particles for averages, a power of two."""

    momentum: float = 0.0
    """Heavy-ball momentum."""

    multiplier: float = 1.0
    """Branch multiplier (the paper's a)."""

    alpha: str = "1/2"
    """Branch multiplier proportional to depth^-alpha."""

    gamma: str = "1/2"
    """Updates inside branches proportional to depth^-gamma."""

    loss: Literal["cross-entropy", "mse"] = "cross-entropy"
    """Loss; mse compares outputs with one-hot targets."""

    data: Literal["digits"] = "digits"
    """Data set."""

    label_noise: float = 0.3
    """Fraction of labels resampled at random."""

    seed: int = 0
    """Seed of the data order."""

    tol: float | None = None
    """Error tolerance: by default 1e-9 for exact solutions and 0.05 for sampled averages."""

    out: Path | None = None
    """Folder for limit.html and limit.json; or a file that ends in .html or .json; the other is
    written next to it."""

    check: bool = False
    """Train finite linear networks (by default under Depth-muP) and compare them with the limit;
    takes minutes."""

    optimum: bool = False
    """Predict instead how SGD's best learning rate moves with depth, from the kernel at
    initialization. Nothing is trained; steps, batch size and learning rate are ignored."""

    depths: tuple[int, ...] = (8, 16, 32, 64, 128)
    """With --optimum: depths to predict at."""

    base_depth: int = 8
    """With --optimum: depth with a known best learning rate, where branches are multiplied by
    --multiplier."""

    measured: Path | None = None
    """With --optimum: the --out folder of `depthmup transfer`, to show its measured optima too."""

    json: bool = False


def run(options: Options) -> int:
    if options.out is not None:
        need("The page", "vl_convert")
    files = None if options.out is None else page_and_data(options.out, "limit")
    if options.optimum:
        return _optimum(options, files)
    _refuse(
        options,
        "belongs to --optimum; without it, training at one depth is solved. Add --optimum.",
        *("depths", "base_depth", "measured"),
    )
    depth, steps = _depth(options.depth), _steps(options)
    if options.check:
        return _compare(options, steps)
    return _limit(options, steps, depth, files)


def _optimum(options: Options, files: tuple[Path, Path] | None) -> int:
    """How the best learning rate moves with depth, from the kernel."""
    from depthmup.cli import optimum

    _refuse(options, _NO_EFFECT.format("--optimum"), *_NOT_IN_THE_KERNEL)
    _scaling(options)  # refuses exponents beside a scheme
    scheme = options.scheme or f"{options.alpha},{options.gamma}"
    return optimum.run(
        **arguments(optimum.run, options, scheme=scheme, config=asdict(options), files=files)
    )


def _compare(options: Options, steps: "list[limits.Step]") -> int:
    """Networks that are trained with the limit of each."""
    _refuse(options, _BESIDE_CHECK, *_NOT_CHECKED)
    blocks = {
        "lr": options.lr,
        "lr_second": options.lr_second,
        "block_depth": options.block_depth,
        "width_ratio": options.width_ratio,
        **_scaling(options),
    }
    status: int = reproduction("check_command").check(steps, blocks, as_json=options.json)
    return status


def _limit(
    options: Options,
    steps: "list[limits.Step]",
    depth: float,
    files: tuple[Path, Path] | None,
) -> int:
    """Training at infinite width: its numbers, and its page."""
    from depthmup import reports

    solution = _solve(options, steps, depth)
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
    status = f"{solution.status}; estimated error {solution.error_estimate:.1e}"
    answer(result, f"{_table(solution, rms)}\n\n{status}", json=options.json)

    def page(data: str) -> str:
        return reports.limit_page(
            solution.losses.tolist(),
            solution.positions.tolist(),
            rms,
            title=_title(options, solution),
            status=status,
            facts=_settings(options),
            data=data,
        )

    write_files(files, result, page)
    return 0 if solution.status.ok else 1


SAMPLED_TOL = 0.05
"""The tolerance of sampled averages, where a curve is to be seen and not digits."""

_NOT_IN_THE_KERNEL = (
    *("depth", "optimizer", "lr_second", "width_ratio", "decay", "rms_norm", "momentum"),
    *("points", "tol", "check"),
)
"""Options of training and of its limit, which the rule for the optimum does not use."""

_NO_EFFECT = "has no effect with {}: leave it out."

_NOT_CHECKED = (
    *("depth", "activation", "optimizer", "momentum", "decay", "rms_norm", "points", "tol", "out"),
)
_BESIDE_CHECK = (
    "cannot be combined with --check, which trains linear networks of fixed sizes. "
    "agreement_with_width and agreement_with_depth in reproduction/probes/agreement.py take more "
    "settings."
)


def _solve(options: Options, steps: "list[limits.Step]", depth: float) -> "limits.Solution":
    """Ask for what the options say; refuse those that the limit has no use for."""
    from depthmup import limits

    scaling = _scaling(options)
    if options.optimizer == "sign":
        _refuse(options, _NO_EFFECT.format("--optimizer sign"), "momentum", "decay", "rms_norm")
    elif options.block_depth == 1:
        _refuse(
            options,
            _NO_EFFECT.format("--block-depth 1"),
            "lr_second",
            "width_ratio",
            "decay",
            "rms_norm",
        )
    elif options.block_depth != 2:
        raise ValueError(
            f"Expected --block-depth to be 1 or 2 matrices; got {options.block_depth}."
        )
    asked = limits.problem(
        steps,
        depth=depth,
        lr=options.lr,
        activation=options.activation,
        block_depth=options.block_depth,
        branch=limits.Branch(
            multiplier=scaling.pop("multiplier"),
            width_ratio=options.width_ratio,
            rms_norm=options.rms_norm,
        ),
        optimizer=limits.SGD(
            lr_second=options.lr_second, momentum=options.momentum, decay=options.decay
        ),
        sign=options.optimizer == "sign",
        tol=options.tol,
        **scaling,
    )
    if asked.averages is None:
        _refuse(options, _NO_EFFECT.format("a limit in which nothing is sampled"), "points")
        return limits.solve(asked)
    if options.tol is None:
        asked = replace(asked, tol=SAMPLED_TOL)
    return limits.solve(asked, asked.sampled(options.points))


def _scaling(options: Options) -> dict[str, Any]:
    """multiplier, alpha and gamma; alpha and gamma from the scheme if one is named."""
    alpha, gamma = options.alpha, options.gamma
    if options.scheme:
        if (alpha, gamma) != (Options().alpha, Options().gamma):
            raise ValueError("--scheme sets alpha and gamma: leave --alpha and --gamma out.")
        scheme = rules.scheme(options.scheme)
        alpha, gamma = str(scheme.alpha), str(scheme.gamma)
    return {"multiplier": options.multiplier, "alpha": alpha, "gamma": gamma}


def _refuse(options: Options, why: str, *names: str) -> None:
    """Refuse options that would be ignored."""
    for name in names:
        if getattr(options, name) != getattr(Options(), name):
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def _table(solution: "limits.Solution", rms: "list[list[float]]") -> str:
    rows = [("step", "loss", "RMS of x at the output")]
    for t, (loss, line) in enumerate(zip(solution.losses, rms, strict=True)):
        rows.append((str(t), f"{loss:.5f}", f"{line[-1]:.5f}"))
    return "\n".join(aligned(rows, left=()))


def _title(options: Options, solution: "limits.Solution") -> str:
    problem = solution.problem
    blocks = "one matrix" if options.block_depth == 1 else "two matrices"
    rule = options.scheme or f"alpha = {problem.alpha}, gamma = {problem.gamma}"
    return (
        f"Infinite width, depth {options.depth}, {blocks} per branch, {options.activation}, {rule}"
    )


def _settings(options: Options) -> dict[str, object]:
    """What was asked for, without what only concerns files and other modes."""
    left_out = ("out", "check", "optimum", "depths", "base_depth", "measured", "json")
    given = {name: value for name, value in asdict(options).items() if name not in left_out}
    return {name: value for name, value in given.items() if value not in (None, "")}


def _depth(text: str) -> float:
    try:
        return math.inf if text.lower() in ("inf", "infinity") else int(text)
    except ValueError:
        raise ValueError(
            f"Expected --depth to be a positive integer or inf; got {text!r}."
        ) from None


def _steps(options: Options) -> "list[limits.Step]":
    """Minibatches of the digits, scaled for a U with entries N(0, 1)."""
    import numpy as np
    import torch

    from depthmup import limits
    from depthmup.training.built_in.dataset import digits

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
