"""``depthmup reproduce``: the options; a clone's ``reproduction`` does the work."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from depthmup.cli.clone import reproduction
from depthmup.execution import Execution


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure figures and claims of Tensor Programs VI again, with a verdict on each.

    In a clone of the repository: they are its folder reproduction, not in the installed package.
    Finished runs are stored in OUT/results.sqlite, shared between claims and never repeated: the
    same command resumes. Writes OUT/evidence.html and OUT/evidence.json.

        depthmup reproduce fig10 claim7.1 --out runs/evidence
    """

    claims: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of claims, such as fig10 or claim7.1, or all; --list shows them."""

    scale: Literal["laptop", "medium", "paper"] = "laptop"
    """Size of the experiments: laptop (see --list for what each takes here), medium
    (minutes to half an hour per claim, hours for transformers), or paper (the paper's sizes)."""

    budget: str = ""
    """Runs or time after which no search goes on, such as 500, 30min or 2h; what claims cannot do
    without is run. Searches end by themselves once their verdicts are decided."""

    data: tuple[str, ...] = ()
    """Data instead of the digits: cifar10:FOLDER to train on, mnist:FOLDER for Figures 8 and 9."""

    unverified_data: bool = False

    out: Path = Path("runs/evidence")
    """Folder for results.sqlite, evidence.html and evidence.json."""

    execution: Annotated[Execution, tyro.conf.OmitArgPrefixes] = field(default_factory=Execution)

    markdown: Path | None = None
    """File for the table of verdicts as Markdown."""

    beside: tuple[Path, ...] = ()
    """Folders of other scales, for further columns of verdicts in the Markdown."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()

    list: bool = False
    """List the claims with what each costs here and its verdict in OUT, and exit."""

    json: bool = False
    """Print the evidence as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    status: int = reproduction("command").run(options)
    return status
