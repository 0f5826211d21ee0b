"""``python -m reproduction``: figures and claims of the paper, with a verdict each."""

import json
import math
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from depthmup.cli import (
    Display,
    ReproduceOptions,
    parse_budget,
    prepare_file,
    prepare_folder,
    print_json,
    stopped,
)
from depthmup.records import environment, worker_count
from depthmup.reports import duration, together
from depthmup.sweep import (
    MAIN_STORE,
    Executor,
    Processes,
    Ray,
    Store,
    environment_of,
    snapshot,
)
from depthmup.training import Backend, check_backend
from reproduction import (
    CLAIMS,
    Claim,
    Experiment,
    Scale,
    Setting,
    judge,
    named,
    plan_claims,
    reproduce,
)
from reproduction.evidence import Evidence
from reproduction.pages import evidence as pages
from reproduction.prices import Price, counted, price, prices


def run(options: ReproduceOptions) -> int:
    """Measure what the options name; the exit status."""
    setting = setting_of(options.scale, options.data, verify=not options.unverified_data)
    if options.list:
        _list(setting, options)
        return 0
    claims = named(options.claims)
    planned = plan_claims(claims, setting)
    executor = options.execution.choose()
    backend = Backend(
        device=options.execution.place,
        engine=options.execution.engine,
        cuda_graphs=options.execution.cuda_graphs,
    )
    check_backend(backend)
    budget = parse_budget(options.budget) if options.budget else {}
    prepare_folder(options.out, results=("results.sqlite", "evidence.html", "evidence.json"))
    if options.markdown is not None:
        prepare_file(options.markdown, option="--markdown")
    elif options.beside:
        raise ValueError(
            "Expected --markdown FILE with --beside: the verdicts of other scales stand there."
        )
    beside = [_evidence_in(folder) for folder in options.beside]
    with Store(options.out / MAIN_STORE) as store:
        about = {
            "claims": [claim.name for claim in claims],
            "scale": options.scale,
            "data": list(options.data),
            "unverified_data": options.unverified_data,
            "command": ["depthmup", *sys.argv[1:]],
            "environment": environment(),
        }
        try:
            with Display(quiet=options.json) as display:
                display.say(_outlook(price(planned, store), executor))
                reproduce(
                    planned,
                    store=store,
                    executor=executor,
                    backend=backend,
                    tell=display.tell,
                    about=about,
                    most_runs=budget.get("runs", math.inf),
                    seconds=budget.get("seconds", math.inf),
                )
        except KeyboardInterrupt as interrupt:
            return stopped(interrupt, store.path)
        evidence = load_evidence(store, planned)
    deliver_evidence(
        evidence,
        options.out,
        markdown=options.markdown,
        beside=beside,
        export=options.export,
        as_json=options.json,
    )
    return 0


def _list(setting: Setting, options: ReproduceOptions) -> None:
    """The claims, what each costs from its beginning, and its verdict in the folder."""
    verdicts, path = {}, options.out / "evidence.json"
    if path.exists():
        verdicts = {c["claim"]: c["verdict"] for c in json.loads(path.read_text())["claims"]}
    workers = worker_count(options.execution.workers)
    costs = {
        claim.name: (cost.runs, round(cost.seconds(workers), 1))
        for claim, cost in zip(CLAIMS, prices(plan_claims(CLAIMS, setting)), strict=True)
    }
    if options.json:
        print_json(
            [
                {
                    "name": claim.name,
                    "title": claim.title,
                    "source": claim.source,
                    "runs": costs[claim.name][0],
                    "seconds": costs[claim.name][1],
                    "verdict": verdicts.get(claim.name, ""),
                }
                for claim in CLAIMS
            ]
        )
        return
    rows = [("claim", "runs", "time", "verdict", "title")]
    for claim in CLAIMS:
        runs, seconds = costs[claim.name]
        cost = (str(runs), duration(seconds)) if runs else ("", "")
        title = f"{claim.title} ({claim.source})"
        rows.append((claim.name, *cost, verdicts.get(claim.name, ""), title))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        flush = (cell.rjust if i in (1, 2) else cell.ljust for i, cell in enumerate(row))
        print("  ".join(just(width) for just, width in zip(flush, widths, strict=True)).rstrip())
    print(
        f"\nTimes are forecasts for {counted(workers, 'idle core')}. Runs that claims share count "
        "for each. Where a claim stays open, more follow."
    )


def _outlook(cost: Price, executor: Executor) -> str:
    """What is about to be run, in a sentence; its time on processors of this machine."""
    if not cost.runs:
        return "All runs are there."
    runs = counted(cost.runs, "run") + (", more where a claim is open" if cost.rest else "")
    workers = executor.workers if isinstance(executor, Processes) else 1
    if isinstance(executor, Ray) or (isinstance(executor, Processes) and executor.gpus):
        return f"{runs}."
    time = duration(cost.seconds(workers))
    return f"{runs}: about {time} on {counted(workers, 'idle core')}."


def _evidence_in(folder: Path) -> Evidence:
    """The evidence of another scale, as far as its store has it."""
    with snapshot(folder / MAIN_STORE) as store:
        return load_evidence(store)


def setting_of(scale: str, specs: Sequence[str], *, verify: bool = True) -> Setting:
    """The scale and the data sets, such as ``mnist:FOLDER``, that the options name."""
    from depthmup.training import find_data

    data_sets: dict[str, Any] = {}
    for spec in specs:
        data = find_data(spec, verify=verify)
        role = "images" if data.name == "mnist" else "data"
        if role in data_sets:
            raise ValueError(
                f"Expected --data to name at most one data set to train on, and mnist; got "
                f"{', '.join(specs)}."
            )
        data_sets[role] = data
    if scale == "paper" and "data" not in data_sets:
        raise ValueError(
            "The paper's scale trains on CIFAR-10: pass --data cifar10:FOLDER with the official "
            "files (or cifar10:hf), and mnist:FOLDER beside it for Figures 8 and 9."
        )
    return Setting(scale=Scale(scale), **data_sets)


def load_evidence(store: Store, planned: Sequence[tuple[Claim, Experiment]] = ()) -> Evidence:
    """The evidence of the last session on a store, without any training.

    What was ``planned`` in it is not planned again, nor are its searches replayed.

    It includes all claims that earlier sessions of the same scale and data have finished, so that a
    store has one page.
    """

    every = [session for session in store.sessions() if "claims" in session]
    last = every[-1]
    alike = [s for s in every if (s["scale"], s["data"]) == (last["scale"], last["data"])]
    setting = setting_of(last["scale"], last["data"], verify=not last["unverified_data"])
    data = f" --data {shlex.join(last['data'])}" if last["data"] else ""
    data += " --unverified-data" if last["unverified_data"] else ""
    if store.path.parent != ReproduceOptions.out:
        data += f" --out {shlex.quote(str(store.path.parent))}"
    known = {claim.name: experiment for claim, experiment in planned}  # searches go on from there
    asked = [
        (claim, known.get(claim.name) or claim.experiment(setting))
        for claim in named(sorted({name for s in alike for name in s["claims"]}))
    ]
    complete = [
        (claim, experiment)
        for claim, experiment in asked
        if claim.name in last["claims"] or not experiment.ahead(store).missing
    ]
    return judge(
        complete,
        store,
        scale=last["scale"],
        environment=environment_of(alike),
        config={
            "scale": last["scale"],
            "store": str(store.path),
            "command": shlex.join(last["command"]),
        },
        command=lambda claim: f"depthmup reproduce {claim.name} --scale {last['scale']}{data}",
    )


def deliver_evidence(
    evidence: Evidence,
    folder: Path,
    *,
    markdown: Path | None,
    export: Collection[str],
    as_json: bool,
    beside: Sequence[Evidence] = (),
) -> None:
    """Write the page and the summary; show the verdicts, or print the summary."""
    summary = json.dumps(pages.evidence_summary(evidence), indent=2, allow_nan=False)
    # Printed first: it stays where the disk is full.
    if as_json:
        print_json(summary)
    else:
        print(pages.evidence_text(evidence))
    with together() as files:
        files.write(folder / "evidence.json", summary + "\n")
        files.write(folder / "evidence.html", pages.evidence_page(evidence))
        if markdown is not None:
            made_by = str(evidence.config["command"])
            text = pages.evidence_markdown(evidence, command=made_by, beside=beside)
            files.write(markdown, text)
        if export:
            pages.export_pictures(evidence, folder / "charts", formats=export, files=files)
    if not as_json:
        print(f"\nThe page: {(folder / 'evidence.html').resolve()}")
