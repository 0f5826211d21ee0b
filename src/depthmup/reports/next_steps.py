"""What to do after a measurement: lines to paste, and the command that settles what is open."""

import shlex
from collections.abc import Sequence

from depthmup.records import Study, Transfer, Verdict
from depthmup.records.certificate import Certificate, Lack, size_text
from depthmup.reports.page import Section
from depthmup.reports.sentences import at_base, duration, holding, rate
from depthmup.reports.study_rows import size_of, sizes, transfers

_BY_SEEDS = (Lack.SEEDS, Lack.NOISE, Lack.UNCERTAIN, Lack.WINDOWS)
"""Reasons against a certificate that repetitions can remove."""

Step = tuple[str, str]
"""A sentence, and code or a command to copy."""


def next_steps(studies: Sequence[Study], certificates: Sequence[Certificate]) -> list[Section]:
    """How to train with the value that was found; then how to decide what is open."""
    steps = [step for step in (_use(studies, certificates), _decide(studies, certificates)) if step]
    return [
        Section(title="" if i else "Next", lead=lead, code=code)
        for i, (lead, code) in enumerate(steps)
    ]


_CLASSES = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
_USE = """\
plan = depthmup.plan(model, base, scheme="{scheme}", optimizer="{name}", example_inputs=inputs)
plan.initialize(model)
optimizer = torch.optim.{of}(plan.param_groups(model, lr={lr}), lr={lr})
"""


def _use(studies: Sequence[Study], certificates: Sequence[Certificate]) -> Step | None:
    """A plan with the value; none of tables, whose models are not known."""
    study, transfer = studies[0], holding(*studies)
    if transfer is None or (at := at_base(study, transfer)) is None:
        return None
    schemes, optimizers = (_listed(study, name) for name in ("schemes", "optimizers"))
    name = next(iter(optimizers), "")
    if not study.tuned.is_learning_rate or transfer.scheme not in schemes or name not in _CLASSES:
        return None
    value, where = 2.0**at.value, "a larger model"
    for certificate in certificates:
        if certificate.issued and certificate.scheme == transfer.scheme:
            value, where = certificate.value.value, size_text(certificate.target)
    code = _USE.format(scheme=transfer.scheme, name=name, of=_CLASSES[name], lr=rate(value))
    return f"Train {where}; the base has {size_text(transfer.optima[0].size)}.", code


def _decide(studies: Sequence[Study], certificates: Sequence[Certificate]) -> Step | None:
    """More evidence for the first verdict that is open, or for a certificate."""
    for study in studies:
        for transfer in transfers(study):
            if transfer.verdict is Verdict.UNDECIDED:
                return _more(study, transfer, f"Decide {transfer.title} along {study.axis}")
    refused = [c for c in certificates if not c.issued and c.refusals[0].lack in _BY_SEEDS]
    if not refused:
        return None
    return _more(studies[0], transfers(studies[0])[0], "Get a certificate")


def _more(study: Study, transfer: Transfer, aim: str) -> Step | None:
    """The same command with its budget or its seeds doubled, or with one more size."""
    runs, seeds = _runs(study), study.config.get("seeds")
    took = study.environment.get("seconds, all sessions")
    seconds = float(took) if isinstance(took, int | float) else 0.0
    ended = study.search.ended.get(transfer.scheme, "") if study.search else ""
    if "budget" in ended:
        words, option = "twice the budget", f"--budget {2 * runs}"
    elif study.search is None and isinstance(seeds, int):
        words, option = "twice the seeds", f"--seeds {2 * seeds}"
    elif study.axis in ("depth", "width"):
        # More seeds would not decide: a longer lever may. It needs the largest size's runs again.
        largest, power = sizes(study)[-1], 2 if study.axis == "width" else 1
        listed = ",".join(f"{size:g}" for size in (*sizes(study), 2 * largest))
        words, option = f"one more {study.axis}", f"--{study.axis}s {listed}"
        work = {size: _runs(study, size) * size**power for size in sizes(study)}
        seconds *= 2**power * work[largest] / (sum(work.values()) or 1)
        runs = _runs(study, largest)
    else:
        return None
    price = f"about {runs} runs" + (f", {duration(seconds)}" if seconds >= 1 else "")
    command = _listed(study, "command")
    if "transfer" not in command[1:2]:
        return f"{aim}: {words} ({price}).", ""
    lead = f"{aim}: {words} ({price}). Finished runs are not repeated."
    return lead, f"{shlex.join(command)} {option}"


def _listed(study: Study, name: str) -> list[str]:
    """A list of texts in the configuration; empty where it is none."""
    value = study.config.get(name, ())
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def _runs(study: Study, size: float | None = None) -> int:
    """Runs along the axis, of one size or of all."""
    curves = study.headline.curves
    return sum(p.seeds for c in curves if size in (None, size_of(study, c)) for p in c.points)
