"""Pins with hashes of everything that is installed: ``make lock``.

    python requirements/lock.py [FOLDER_OR_PAGE ...]

Reads pyproject.toml, constraints.txt and the .in files beside this one, asks the package index for
hashes, and writes:

- locked.txt: what the README's commands install, for every system and Python that is supported;
- torch.txt: PyTorch itself, and cuda.txt: what its build for CUDA needs beside, on Linux;
- build.txt, oracles.txt, tools.txt.

PyTorch has builds without CUDA on an index of its own, of the same version. Their hashes are added
from wheels in the folders, or links in the saved pages of an index, that are named as arguments;
those that were added before stay.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
EXTRAS = ("dev", "hf", "ray")
PYTHON = "3.11"

CUDA = re.compile(r"(nvidia-|cuda-|triton$)")
"""Names of what only PyTorch's build for CUDA needs."""

HEADER = "# Made by `make lock` from {source}; not to be edited.\n"


def compiled(source: Path, *options: str) -> str:
    """A requirements file with hashes, for all systems."""
    command = ["uv", "pip", "compile", str(source), "--universal", "--generate-hashes", "--quiet"]
    command += ["--python-version", PYTHON, "--no-annotate", "--no-header", *options]
    folder = Path(sys.executable).parent
    return subprocess.run(
        [str(folder / "uv"), *command[1:]], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def requirements(text: str) -> dict[str, str]:
    """The requirements of a compiled file, each with its hashes, by name."""
    parts = re.split(r"\n(?=\S)", text.strip())
    return {re.split(r"[=\s\[;]", part, maxsplit=1)[0]: part for part in parts}


def cpu_hashes(version: str, places: Iterable[Path]) -> set[str]:
    """Hashes of PyTorch's builds without CUDA in folders of wheels and in pages of links."""
    hashes = set()
    for place in places:
        if place.is_dir():
            for wheel in place.glob(f"torch-{version}+cpu-*.whl"):
                with wheel.open("rb") as file:
                    hashes.add(hashlib.file_digest(file, "sha256").hexdigest())
        else:
            link = rf"torch-{re.escape(version)}(?:\+|%2B)cpu-[^#\"]*#sha256=([0-9a-f]{{64}})"
            hashes |= {*re.findall(link, place.read_text(encoding="utf-8"))}
    return hashes


def with_hashes(requirement: str, hashes: Iterable[str]) -> str:
    """The requirement with further hashes, each once."""
    first, *known = [line.strip(" \\") for line in requirement.splitlines()]
    lines = dict.fromkeys([*known, *(f"--hash=sha256:{each}" for each in sorted(hashes))])
    return " \\\n    ".join([first, *lines])


def main(arguments: list[str]) -> int:
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    everything = requirements(compiled(ROOT / "pyproject.toml", *extras, "-c", "constraints.txt"))
    [version] = re.findall(r"^torch==([\d.]+)", everything["torch"])
    # Hashes that were found on another machine stay.
    known = HERE / "torch.txt"
    before = requirements(known.read_text()).get("torch", "") if known.exists() else ""
    if before.startswith(f"torch=={version} "):
        everything["torch"] = with_hashes(
            everything["torch"], re.findall(r"sha256:([0-9a-f]{64})", before)
        )
    everything["torch"] = with_hashes(
        everything["torch"], cpu_hashes(version, map(Path, arguments))
    )
    cuda = {name: text for name, text in everything.items() if CUDA.match(name)}
    torch = {"torch": everything["torch"]}
    locked = {n: text for n, text in everything.items() if n not in cuda and n not in torch}
    source = "pyproject.toml and constraints.txt"
    for name, parts in (("locked", locked), ("torch", torch), ("cuda", cuda)):
        text = HEADER.format(source=source) + "\n".join(parts.values()) + "\n"
        (HERE / f"{name}.txt").write_text(text)
    for name in ("build", "tools", "oracles"):
        options = ["--no-deps"] if name == "oracles" else []
        text = compiled(HERE / f"{name}.in", *options)
        (HERE / f"{name}.txt").write_text(HEADER.format(source=f"{name}.in") + text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
