"""Known vulnerabilities of everything that is pinned: ``make audit``.

Asks PyPI and OSV by pip-audit. Exits with 1 if a pinned version has a known vulnerability, with 2
if not every package could be asked about: what nobody was asked about has not passed.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILES = ("locked.txt", "torch.txt", "cuda.txt", "build.txt", "tools.txt")
SERVICES = ("pypi", "osv")
SECONDS = 600


def asked(files: list[Path], service: str) -> dict[str, Any]:
    """What a service says of every pin, as pip-audit's JSON; a reason if it does not answer."""
    command = [str(Path(sys.executable).parent / "pip-audit"), "--require-hashes", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", "--vulnerability-service", service]
    for file in files:
        command += ["-r", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"dependencies": [], "reason": str(error)}
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return {"dependencies": [], "reason": last[-300:]}


def main(arguments: list[str]) -> int:
    files = [Path(word) for word in arguments] or [HERE / name for name in FILES]
    if lacking := [str(file) for file in files if not file.is_file()]:
        print(f"Expected files of pins; there is no {', '.join(lacking)}.", file=sys.stderr)
        return 2
    pins = {
        line.split()[0]
        for file in files
        for line in file.read_text().splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }
    answered: set[str] = set()
    vulnerable: dict[str, set[str]] = {}
    for service in SERVICES:
        said = asked(files, service)
        silent = said.get("reason", "")
        for each in said["dependencies"]:
            if "skip_reason" in each:
                silent = silent or str(each["skip_reason"])
                continue
            pin = f"{each['name']}=={each['version']}"
            answered.add(pin.lower())
            for one in each["vulns"]:
                vulnerable.setdefault(pin, set()).add(str(one["id"]))
        if silent:
            print(f"{service} did not answer for every package: {silent}", file=sys.stderr)
    for pin, names in sorted(vulnerable.items()):
        print(f"{pin}: {', '.join(sorted(names))}")
    unasked = sorted(pin for pin in pins if pin.lower() not in answered)
    if unasked:
        print(
            f"{len(unasked)} of {len(pins)} pinned packages could not be asked about, so this is "
            f"no pass: {', '.join(unasked[:5])}{', ...' if len(unasked) > 5 else ''}. Repeat it "
            "where the services can be reached.",
            file=sys.stderr,
        )
    else:
        print(f"{len(pins)} pinned packages, {len(vulnerable)} with known vulnerabilities.")
    return 1 if vulnerable else 2 if unasked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
