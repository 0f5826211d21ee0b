"""Pages of the reference that are generated: the command line, and the public names."""

from pathlib import Path
from types import ModuleType

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
