"""What the library says, as values that JSON holds, read through its public doors alone."""

import contextlib
import importlib
import inspect
import io
import json
import lzma
import re
import tempfile
from functools import cache, partial
from pathlib import Path

import torch
from torch import nn

import depthmup
from tests.golden import inputs

ROOT = Path(__file__).parents[2]


def _refusal(error):
    return {"refused": type(error).__name__, "sentence": str(error).splitlines()[0]}


def _rows(frame):
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _estimate(estimate):
    return [estimate.value, estimate.low, estimate.high]


# Sections "studies", "fits" and "texts": the first two hold all but sentences, the third those.

# Where a measurement ran and by what version: of the machine that made it.
_ABOUT = ("environment", "code")


def _without(value):
    if isinstance(value, dict):
        return {k: _without(v) for k, v in value.items() if k not in _ABOUT}
    if isinstance(value, str):  # paths of the checkout
        return value.replace(str(inputs.TABLES), "tables")
    return [_without(v) for v in value] if isinstance(value, list | tuple) else value


def _is_sentence(value):
    return isinstance(value, str) and value.count(" ") > 2


def facts(value):
    """A value without the sentences in it."""
    if isinstance(value, dict):
        return {k: facts(v) for k, v in value.items() if not _is_sentence(v)}
    if isinstance(value, list | tuple):
        return ["(a sentence)" if _is_sentence(v) else facts(v) for v in value]
    return value


def sentences(value, path=""):
    """The sentences of a value, by their place."""
    if _is_sentence(value):
        return {path: value}
    if isinstance(value, dict):
        parts = [sentences(v, f"{path}/{k}") for k, v in value.items()]
    elif isinstance(value, list | tuple):
        parts = [sentences(v, f"{path}/{i}") for i, v in enumerate(value)]
    else:
        parts = []
    return {k: v for part in parts for k, v in part.items()}


@cache
def report_of(store):
    with tempfile.TemporaryDirectory() as folder:
        raw = (inputs.STORES / f"{store}.sqlite.xz").read_bytes()
        (Path(folder) / "results.sqlite").write_bytes(lzma.decompress(raw))
        return depthmup.load(folder)


def _findings(report):
    design = report.sweep.design
    axes = design.axes
    found = {
        f"{variant.name} along {axis}": report.finding(variant.name, axis)
        for variant in design.variants
        for axis in axes
    }
    return {
        "verdict": report.verdict.value,
        **{
            name: {
                "verdict": finding.verdict.value,
                "drift": _estimate(finding.drift),
                "excess loss": _estimate(finding.regret),
                "optima": [
                    {
                        "size": dict(optimum.size),
                        "best": _estimate(optimum.log2_lr),
                        "loss": _estimate(optimum.loss),
                        "place": optimum.place.value,
                    }
                    for optimum in finding.optima
                ],
                "why": finding.why,
            }
            for name, finding in found.items()
        },
    }


_STUDIES = {
    "findings": _findings,
    "points": lambda report: _rows(report.to_pandas("points")),
    "optima": lambda report: _rows(report.to_pandas("optima")),
    "transfers": lambda report: _rows(report.to_pandas("transfers")),
    "trials": lambda report: _rows(report.to_pandas("trials")),
    "certificates": lambda report: [json.loads(c.to_json()) for c in report.certificates],
    "summary": lambda report: report.to_dict(),
}


@cache
def _study(store, part):
    return _without(_STUDIES[part](report_of(store)))


def studies():
    for path in sorted(inputs.STORES.glob("*.sqlite.xz")):
        store = path.name.removesuffix(".sqlite.xz")
        for part in _STUDIES:
            yield f"{store}: {part}", lambda s=store, p=part: facts(_study(s, p))


_DEPTH = {"axes": {"depth": "depth"}, "lr": "lr", "loss": "loss"}
_SHIPPED = {"axes": {"depth": "n_layers"}, "lr": "lr", "loss": "final_loss", "seed": "seed"}
_AXES = {"depth": "layers", "width": "hidden", "batch": "bs"}
_GROUPS = {"axes": ["depth"], "lr": "lr", "loss": "val", "seed": "seed"}
_SPARSE = {"axes": ["parameters", "tokens"], "lr": "lr", "loss": "loss"}
_DECAY = {"axes": ["depth"], "lr": "wd", "loss": "loss", "seed": "seed"}
_EDGES = {"axes": ["width"], "lr": "lr", "loss": "loss", "steps": "steps"}


def _questions():
    """By name: a table, how it is read, and the settings of ``Reading``."""
    grown, far = {"depth": 64, "width": 1024, "batch": 128}, {"parameters": 1e9, "tokens": 1e10}
    axes = {"axes": _AXES, "lr": "lr", "loss": "loss", "seed": "seed"}
    defects = {**_DEPTH, "seed": "seed", "steps": "steps"}
    shipped = {"scheme": "depth-mup", "where": "scheme == depth-mup"}
    return {
        "shipped": ("", {**_SHIPPED, "by": "scheme"}, {}),
        "shipped, a target": ("", {**_SHIPPED, **shipped, "target": {"depth": 512}}, {}),
        "shipped, all together": ("", _SHIPPED, {"ignore": "scheme"}),
        "axes": ("axes", axes, {}),
        "axes, a target": ("axes", {**axes, "target": grown}, {}),
        "axes, a scheme": ("axes", {**axes, "scheme": "completep", "tolerance": 0.3}, {}),
        "groups": ("groups", {**_GROUPS, "by": ["optimizer", "sched"]}, {}),
        "groups, targets": ("groups", {**_GROUPS, "by": "optimizer", "target": {"depth": 64}}, {}),
        "one seed": ("one seed", _DEPTH, {}),
        "one seed, a target": ("one seed", {**_DEPTH, "target": {"depth": 256}}, {"title": "Mine"}),
        "edges": ("edges", _EDGES, {}),
        "sparse": ("sparse", _SPARSE, {}),
        "sparse, a target": ("sparse", {**_SPARSE, "target": far}, {}),
        "defects": ("defects", defects, {}),
        "defects kept": ("defects", defects, {"keep": ["short", "duplicate"], "chance": 2.3}),
        "decay": ("decay", _DECAY, {"tuned": "weight decay"}),
        "a filter": ("groups", {**_GROUPS, "where": ["optimizer == muon", "lr < 0.03"]}, {}),
        "no column": ("decay", {**_DECAY, "lr": "rate"}, {}),
        "one rate": ("decay", {**_DECAY, "where": "wd == 0.0625"}, {}),
    }  # fmt: skip


@cache
def _fit(name):
    from depthmup.tables import Reading, example

    table, options, reading = _questions()[name]
    path = inputs.TABLES / f"{table}.csv" if table else example()
    try:
        return depthmup.fit(path, **options, reading=Reading(**reading))
    except ValueError as error:
        return error


_FRAMES = (
    "points", "optima", "transfers", "rules", "laws", "notes", "excluded", "predictions",
)  # fmt: skip


@cache
def _fitted(name, part):
    report = _fit(name)
    if isinstance(report, ValueError):
        return _refusal(report)
    return _without(report.to_dict() if part == "summary" else _rows(report.to_pandas(part)))


def fits():
    for name in _questions():
        for part in (*_FRAMES, "summary"):
            yield f"{name}: {part}", lambda n=name, p=part: facts(_fitted(n, p))
    for name in _NEXT:
        yield f"next runs: {name}", lambda n=name: facts(_next(n))


_NEXT = {"edges": {"width": [64, 128, 256]}, "one seed": {"depth": [3, 6, 12]}}


@cache
def _next(name):
    options = {k: v for k, v in _questions()[name][1].items() if k != "steps"}
    axes = options.pop("axes")
    axes = axes if isinstance(axes, dict) else {axis: axis for axis in axes}
    table = inputs.TABLES / f"{name}.csv"
    proposed = depthmup.next_runs(table, axes=axes, sizes=_NEXT[name], **options)
    return {"runs": [dict(row) for row in proposed.rows], "why": proposed.why}


def texts():
    for path in sorted(inputs.STORES.glob("*.sqlite.xz")):
        store = path.name.removesuffix(".sqlite.xz")
        parts = [part for part in _STUDIES if part not in ("transfers", "findings")]
        yield f"sweep: {store}", lambda s=store, p=parts: _merged(s, p, _study)
    for name in _questions():
        yield f"table: {name}", lambda n=name: _merged(n, ("summary",), _fitted)
    for name in _NEXT:
        yield f"next runs: {name}", lambda n=name: sentences(_next(n))


def _merged(name, parts, view):
    return {
        path: text for part in parts for path, text in sentences(view(name, part), part).items()
    }


# Section "keys": by key, what each run's key is a hash of.


class _Block(nn.Linear):
    def forward(self, x):
        return x + super().forward(x).relu()


def tower(width, depth):
    blocks = (_Block(width, width) for _ in range(depth))
    return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 4))


def batch_of(generator, batch=8):
    x = torch.randn(batch, 8, generator=generator)
    return x, x[:, :4].argmax(-1)


def _designs():
    base = {"width": 16, "depth": 2}
    few = {"lrs": [2.0**-9, 2.0**-7, 2.0**-5], "steps": 2, "seeds": 2}
    mine = depthmup.Model(tower, batch=batch_of, version="1")
    built_in = depthmup.BuiltIn
    design = partial(depthmup.Design, base=base, **few)
    decays = {"weight_decays": (0.0, 0.1), "multipliers": (0.5, 1.0)}
    tuned = {"lrs": 2.0**-7, "steps": 2, "seeds": 2, "base": base, "depth": (2, 4)}
    values = [2.0**-5, 2.0**-4]
    axes = {"width": 16, "experts": 2, "batch": 8, "tokens": 320}
    return {
        "built-in": (built_in(), design(depth=(2, 4), width=(16, 32))),
        "built-in, optimizers": (built_in(), design(depth=(2, 4), optimizers=("adam", "sgd"))),
        "built-in, two matrices": (
            built_in(block_depth=2, activation="relu", layer_norm=True, order="epochs"),
            design(depth=(2, 4), schemes=("completep", "depth-mup", "sp", "0.7,0.3")),
        ),
        "built-in, variants": (
            built_in(nonlinearity="pre", mean_subtraction=False, batch_size=8),
            design(depth=(2, 4), optimizers="adamw", **decays, settings={"schedule": "cosine"}),
        ),
        "built-in, decay": (
            built_in(),
            depthmup.Design(**tuned, optimizers="adamw", tune="weight_decay", values=values),
        ),
        "built-in, multiplier": (
            built_in(), depthmup.Design(**tuned, tune="multiplier", values=values)
        ),
        "built-in, init": (
            built_in(), depthmup.Design(**tuned, tune="init_scale", values=values)
        ),
        "model": (mine, design(depth=(2, 4), width=(16, 32))),
        "model, optimizers": (
            mine,
            design(
                depth=(2, 4), schemes=("completep", "mup"), optimizers=("adamw", "sgd"), **decays
            ),
        ),
        "model, settings": (
            mine,
            design(
                depth=(2, 4),
                settings={"betas": (0.9, 0.99), "clip": 1.0, "warmup": 0.1, "schedule": "linear"},
            ),
        ),
        "model, betas": (
            mine, depthmup.Design(**tuned, tune="one_minus_beta2", values=values)
        ),
        "model, batch": (
            mine,
            depthmup.Design(
                base={**base, "batch": 8, "steps": 2}, batch=(8, 16), steps=(2, 4),
                run=("none", "sde", "sqrt-batch"), lrs=few["lrs"], seeds=2,
            ),
        ),
        "own training": (
            inputs.LAW,
            depthmup.Design(
                base=axes, experts=(2, 4, 8), batch=(8, 16), width=(16, 32),
                schemes=("sp", "complete-dp"), optimizers=("muon", "lion"), lrs=few["lrs"], seeds=2,
            ),
        ),
        "own training, corners": (
            inputs.LAW,
            design(depth=(2, 4), width=(16, 32), sizes=[{"width": 64, "depth": 8}], schemes="ode"),
        ),
    }  # fmt: skip


def _keys(name):
    report = depthmup.transfer(*_designs()[name])
    return {run.key: json.loads(run.to_json()) for run in report.records}


def keys():
    for name in _designs():
        yield name, lambda n=name: _keys(n)


# Section "names".

PACKAGES = ("", ".planning", ".rules", ".limits", ".diagnostics", ".records", ".reports")


def _signature(function):
    """The parameters, their defaults and types, wherever the types live."""
    try:
        signature = str(inspect.signature(function))
    except (TypeError, ValueError):
        return ""
    sets = r"(?<=frozenset\(\{)[^}]*(?=\})"  # in another order in every process
    signature = re.sub(sets, lambda found: ", ".join(sorted(found[0].split(", "))), signature)
    signature = re.sub(r"<function ([\w.<>]+) at 0x\w+>", r"\1", signature)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", signature).replace("'", "")


def _public(value):
    if not inspect.isclass(value):
        return _signature(value) if callable(value) else type(value).__name__
    own = [kind for kind in value.__mro__ if kind.__module__.startswith("depthmup")]
    members = {name for kind in own for name in vars(kind) if not name.startswith("_")}
    signatures = {name: getattr(value, name, None) for name in members}
    return {
        "": _signature(value),
        **{name: _signature(m) if callable(m) else "value" for name, m in signatures.items()},
    }


def _names(package):
    module = importlib.import_module(f"depthmup{package}")
    values = {name: getattr(module, name) for name in module.__all__}
    return {name: _public(value) for name, value in values.items() if not inspect.ismodule(value)}


def _printed(*words):
    """What a command prints."""
    from depthmup.cli import main

    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main(words)
    return shown.getvalue()


VERBS = (
    "check", "doctor", "fit", "limit", "merge", "next", "plan", "predict", "regimes", "report",
    "reproduce", "rules", "score", "transfer",
)  # fmt: skip


def _options(verb):
    return sorted(set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", _printed(verb, "--help-all"))))


def names():
    for package in PACKAGES:
        yield f"depthmup{package}", lambda p=package: _names(p)
    for verb in VERBS:
        yield f"options of {verb}", lambda v=verb: _options(v)


# Section "evidence".


def _verdicts():
    """Every row of EVIDENCE.md's tables, but for the numbers that were measured."""
    rows = []
    for line in (ROOT / "EVIDENCE.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and len(cells) > 2:
            rows.append(cells[:3] + cells[4:])  # the fourth is what was measured
    return rows


def _claims():
    """What is listed, but for forecasts of time, which are this machine's."""
    listed = json.loads(_printed("reproduce", "--list", "--json"))
    return [{name: value for name, value in row.items() if name != "seconds"} for row in listed]


def evidence():
    yield "claims", _claims
    yield "verdicts", _verdicts
