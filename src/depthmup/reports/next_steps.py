"""What to do after a measurement: lines to paste, and the command that settles what is open."""

import math
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise

from depthmup.records import Axis, Optimum, Place, Study, Transfer, Verdict
from depthmup.records.certificate import Certificate, Lack
from depthmup.records.finding import rate
from depthmup.records.grammar import with_option
from depthmup.records.search import SearchStory
from depthmup.records.sizes import size_number, size_text
from depthmup.records.text import counted
from depthmup.records.trial import written
from depthmup.reports.page import Section
from depthmup.reports.sentences import at_base, duration, holding, of_command
from depthmup.reports.study_rows import listed, size_of, sizes, transfers

_BY_RUNS = (Lack.BUDGET, Lack.SEEDS, Lack.NOISE, Lack.UNCERTAIN, Lack.WINDOWS)
"""Reasons against a certificate that further runs of the same command can remove."""

LISTED = 6
"""Sizes that a sentence lists."""

SEARCHED = 22
"""Most runs that a search with three seeds takes at one size: a scan, and seeds near its best."""

Step = tuple[str, str]
"""A sentence, and code or a command to copy."""


def next_steps(studies: Sequence[Study], certificates: Sequence[Certificate]) -> list[Section]:
    """How to train with the value that was found; then how to decide what is open."""
    steps = [step for step in (_use(studies, certificates), _decide(studies, certificates)) if step]
    return [
        Section(title="" if i else "Next", lead=lead, code=code)
        for i, (lead, code) in enumerate(steps)
    ]


def next_lines(
    studies: Sequence[Study], certificates: Sequence[Certificate], *, width: int = 100
) -> list[str]:
    """The same as text; what is to be copied is not wrapped."""
    lines = []
    for step in next_steps(studies, certificates):
        lines += ["", *textwrap.wrap(f"{step.title or 'Then'}: {step.lead}", width)]
        lines += textwrap.indent(step.code, "    ").splitlines()
    return lines[1:]


_CLASSES = {
    "adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "asgd": "ASGD", "nadam": "NAdam",
    "radam": "RAdam", "adamax": "Adamax", "adagrad": "Adagrad", "rmsprop": "RMSprop",
    "raw": "SGD", "entrywise": "AdamW",
}  # fmt: skip
_USE = """\
plan = depthmup.plan(model, base, scheme="{scheme}", optimizer="{name}", example_inputs=inputs)
plan.initialize(model)
groups = plan.param_groups(model, lr={lr})
optimizer = {of}(groups, lr={lr})
"""


def class_of(optimizer: str) -> str:
    """The class of torch's for an optimizer or a family by name, else a name to be replaced."""
    return f"torch.optim.{_CLASSES[optimizer]}" if optimizer in _CLASSES else "YourOptimizer"


def lines_to_paste(scheme: str, optimizer: str, lr: str = "lr") -> str:
    """Code that trains a model under a scheme's plan."""
    return _USE.format(scheme=scheme, name=optimizer, of=class_of(optimizer), lr=lr)


def _use(studies: Sequence[Study], certificates: Sequence[Certificate]) -> Step | None:
    """A plan with the value; none of tables, whose models are not known."""
    study, transfer = studies[0], holding(*studies)
    if transfer is None or (at := at_base(study, transfer)) is None:
        return None
    schemes, optimizers = (listed(study, name) for name in ("schemes", "optimizers"))
    name = next(iter(optimizers), "")
    if not study.tuned.is_learning_rate or transfer.scheme not in schemes or not name:
        return None
    value, where, target = 2.0**at.value, "a larger model", dict[Axis, float]()
    for certificate in certificates:
        if certificate.issued and certificate.scheme == transfer.scheme:
            value, target = certificate.value.value, dict(certificate.target)
            where = size_text(target)
    if of_command(study):
        own = _filled(study, {"lr": rate(value), **{a: size_number(n) for a, n in target.items()}})
        return (f"Train {where}, the learning rate being that of the base.", own) if own else None
    code = lines_to_paste(transfer.scheme, name, rate(value))
    return f"Train {where}; the base has {size_text(transfer.optima[0].size)}.", code


def _filled(study: Study, values: Mapping[str, str]) -> str:
    """A person's own command with what is known filled in; empty where it was given in Python."""
    words = iter(listed(study, "command"))
    for word in words:
        name, given, template = word.partition("=")
        if name == "--command":
            template = template if given else next(words, "")
            return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], m[0]), template)
    return ""


def _decide(studies: Sequence[Study], certificates: Sequence[Certificate]) -> Step | None:
    """More evidence for the target of what transfers, or else for a verdict that is open."""
    refused = [c for c in certificates if not c.issued and c.refusals[0].lack in _BY_RUNS]
    best = holding(*studies)
    if best is not None and best.scheme in {c.scheme for c in refused}:
        return _more(studies[0], best, f"Get a certificate for {size_text(refused[0].target)}")
    for study in studies:
        remedies = _mapped(study.config, "remedies")
        for transfer in transfers(study):
            if remedy := remedies.get(transfer.scheme):
                what = "its runs differ in columns that nobody named"
                return f"Decide {transfer.title} along {study.axis}: {what}.", remedy
    for study in studies:
        if study.together and study.together.verdict is not Verdict.UNDECIDED:
            continue  # all groups together are decided
        for transfer in transfers(study):
            if transfer.verdict is Verdict.UNDECIDED:
                what = transfer.title if len(transfers(study)) > 1 else "the drift"
                return _more(study, transfer, f"Decide {what} along {study.axis}")
    if not refused:
        return None
    return _more(studies[0], transfers(studies[0])[0], "Get a certificate")


def _more(study: Study, transfer: Transfer, aim: str) -> Step | None:
    """The same command with its budget or its seeds doubled, a wider grid, or one more size."""
    if "table" in study.config and not study.config.get("command"):
        return _ask(study, transfer, aim)
    runs = study.search.runs if study.search else _runs(study)
    seeds = study.config.get("seeds")
    took = study.environment.get("seconds, all sessions")
    seconds = float(took) if isinstance(took, int | float) else 0.0
    # Of two sizes no seeds tell how sizes scatter.
    longer, two = study.axis in ("depth", "width"), len(sizes(study)) == 2
    # A search that did not end by itself ran out of runs, work or time.
    ended = study.search.ended.get(transfer.scheme, "budget") if study.search else ""
    if "budget" in ended:
        words, option = "twice the runs", f"--budget {2 * runs}"
    elif study.search is None and (wider := _wider(study, transfer)):
        # No seeds would tell where an optimum lies that is beyond the grid.
        option, more = wider
        words, runs, seconds = "a wider grid", round(runs * more), seconds * more
    elif study.search is None and isinstance(seeds, int) and not (longer and two):
        words, option = "twice the seeds", f"--seeds {2 * seeds}"
    elif longer:
        # More seeds would not decide: a longer lever may. It needs the largest size's runs again.
        largest, power = sizes(study)[-1], 2 if study.axis == "width" else 1
        values = ",".join(f"{size:.10g}" for size in (*sizes(study), 2 * largest))
        words, option = f"one more {study.axis}", f"--{study.axis}s {values}"
        work = {size: _runs(study, size) * size**power for size in sizes(study)}
        seconds *= 2**power * work[largest] / (sum(work.values()) or 1)
        runs = _runs(study, largest)
    else:
        return None
    price = f"about {counted(runs, 'run')}" + (f", {duration(seconds)}" if seconds >= 1 else "")
    command = listed(study, "command")
    if "transfer" not in command[1:2]:
        return f"{aim}: {words} ({price}).", ""
    lead = f"{aim}: {words} ({price}). Finished runs are not repeated."
    return lead, shlex.join(with_option(command, option))


def twice_the_budget(
    story: SearchStory, command: Sequence[str], seconds: object = None
) -> Step | None:
    """Twice the runs of a search of several values that its budget ended; nothing else decides."""
    if not any("budget" in why for why in story.ended.values()):
        return None
    took = f", {duration(seconds)}" if isinstance(seconds, float) and seconds >= 1 else ""
    lead = f"Go on with the search: twice the runs (about {counted(story.runs, 'run')}{took})."
    if "transfer" not in command[1:2]:
        return lead, ""
    words = with_option(list(command), f"--budget {2 * story.runs}")
    return f"{lead} Finished runs are not repeated.", shlex.join(words)


def _wider(study: Study, transfer: Transfer) -> tuple[str, float] | None:
    """The grid with two more values beyond each edge at which an optimum lies, and its added part.

    None where no optimum lies at an edge.
    """
    places = {optimum.place for optimum in transfer.optima}
    curves = (curve for curve in study.headline.curves if curve.scheme == transfer.scheme)
    grid = sorted({point.log2_lr for curve in curves for point in curve.points})
    if len(grid) < 2 or not any(place.at_edge for place in places):
        return None
    whole, wide = study.tuned.is_whole, list(grid)
    if Place.LOW_EDGE in places:
        below = [grid[0] - n * (grid[1] - grid[0]) for n in (2, 1)]
        wide = [_short(k, whole) for k in below] + wide
    if Place.HIGH_EDGE in places:
        above = [grid[-1] + n * (grid[-1] - grid[-2]) for n in (1, 2)]
        wide += [_short(k, whole) for k in above]
    name = "lrs" if study.tuned.is_learning_rate else "values"
    if any(word.startswith(f"--log2-{name}") for word in listed(study, "command")):
        option = f"--log2-{name}={','.join(f'{k:.9g}' for k in wide)}"
    else:
        option = f"--{name} {','.join(repr(written(2.0 ** round(k, 9))) for k in wide)}"
    return option, (len(wide) - len(grid)) / len(grid)


def _short(log2: float, whole: bool) -> float:
    """The log2 of a value of three digits near one; a power of two stays, as its grid has it."""
    if math.isclose(log2, round(log2), abs_tol=1e-9):
        return log2
    return math.log2(round(2.0**log2) if whole else float(f"{2.0**log2:.3g}"))


def _ask(study: Study, transfer: Transfer, aim: str) -> Step | None:
    """The runs of one more size of a table's group, which ``next`` lists; none without sizes."""
    config = study.config
    axes, groups = _mapped(config, "axes"), _mapped(config, "groups")
    optima = [transfer.optima[i] for i in max(transfer.slices, key=len, default=())]
    along = sorted({size_of(study, o) for o in optima}) or list(sizes(study))
    if not along:  # no two sizes differ in this axis alone
        return None
    extended = _extended(study, transfer)
    alone = _alone(study, transfer, optima)
    more = [n for n in along if n != alone[study.axis]] if alone else [2 * along[-1]]
    runs = min(_runs(study, along[-1], transfer.scheme), SEARCHED)
    # A group may have no run that counts.
    price = f" (about {counted(runs * len(more), 'run')})" if runs else ""
    beside = {a: n for a, n in alone.items() if a != study.axis} or _beside(study, optima)
    in_step = [axis for axis in transfer.together if axis != study.axis]
    where = f" with its {' and '.join(in_step)}" if in_step else ""
    where = f" at {size_text(beside)}" if alone else where
    lead = (
        f"{aim}: add {study.axis} {', '.join(map(size_number, more))}{where}{price}. This lists "
        "the runs to make first; it asks for fewer where they suffice."
    )
    if extended:
        more, lead = [], f"{aim}: {extended}"
    if groups and transfer.scheme not in groups:  # no filter has its rows
        return lead, ""
    values: dict[str, tuple[float, ...]] = {a: (beside[a],) for a in axes if a in beside}
    values[study.axis] = (*along, *(n for n in more if n not in along))
    named = {what: str(config[what]) for what in ("lr", "loss", "seed") if config.get(what)}
    if not study.tuned.is_learning_rate:
        named["tuned"] = study.tuned.name
    of_group = [groups[transfer.scheme]] if groups else []
    question: dict[str, object] = {
        "axes": {axis: axes[axis] for axis in values},
        **named,
        "sizes": values,
        "where": [*dict.fromkeys([*listed(study, "where"), *of_group])],  # one may be the other
        "ignore": [*listed(study, "ignore"), *filter(None, [str(config.get("steps", ""))])],
    }
    table = str(config["table"])
    return lead, _as_command(table, question) if table else _as_python(question)


def _extended(study: Study, transfer: Transfer) -> str:
    """Which values to add where optima lie at an edge of their grid: the cheapest step."""
    parts, runs = [], 0
    for place, way in ((Place.LOW_EDGE, "downwards"), (Place.HIGH_EDGE, "upwards")):
        there = [o for o in transfer.optima if o.place is place]
        if not there:
            continue
        edge, step = there[0].log2_lr.value, _step(study, there[0])
        sign = -1 if place is Place.LOW_EDGE else 1
        values = " and ".join(rate(2.0 ** (edge + sign * n * step)) for n in (1, 2))
        at = listed_sizes(sorted({size_of(study, o) for o in there}))
        alike = len({round(o.log2_lr.value, 6) for o in there}) == 1
        such = f"add {values}" if alike else "add two values beyond the last one"
        parts.append(f"extend the grid {way} at {study.axis} {at}: {such}")
        runs += 2 * len(there)
    if 2 * sum(o.place.at_edge for o in transfer.optima) < len(transfer.optima):
        return ""  # few bounds: the others' valley says where these optima lie
    return f"{'; '.join(parts)} (about {counted(runs, 'run')})." if parts else ""


def listed_sizes(values: Sequence[float]) -> str:
    """Some sizes, the first of many."""
    shown = ", ".join(map(size_number, values[:LISTED]))
    return f"{shown} and {len(values) - LISTED} more" if len(values) > LISTED else shown


def _step(study: Study, optimum: Optimum) -> float:
    """The least distance of two values that were tried at a size, in octaves."""
    curves = (c for c in study.headline.curves if dict(c.size) == dict(optimum.size))
    grid = sorted({point.log2_lr for curve in curves for point in curve.points})
    return min((b - a for a, b in pairwise(grid)), default=1.0)


def _alone(study: Study, transfer: Transfer, optima: Sequence[Optimum]) -> Mapping[str, float]:
    """The smallest size of those along which other axes change too, and not in step, else none.

    From there the study's axis can be varied alone.
    """
    others = {tuple(n for a, n in o.size.items() if a != study.axis) for o in optima}
    if transfer.together or len(others) < 2:
        return {}
    return min((o.size for o in optima), key=lambda size: math.prod(size.values()))


def _beside(study: Study, optima: Sequence[Optimum]) -> dict[str, float]:
    """Sizes along the other axes, but for those that change with the study's own."""
    curves = study.headline.curves
    at = [o.size for o in optima] or [c.size for c in curves]
    return {a: min(s[a] for s in at) for a in at[0] if len({s[a] for s in at}) == 1 or not optima}


def _as_command(table: str, question: Mapping[str, object]) -> str:
    words = ["depthmup", "next", table]
    for name, value in question.items():
        match value:
            case Mapping():
                words += [f"--{name}", *(f"{k}={_joined(v)}" for k, v in value.items())]
            case list():
                words += [f"--{name}", *value] if value else []
            case _:
                words += [f"--{name}", str(value)]
    return shlex.join(words)


def _joined(value: object) -> str:
    numbers = value if isinstance(value, tuple) else ()
    return ",".join(f"{n:.15g}" for n in numbers) or str(value)


def _as_python(question: Mapping[str, object]) -> str:
    arguments = (f"    {name}={value!r},\n" for name, value in question.items() if value)
    return f"print(depthmup.next_runs(\n    runs,\n{''.join(arguments)}))\n"


def _mapped(config: Mapping[str, object], name: str) -> Mapping[str, str]:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def _runs(study: Study, size: float | None = None, scheme: str = "") -> int:
    """Runs along the axis, of one size or of all, and of one scheme or of all.

    Schemes that agree at the base share its runs: curves alike to the last digit count once.
    """
    unique = {
        (
            tuple(c.size.items()),
            tuple((p.log2_lr, repr(p.loss.value), p.seeds) for p in c.points),
        ): sum(p.seeds for p in c.points)
        for c in study.headline.curves
        if size in (None, size_of(study, c)) and scheme in ("", c.scheme)
    }
    return sum(unique.values())
