"""Pages of the reference that are generated: the command line, and the public names."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = {
    "depthmup": "the main jobs",
    "depthmup.planning": "plans and what they are made of",
    "depthmup.rules": "the literature's laws as data",
    "depthmup.limits": "infinite width and depth",
    "depthmup.diagnostics": "probes on a live network",
    "depthmup.records": "what work leaves behind: the fields of every record",
    "depthmup.reports": "pages, charts and figures",
}

# A page of the API begins with these.
DOORS = ("plan", "transfer", "check", "fit")


def command_line(path: Path) -> None:
    """Every command: its description, and its options, each with an anchor."""
    from depthmup.cli.help import about, entries
    from depthmup.cli.verbs import VERBS, module_of, overview

    parts = ["# Command line\n", f"```text\n{overview()}\n```\n"]
    for verb in VERBS:
        options = module_of(verb).Options
        paragraphs, examples = about(options)
        parts.append(f"## depthmup {verb}\n\n```{{program}} depthmup {verb}\n```\n")
        parts += [f"{paragraph}\n" for paragraph in paragraphs]
        parts += [f"```text\n{examples}\n```\n"] if examples else []
        group = "Options"
        for title, names, words in entries(options):
            parts += [f"**{title.rstrip('.')}**\n"] if title != group else []
            group = title
            escaped = words.replace("*", chr(92) + "*")
            parts.append(f"```{{option}} {names}\n{escaped}\n```\n")
    _write(path, "\n".join(parts))


def rules(path: Path) -> None:
    """All schemes, rules and optimizers: what ``depthmup rules`` lists."""
    from depthmup.rules import listing

    parts = ["# Schemes, rules and optimizers\n"]
    for title, rows in listing().items():
        lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
        parts.append(f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    _write(path, "\n\n".join(parts) + "\n")


def schemas(path: Path) -> None:
    """Every JSON document with its version and an example, for programs."""
    parts = [_SCHEMAS]
    for title, of, document in _documents():
        text = json.dumps(_shortened(document), indent=2, ensure_ascii=False)
        parts.append(f"## {title}\n\n{of}\n\n```json\n{text}\n```\n")
    _write(path, "\n".join(parts) + "\nNext: [a loop without a person](../how-to/loop.md).\n")


_SCHEMAS = """# JSON for programs

`--json` prints one document on stdout and nothing else; the [exit status](exit-status.md) gives the verdict. `schema` is the
version of a document's layout (`depthmup_plan` for plans). It rises when a field changes its meaning or goes. New fields do
not raise it. [Files](files.md) explains every field.

These examples were printed by the code itself. `...` stands for further entries of a list.
"""

LISTED = 1
"""Entries of a list that an example shows."""


_NAMED: dict[str, Any] = {
    "axes": {"depth": "n_layers"}, "lr": "lr", "loss": "final_loss", "seed": "seed"
}  # fmt: skip


def _documents() -> list[tuple[str, str, dict[str, Any]]]:
    """Of each kind its title, the commands that print it, and one that was made here."""
    import depthmup
    from depthmup import reports
    from depthmup.records.codec import encode, strict, versioned
    from depthmup.tables import example

    certificate = reports.example_certificate()
    summary = reports.summary(reports.example_study(), certificates=[certificate])
    for name in ("config", "environment"):
        summary[name] = {key: summary[name][key] for key in list(summary[name])[:2]}
    table, one = example(), ["scheme == depth-mup"]
    proposal = depthmup.next_runs(table, sizes={"depth": (8, 16, 256)}, where=one, **_NAMED)
    before = depthmup.fit(table, where=[*one, "n_layers < 128"], **_NAMED)
    score = depthmup.score(before.certificate({"depth": 128}), table, where=one, **_NAMED)
    error = {"error": "Expected a table at runs.csv; there is no such file.", "hint": "", "status": 2}
    prints = "Printed by `{}`."
    return [
        ("summary.json", prints.format("transfer`, `report`, `merge` and `fit"), summary),
        ("certificate.json", "Written by `transfer --target` and `fit --target`.", encode(certificate)),
        ("plan", f"{prints.format('plan')} `depthmup.Plan.load` reads it.", json.loads(_plan().to_json())),
        ("check.json", prints.format("check"), versioned(strict(reports.example_check()))),
        ("next", prints.format("next"), versioned({"runs": [*proposal.rows], "why": proposal.why})),
        ("score", prints.format("score"), versioned(strict(score.to_dict()))),
        ("prediction", prints.format("predict"), versioned(strict(reports.example_prediction()))),
        ("error", "Printed by every command that fails.", versioned(error)),
        ("help", "Printed by `COMMAND --help`; `help` alone lists the commands.", versioned(_help())),
    ]


def _help() -> dict[str, Any]:
    from depthmup.cli.help import document_of
    from depthmup.cli.verbs import module_of

    return document_of("next", module_of("next").Options)


def _plan() -> Any:
    """A plan whose numbers are exact: nothing is measured of it."""
    import torch

    import depthmup
    from depthmup.models import ResidualMLP

    def make(width: int, depth: int) -> Any:
        return ResidualMLP(inputs=8, width=width, depth=depth, outputs=4, block_depth=2)

    sizes: dict[str, Any] = {"base": {"width": 64, "depth": 1}, "target": {"width": 256, "depth": 2}}
    inputs = torch.zeros(1, 8)
    return depthmup.plan(make, **sizes, scheme="completep", example_inputs=inputs, proof="off")


def _shortened(value: Any) -> Any:
    """A document whose lists show their first entry, and whose numbers four digits."""
    match value:
        case dict():
            return {key: _shortened(item) for key, item in value.items()}
        case list() | tuple():
            more = ["..."] if len(value) > LISTED else []
            return [*map(_shortened, value[:LISTED]), *more]
        case float():
            return float(f"{value:.4g}")
    return value


def packages(folder: Path) -> None:
    """A page for each package with its public names."""
    from importlib import import_module

    documented: dict[int, str] = {}
    for name, says in PACKAGES.items():
        module = import_module(name)
        title = f"{name}: {says}"
        lines = [title, "=" * len(title), "", f".. currentmodule:: {name}", ""]
        names = _names(module)
        if name == "depthmup":
            lines += [".. autosummary::", "", *(f"   {n}" for n in names if _own(module, n)), ""]
        for public in names:
            value = getattr(module, public)
            if id(value) in documented:
                lines += [f"``{public}`` is :py:obj:`{documented[id(value)]}`.", ""]
                continue
            documented[id(value)] = f"{name}.{public}"
            if isinstance(value, type):
                lines += [f".. autoclass:: {name}.{public}", "   :members:", ""]
            elif callable(value):
                lines += [f".. autofunction:: {name}.{public}", ""]
        _write(folder / f"{name.replace('.', '-')}.rst", "\n".join(lines) + "\n")


def _names(module: ModuleType) -> list[str]:
    """The public names of a package: the doors first, a second name of a class behind its own."""
    public = [name for name in module.__all__ if not name.startswith("__")]
    names = [name for name in public if not isinstance(getattr(module, name), ModuleType)]
    place = {name: place for place, name in enumerate(DOORS)}
    return sorted(names, key=lambda n: (place.get(n, len(DOORS)), not _own(module, n)))


def _own(module: ModuleType, name: str) -> bool:
    """Whether a name is the value's own, not a second one for it in the same package."""
    own = getattr(getattr(module, name), "__name__", name)
    return own == name or own not in module.__all__


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
