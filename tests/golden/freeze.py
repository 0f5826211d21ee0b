"""Golden files: what the library says, frozen before a redesign, and compared after every step.

    python -m tests.golden.freeze                      # compare everything: `make golden`
    python -m tests.golden.freeze studies fits         # compare these sections
    python -m tests.golden.freeze --write texts        # freeze a section again
    python -m tests.golden.freeze --write studies 'grid: *'     # some of its cases

A section that changes on purpose is frozen again in the commit that changes it, and CHANGELOG.md
names the change with its reason. Sections hold what a person can see through public doors:

    keys        keys and descriptions of runs
    studies     reports of stored sweeps          fits     reports of fitted tables
    texts       the sentences of both
    limits      training at infinite width
    names       public names and signatures, options of the commands
    paper       what the paper's figures compute beside the library
    evidence    the paper's claims and their verdicts
    plans       saved plans of every model of the zoo, refusals included
    plan_texts  their sentences

A number may differ by a part in 1e9, for another processor; everything else is compared exactly.
The stores and tables behind ``studies`` and ``fits`` are made by ``tests.golden.inputs``.
"""

import argparse
import fnmatch
import json
import lzma
import math
import sys
import time
from pathlib import Path

from tests.golden import limits, plans, views

HERE = Path(__file__).parent
SECTIONS = {
    "keys": views.keys,
    "studies": views.studies,
    "fits": views.fits,
    "texts": views.texts,
    "limits": limits.values,
    "names": views.names,
    "paper": limits.of_the_paper,
    "evidence": views.evidence,
    "plans": plans.plans,
    "plan_texts": plans.texts,
}
"""Each gives (case, function of nothing) pairs; a function gives what JSON holds."""

PACKED = ("keys", "studies", "fits", "limits", "paper", "plans", "plan_texts")
MAY_GROW = ("names",)
"""Where something new is no difference."""

SHOWN = 20


def path_of(section):
    return HERE / f"{section}.json{'.xz' if section in PACKED else ''}"


def frozen(section):
    """The golden cases of a section, by name."""
    raw = path_of(section).read_bytes()
    return json.loads(lzma.decompress(raw) if section in PACKED else raw)


def write(section, cases):
    if section in PACKED:
        text = json.dumps(cases, sort_keys=True, separators=(",", ":"))
        path_of(section).write_bytes(lzma.compress(text.encode(), preset=9))
    else:
        text = json.dumps(cases, sort_keys=True, indent=1, ensure_ascii=False)
        path_of(section).write_text(text + "\n", encoding="utf-8")


def plain(value):
    """A value as it comes back from JSON: numbers to 12 digits, those without a value as text."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int) else str(value)


RELATIVE, ABSOLUTE = 1e-4, 1e-7
"""Fits stop when their steps are small, and sum in the order of a processor's units: two kinds of
processor differ by up to 1e-5 and 1e-8, measured over all studies and fits.
"""


def differences(was, now, path=""):
    """Sentences, one for each place where two values differ."""
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in (was, now)]
    if all(numbers):
        if not math.isclose(was, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            yield f"{path}: {was!r} is now {now!r}"
    elif type(was) is not type(now):
        yield f"{path}: {_short(was)} is now {_short(now)}"
    elif isinstance(was, dict):
        for key in sorted({*was, *now}):
            if key not in now:
                yield f"{path}/{key}: gone; was {_short(was[key])}"
            elif key not in was:
                yield f"{path}/{key}: new, {_short(now[key])}"
            else:
                yield from differences(was[key], now[key], f"{path}/{key}")
    elif isinstance(was, list):
        if len(was) != len(now):
            yield f"{path}: {len(was)} entries are now {len(now)}"
        for i, (a, b) in enumerate(zip(was, now, strict=False)):
            yield from differences(a, b, f"{path}/{i}")
    elif was != now:
        yield f"{path}: {_short(was)} is now {_short(now)}"


def _short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 300 else text[:300] + " ..."


def compare(section, chosen=lambda case: True):
    """The differences of a section's chosen cases."""
    was, seen = frozen(section), set()
    for case, view in SECTIONS[section]():
        seen.add(case)
        if not chosen(case):
            continue
        if case not in was:
            yield f"{case}: a new case; freeze it with --write {section} '{case}'"
            continue
        try:
            now = plain(view())
        except Exception as error:  # one case that cannot be read must not hide the others
            yield f"{case}: raises {error!r}"
            continue
        for difference in differences(was[case], now, case):
            if section not in MAY_GROW or ": new, " not in difference:
                yield difference
    yield from (f"{case}: gone" for case in was if case not in seen and chosen(case))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="freeze the section again")
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS) + "; patterns of cases")
    options = parser.parse_args()
    asked = [s for s in options.sections if s in SECTIONS] or list(SECTIONS)
    patterns = [s for s in options.sections if s not in SECTIONS] or ["*"]

    def chosen(case):
        return any(fnmatch.fnmatchcase(case, pattern) for pattern in patterns)

    if options.write and not options.sections:
        parser.error("name the sections to freeze again")
    failed = False
    for section in asked:
        started = time.process_time()
        if options.write:
            old = frozen(section) if path_of(section).exists() else {}
            cases = {c: plain(view()) if chosen(c) else old[c] for c, view in SECTIONS[section]()}
            write(section, cases)
            said = f"{len(cases)} cases, {path_of(section).stat().st_size:,} bytes"
        else:
            found = list(compare(section, chosen))
            failed |= bool(found)
            said = f"{len(found)} differences" if found else "as it was"
            for difference in found[:SHOWN]:
                print(f"  {difference}")
            if len(found) > SHOWN:
                print(f"  and {len(found) - SHOWN} more")
        print(f"{section}: {said}; {time.process_time() - started:.0f} s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
