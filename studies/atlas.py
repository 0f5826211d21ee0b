"""The atlas: what the optimizers of public packages do, measured, and whether plans are right.

    python -m studies.atlas [PACKAGE ...]    # in an environment with the packages of PINS

Writes ``src/depthmup/rules/atlas.csv``, one row per class and settings, and the table of
docs/studies/atlas.md. Each class is measured as ``depthmup.family_of`` does it, and then judged
by something else: a base and a network of four times its width take 30 steps by the plan's groups,
with gradients of the sizes that the theory has for them. What their steps do to aligned inputs must
be the same, and decay must remove the same part of every matrix.
"""

import csv
import importlib
import inspect
import math
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import torch
from torch import nn

import depthmup
from depthmup.planning import Plan, family_of
from depthmup.rules import Family, Kind
from depthmup.rules.optimizers import no_rule

PINS = """
    torch==2.13.0 timm==1.0.31 torchao==0.18.0 torch-optimi==0.3.3 schedulefree==1.4.1
    prodigyopt==1.1.2 prodigy-plus-schedule-free==2.0.1 transformers==5.23.0 adam-mini==1.1.1
    lion-pytorch==0.2.5 adam-atan2-pytorch==0.4.1 optimuon==0.1.1 omnimuon==0.1.2
    kron_torch==0.3.3 came-pytorch==0.1.3 muon-optimizer==0.1.0 pytorch_optimizer==4.1.0
    heavyball==3.2.1 emerging-optimizers==0.3.0 git+https://github.com/microsoft/dion@0a059a4
"""
"""What is installed; no package is a requirement of this one."""

MODULES: Mapping[str, str] = {
    "torch": "torch.optim",
    "timm": "timm.optim",
    "torchao": "torchao.optim",
    "optimi": "optimi",
    "schedulefree": "schedulefree",
    "prodigyopt": "prodigyopt",
    "prodigyplus": "prodigyplus",
    "transformers": "transformers.optimization",
    "adam_mini": "adam_mini",
    "lion_pytorch": "lion_pytorch",
    "adam_atan2_pytorch": "adam_atan2_pytorch",
    "optimuon": "optimuon",
    "omnimuon": "omnimuon",
    "kron_torch": "kron_torch",
    "came_pytorch": "came_pytorch",
    "muon": "muon",
    "pytorch_optimizer": "pytorch_optimizer",
    "heavyball": "heavyball",
    "emerging_optimizers": (
        "emerging_optimizers.orthogonalized_optimizers emerging_optimizers.scalar_optimizers "
        "emerging_optimizers.soap emerging_optimizers.psgd "
        "emerging_optimizers.riemannian_optimizers"
    ),
    "dion": "dion",
}
"""Packages by the name that their classes' modules begin with, and where their classes are."""

REQUIRED: Mapping[str, Mapping[str, Any]] = {
    "Ranger21": {"num_iterations": 100},
    "BSAM": {"num_data": 100},
    "SAM": {"base_optimizer": torch.optim.AdamW},
    "WSAM": {"base_optimizer": torch.optim.AdamW},
    "LookSAM": {"base_optimizer": torch.optim.AdamW},
    "FriendlySAM": {"base_optimizer": torch.optim.AdamW},
}
"""Arguments without which a class is not built."""

SETTINGS: Mapping[tuple[str, str], tuple[Mapping[str, Any], ...]] = {
    ("torch", "Muon"): ({}, {"adjust_lr_fn": "match_rms_adamw"}),
    ("timm", "Muon"): ({}, {"algo": "adamuon"}),
    ("timm", "AdamWLegacy"): ({}, {"corrected_weight_decay": True}),
    ("timm", "LaProp"): ({}, {"corrected_weight_decay": True}),
    ("timm", "Lion"): ({}, {"corrected_weight_decay": True}),
    ("timm", "NAdamW"): ({}, {"corrected_weight_decay": True}),
    ("timm", "SGDW"): ({}, {"corrected_weight_decay": True}),
    ("timm", "Lamb"): ({}, {"always_adapt": True}, {"corrected_weight_decay": True}),
    ("timm", "Lars"): ({}, {"always_adapt": True}),
    ("optimi", "AdamW"): ({}, {"decouple_lr": True}),
    ("optimi", "StableAdamW"): ({}, {"decouple_lr": True}),
    ("transformers", "Adafactor"): (
        {"relative_step": False, "scale_parameter": True},
        {"relative_step": False, "scale_parameter": False},
    ),
    ("pytorch_optimizer", "MARS"): ({}, {"weight_decay_1d": 0.0}),
    ("pytorch_optimizer", "NorMuon"): ({}, {"update_scale": "match_rms"}),
    ("pytorch_optimizer", "Muon"): ({}, {"use_adjusted_lr": True}),
    ("pytorch_optimizer", "AdaFactor"): (
        {},
        {"relative_step": False},
        {"relative_step": False, "scale_parameter": False},
    ),
    ("emerging_optimizers", "AdaptiveMuon"): ({"momentum": 0.95},),
    ("emerging_optimizers", "Muon"): tuple(
        {"scale_mode": mode} for mode in ("spectral", "shape_scaling", "unit_rms_norm")
    )
    + tuple({"weight_decay_method": way} for way in ("independent", "palm", "l2")),
}
"""Settings that make another optimizer of a class, beside its defaults."""

SECONDS = 120.0
"""Of one class, after which it is stopped and counts as not run."""

BASE, TARGET, STEPS = 32, 128, 30
TOLERANCE = 0.15
"""Of the ratio of what steps do in the target and in the base: Muon's iterations leave singular
values between 0.7 and 1.2. Of tensors of four entries, which a projection changes by half: 0.5."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One class with its settings: what was measured, and how it was judged."""

    package: str
    version: str
    name: str
    settings: str
    family: str = ""
    gradient: float = math.nan
    weight: float = math.nan
    fan_in: float = math.nan
    fan_out: float = math.nan
    early: float = math.nan
    rate: float = math.nan
    later: float = math.nan
    decay: str = ""
    verdict: str = ""
    why: str = ""
    seconds: float = 0.0


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(torch.tanh(self.norm(x)))


def network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), Block(width), Block(width), nn.Linear(width, 4))


def classes(package: str) -> Iterator[tuple[str, type, Mapping[str, Any]]]:
    """The optimizer classes of a package, with each of their settings."""
    held: dict[str, Any] = {}
    for module in MODULES[package].split():
        held |= vars(importlib.import_module(module))
    for name, cls in sorted(held.items()):
        if not (inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)):
            continue
        if cls is torch.optim.Optimizer or inspect.isabstract(cls):
            continue
        # What a package hands on of torch counts as well: people import it from there.
        if not cls.__module__.startswith((package, "torch.optim")) or (
            name != cls.__name__ and package != "dion"
        ):
            continue
        for settings in SETTINGS.get((package, cls.__name__), ({},)):
            yield name, cls, settings


def built(cls: type, parameters: list[Any], settings: Mapping[str, Any], decay: float) -> Any:
    """The class on these parameters, with the usual rate."""
    known = inspect.signature(cls).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in known.values())
    given = {**REQUIRED.get(cls.__name__, {}), **settings}
    usual = {"lr": 1e-3, "weight_decay": decay}
    first = next(iter(known))
    if first in ("optimizer", "base_optimizer"):  # of the wrapped one
        return cls(torch.optim.AdamW(parameters, **usual), **given)
    given |= {key: value for key, value in usual.items() if key in known or anything}
    if cls.__module__.startswith("optimi"):
        given["triton"] = False
    if cls.__name__ == "Adam_mini":
        return cls([(f"p{i}", p) for i, p in enumerate(parameters)], dim=64, n_heads=4, **given)
    if first == "model":
        model = nn.ParameterList(parameters)
        return cls(model, *([parameters] if "params" in known else []), **given)
    if first in ("muon_params", "polar_params"):
        matrices = [p for p in parameters if p.ndim > 1]
        return cls(matrices, parameters, **given)
    groups: Any = parameters
    if cls.__name__ in ("SingleDeviceMuonWithAuxAdam", "MuonWithAuxAdam", "DistributedMuon"):
        groups = [{"params": parameters, "use_muon": True, **usual}]
        given = {} if "lr" not in known else given
    elif cls.__module__.startswith("pytorch_optimizer") and cls.__name__ in _BY_FLAG:
        groups = [{"params": parameters, "use_muon": all(p.ndim > 1 for p in parameters)}]
    elif first == "specs":
        adamw = importlib.import_module("heavyball").AdamW
        groups = [{"params": parameters, "optimizer": adamw, **usual}]
    return cls(groups, **given)


_DISTRIBUTED = ("DistributedMuon", "DeMo")
_BY_FLAG = ("Muon", "NorMuon", "AdaMuon", "AdaGO", "MuonClip")


def measured(row: Row, cls: type, settings: Mapping[str, Any]) -> tuple[Row, Family | None]:
    """The row with what ``family_of`` measures."""
    try:
        found = family_of(lambda parameters: built(cls, parameters, settings, 0.1))
        usual = family_of(lambda parameters: built(cls, parameters, settings, 0.0))
    except Exception as error:
        cause = error.__cause__ or error
        # Another family's plan shows whether what cannot be measured is refused.
        return replace(row, why=_own(cause)), Family.ENTRYWISE
    row = replace(
        row,
        family=str(usual.family or "none"),
        gradient=round(usual.gradient, 3),
        weight=round(usual.weight, 3),
        fan_in=round(usual.fan_in, 3),
        fan_out=round(usual.fan_out, 3),
        early=round(usual.early, 3),
        rate=round(usual.rate, 3),
        later=round(usual.later, 3),
        decay=decay_of(found),
        why="" if usual.family else usual.why,
    )
    return row, usual.family


def decay_of(found: Any) -> str:
    """How a class decays, in a word."""
    if abs(found.decay) < 0.1:
        return "none" if found.decay_beside < 0.1 else "beside a gradient"
    if math.isnan(found.decay):
        return "not measured"
    if abs(found.decay_in_decay - 1) > 0.1 or abs(found.decay_beside - 1) > 0.1:
        return "coupled"
    for name, power in (("size", found.decay_in_size), ("weight", found.decay_in_weight)):
        if abs(power) > 0.1:
            return f"by {name}^{power:.1f}"
    powers = {0: "independent", 1: "decoupled"}
    power = round(found.decay_in_rate)
    near = abs(found.decay_in_rate - power) <= 0.1
    return powers.get(power, "other") if near else f"by lr^{found.decay_in_rate:.1f}"


def planned(cls: type, family: Family | None) -> Plan:
    """A plan for the class; where it has no rule by itself, for the family that was measured."""
    model, base = network(TARGET), network(BASE)
    inputs = torch.randn(4, 8)
    try:
        plan = depthmup.plan(model, base, scheme="mup", optimizer=cls, example_inputs=inputs)
    except ValueError:
        if family is None or no_rule(cls):  # whatever its settings
            raise
        plan = None
    if plan is None or (family is not None and plan.family is not family):  # as the errors say
        plan = depthmup.plan(model, base, scheme="mup", optimizer=family, example_inputs=inputs)
    return plan


def optimizers(
    plan: Plan, net: nn.Module, build: Callable[[list[Any]], Any], others: bool
) -> list[Any]:
    """The class on what it trains, and AdamW on the rest where it trains matrices alone."""
    names = {p.name for p in plan.prescriptions if p.family.matrices_only}
    if not others:
        return [build(list(net.parameters()))]
    matrices = [p for name, p in net.named_parameters() if name in names]
    rest = [p for name, p in net.named_parameters() if name not in names]
    return [build(matrices), torch.optim.AdamW(rest, lr=1e-3, weight_decay=0.0)]


def trained(
    plan: Plan, net: nn.Module, optimizers: list[Any]
) -> tuple[dict[str, float], dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """What 30 steps do to aligned inputs; and every parameter's start and change."""
    for one in optimizers:
        if callable(train := getattr(one, "train", None)):
            with suppress(Exception):
                train()
    starts = {n: p.detach().clone() for n, p in net.named_parameters()}
    given, sides = {}, {}
    generator = torch.Generator().manual_seed(3)
    for name, p in net.named_parameters():
        # A side that does not grow is the same in the base and in the target: it is of the data.
        left, right = (
            torch.randn(n, 1, generator=torch.Generator().manual_seed(n + which)).sign()
            for which, n in enumerate((p.shape[0], p.shape[1] if p.ndim > 1 else 1))
        )
        noise = 0.1 * torch.randn(len(left), len(right), generator=generator)
        # 1/n, but for the readout and its bias: theirs are of order one.
        size = 1.0 if name.startswith("3.") else BASE / net[0].out_features
        given[name] = ((left @ right.T + noise) * size * 1e-2).reshape(p.shape)
        sides[name] = left, right
    for step in range(STEPS):
        wave = 1.0 + 0.4 * math.sin(1.7 * step)

        def give(wave: float = wave) -> torch.Tensor:
            for name, p in net.named_parameters():
                p.grad = given[name] * wave
            return torch.ones(())

        give()
        for one in optimizers:
            try:
                one.step()
            except Exception:
                one.step(give)
    done, moves = {}, {}
    for name, p in net.named_parameters():
        moved = (p.detach() - starts[name]).double()
        left, right = (side.double() for side in sides[name])
        matrix = moved.reshape(len(left), len(right))
        done[name] = float((left.T @ matrix @ right).abs()) / len(left)
        moves[name] = starts[name].double(), moved
    return done, moves


def judged(row: Row, cls: type, settings: Mapping[str, Any], family: Family | None) -> Row:
    """The verdict: right, refused (with the reason), or wrong (with what was)."""
    try:
        plan = planned(cls, family)
    except ValueError as error:
        return replace(row, verdict="refused", why=row.why or _short(no_rule(cls) or error))
    matrices = plan.family.matrices_only

    def both(decay: float) -> list[Any]:
        found = []
        for net in (network(BASE), network(TARGET)):
            target = net[0].out_features == TARGET
            if target:  # first: some optimizers keep the weights that they were built with
                plan.initialize(net)
            made = optimizers(plan, net, lambda p: built(cls, p, settings, decay), matrices)
            if target:
                for one in made:
                    plan.rescale(net, one)
                plan.verify(net, made)
            found.append(trained(plan, net, made))
        return found

    relative = plan.family in (Family.RELATIVE, Family.SPHERE)
    try:
        (before, moved_before), (after, moved_after) = both(0.0)
    except Exception as error:
        return replace(row, verdict="refused", why=row.why or _short(error))
    for name in before:
        # Gains and biases start at zero, of which plans have a note, or at a few random numbers.
        if relative and name.endswith("bias"):
            continue
        tolerance = 0.5 if name == "3.bias" else TOLERANCE
        ratio = after[name] / before[name] if before[name] else math.nan
        if not abs(ratio - 1) <= tolerance:
            why = f"steps of {name} do {ratio:.3g} of the base's"
            return replace(row, verdict="wrong", why=why)
    if row.decay in ("", "none"):
        return replace(row, verdict="right")
    try:
        (_, decayed_before), (_, decayed_after) = both(0.1)
    except ValueError as error:
        return replace(row, verdict="right", decay=f"{row.decay}: refused", why=_short(error))
    for p in plan.prescriptions:
        if p.role.kind is Kind.VECTOR or len(p.shape) < 2:
            continue
        parts = [
            removed(with_decay[p.name], without[p.name])
            for with_decay, without in (
                (decayed_before, moved_before),
                (decayed_after, moved_after),
            )
        ]
        if parts[0] > 1e-4 and not abs(parts[1] / parts[0] - 1) <= TOLERANCE:
            why = f"decay of {p.name} is {parts[1] / parts[0]:.3g} of the base's"
            return replace(row, verdict="wrong", why=why)
    return replace(row, verdict="right")


def removed(
    with_decay: tuple[torch.Tensor, torch.Tensor], without: tuple[torch.Tensor, torch.Tensor]
) -> float:
    """The part of a weight that decay removed: of where it was half-way, as steps move it too."""
    half_way = without[0] + without[1] / 2
    return float(((without[1] - with_decay[1]) * half_way).sum() / half_way.square().sum())


def _short(error: Exception | str) -> str:
    """What was measured, of an error; or its beginning."""
    text = " ".join(str(error).split())
    measured = text.partition("it is in a group of ")[2].partition(": ")[2] or text
    measured = re.sub(r"\d{12,}", "...", measured.partition(". Plan with that ")[0])
    return measured if len(measured) <= 300 else measured[:300].rpartition(" ")[0] + " ..."


def _own(error: BaseException) -> str:
    """An error of a class's own."""
    return f"{type(error).__name__}: {_short(str(error))}".removesuffix(": ")


def one(package: str, name: str, cls: type, settings: Mapping[str, Any]) -> Row:
    """The row of one class."""
    distribution = next((p for p in metadata.packages_distributions().get(package, [])), "")
    row = Row(
        package=package,
        version=metadata.version(distribution) if distribution else "0a059a4",
        name=name,
        settings=" ".join(f"{key}={value}" for key, value in settings.items()),
    )
    began = time.perf_counter()
    try:
        built(cls, [nn.Parameter(torch.randn(32, 32))], settings, 0.0).param_groups  # noqa: B018
    except Exception as error:
        return replace(row, verdict="not run", why=_own(error))
    row, family = measured(row, cls, settings)
    row = judged(row, cls, settings, family)
    return replace(row, seconds=round(time.perf_counter() - began, 1))


def apart(package: str, name: str, cls: type, settings: Mapping[str, Any]) -> Row:
    """The same in a process of its own, which is stopped after a while."""
    receive, send = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        warnings.filterwarnings("ignore")
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        if package == "muon" or name in _DISTRIBUTED:
            store = torch.distributed.HashStore()  # type: ignore[attr-defined]
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        send.send(one(package, name, cls, settings))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    row = Row(
        package=package, version="", name=name, settings=str(settings or ""), verdict="not run",
        why=f"no answer in {SECONDS:g} s",
    )  # fmt: skip
    if receive.poll(SECONDS):
        with suppress(EOFError):
            row = receive.recv()
    process.kill()
    process.join()
    return row


def text_of(row: Row) -> str:
    """One row of the page's table."""
    settings = f" `{row.settings}`" if row.settings else ""
    why = row.why.replace("|", "/").replace("<", "&lt;")
    verdict = row.verdict + (f": {why}" if why and row.verdict != "right" else "")
    powers = [row.gradient, row.weight, row.fan_in, row.fan_out]
    known = [f"{round(power, 2) + 0.0:g}" for power in powers if not math.isnan(power)]
    cells = [
        f"{row.package} {row.version}",
        f"{row.name}{settings}",
        row.family,
        " ".join(known),
        row.decay,
        verdict,
    ]
    return f"| {' | '.join(cells)} |"


def page(rows: list[Row]) -> None:
    """The table of docs/studies/atlas.md."""
    path = Path(__file__).parents[1] / "docs" / "studies" / "atlas.md"
    text = path.read_text(encoding="utf-8").partition("<!-- table -->")[0]
    verdicts = [row.verdict for row in rows]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)
    )
    answer = f"> **Answer.** Of {len(rows)} classes and settings: {counts}."
    text = re.sub(r"^> \*\*Answer\.\*\* .*$", answer, text, flags=re.M)
    head = [
        "Exponents are those of the update in gradient, weight, fan-in and fan-out.",
        "",
        "| package | class | family | exponents | decay | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines = [*head, *map(text_of, rows), ""]
    path.write_text(text + "<!-- table -->\n\n" + "\n".join(lines), encoding="utf-8")


def main() -> None:
    torch.set_num_threads(1)
    rows: list[Row] = []
    for package in sys.argv[1:] or list(MODULES):
        try:
            found = list(classes(package))
        except Exception as error:
            print(f"{package}: {type(error).__name__}: {error}; install {PINS}")
            continue
        for name, cls, settings in found:
            rows.append(row := apart(package, name, cls, settings))
            print(
                f"{package} {name} {row.settings}: {row.family} {row.verdict} {row.why}", flush=True
            )
    path = Path(os.environ.get("ATLAS", Path(depthmup.__file__).parent / "rules" / "atlas.csv"))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: "" if v != v else v for k, v in asdict(row).items()} for row in rows)
    page(rows)
    verdicts = [row.verdict for row in rows]
    print(", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)))


if __name__ == "__main__":
    main()
