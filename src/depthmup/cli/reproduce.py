"""``depthmup reproduce``: figures and claims of the paper, with a verdict each."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from depthmup.cli.interrupts import status_of
from depthmup.cli.output import print_json
from depthmup.execution import Execution

if TYPE_CHECKING:
    from depthmup.paper import Setting
    from depthmup.records import Evidence
    from depthmup.sweep import Store


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure figures and claims of Tensor Programs VI again, with a verdict on each.

    Finished runs are stored in OUT/results.sqlite, shared between claims and never repeated: the
    same command resumes. Writes OUT/evidence.html and OUT/evidence.json.
    """

    claims: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of claims, such as fig10 or claim7.1, or all; --list shows them."""

    scale: Literal["laptop", "medium", "paper"] = "laptop"
    """Size of the experiments: laptop (20 minutes for all claims on 2 idle cores), medium
    (minutes to half an hour per claim, hours for transformers), or paper (the paper's sizes)."""

    data: tuple[str, ...] = ()
    """Data instead of the digits: cifar10:FOLDER to train on, mnist:FOLDER for Figures 8 and 9."""

    unverified_data: bool = False
    """Accept files whose checksum is not the official one."""

    out: Path = Path("runs/evidence")
    """Folder for results.sqlite, evidence.html and evidence.json."""

    execution: Annotated[Execution, tyro.conf.OmitArgPrefixes] = field(default_factory=Execution)

    markdown: Path | None = None
    """File for the table of verdicts as Markdown."""

    beside: tuple[Path, ...] = ()
    """Folders of other scales, whose verdicts stand in the Markdown beside these."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()
    """Also write every chart in these formats."""

    list: bool = False
    """List the claims and exit."""

    json: bool = False
    """Print the evidence as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    from depthmup.cli.folders import prepare_file, prepare_folder
    from depthmup.cli.terminal import Display
    from depthmup.paper import CLAIMS, named, plan_claims, reproduce
    from depthmup.records import environment
    from depthmup.sweep import MAIN_STORE, Store
    from depthmup.training import Placement

    if options.list:
        if options.json:
            print_json([{"name": c.name, "title": c.title, "source": c.source} for c in CLAIMS])
            return 0
        for claim in CLAIMS:
            print(f"{claim.name:<10} {claim.title} ({claim.source})")
        return 0
    setting = setting_of(options.scale, options.data, verify=not options.unverified_data)
    claims = named(options.claims)
    planned = plan_claims(claims, setting)
    executor = options.execution.choose()
    placement = Placement(device=options.execution.place)
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
                reproduce(
                    planned,
                    store=store,
                    executor=executor,
                    placement=placement,
                    tell=display.tell,
                    about=about,
                )
        except KeyboardInterrupt as interrupt:
            print(
                f"\nStopped. Finished runs are in {store.path}; the same command continues from "
                "there.",
                file=sys.stderr,
            )
            return status_of(interrupt)
        evidence = load_evidence(store)
    deliver_evidence(
        evidence,
        options.out,
        markdown=options.markdown,
        beside=beside,
        export=options.export,
        json=options.json,
    )
    return 0


def _evidence_in(folder: Path) -> "Evidence":
    """The evidence of another scale, as far as its store has it.

    Raises:
        StoreError: the folder holds none.
    """
    from depthmup.sweep import MAIN_STORE, Store

    with Store(folder / MAIN_STORE, must_exist=True) as store:
        return load_evidence(store)


def setting_of(scale: str, specs: Sequence[str], *, verify: bool = True) -> "Setting":
    """The scale and data sets that the options name.

    Args:
        scale: laptop, medium or paper.
        specs: data sets, such as ``mnist:FOLDER``.
        verify: reject files whose checksum is not the official one.

    Raises:
        ValueError: data are missing, or named twice.
    """
    from depthmup.paper import Scale, Setting
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


def load_evidence(store: "Store") -> "Evidence":
    """The evidence of the last session on a store, without any training.

    It includes all claims that earlier sessions of the same scale and data have finished, so that a
    store has one page.
    """
    from depthmup.paper import judge, named, plan_claims
    from depthmup.sweep.sessions import environment_of

    every = [session for session in store.sessions() if "claims" in session]
    last = every[-1]
    alike = [s for s in every if (s["scale"], s["data"]) == (last["scale"], last["data"])]
    setting = setting_of(last["scale"], last["data"], verify=not last["unverified_data"])
    data = f" --data {shlex.join(last['data'])}" if last["data"] else ""
    data += " --unverified-data" if last["unverified_data"] else ""
    asked = plan_claims(named(sorted({name for s in alike for name in s["claims"]})), setting)
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
    evidence: "Evidence",
    folder: Path,
    *,
    markdown: Path | None,
    export: tuple[str, ...],
    json: bool,
    beside: Sequence["Evidence"] = (),
) -> None:
    """Write the page and the summary; show the verdicts, or print the summary.

    Args:
        evidence: the findings.
        folder: for page, summary and charts.
        markdown: file for the table of verdicts.
        export: formats of further chart files.
        json: print the summary instead of the verdicts.
        beside: findings at other scales, for the table.
    """
    import json as json_format

    from depthmup import reports

    summary = json_format.dumps(reports.evidence_summary(evidence), indent=2, allow_nan=False)
    reports.write_text(folder / "evidence.json", summary + "\n")
    reports.write_text(folder / "evidence.html", reports.evidence_page(evidence))
    if markdown is not None:
        made_by = str(evidence.config["command"])
        reports.write_text(
            markdown, reports.evidence_markdown(evidence, command=made_by, beside=beside)
        )
    if export:
        reports.export_pictures(evidence, folder / "charts", formats=export)
    if json:
        print_json(summary)
        return
    print(reports.evidence_text(evidence))
    print(f"\nThe page: {(folder / 'evidence.html').resolve()}")
