"""An attack on the whole of it: interruptions, flipped bits, mutated files, bad input, pages.

    python -m studies.attack              # everything; hours on two cores
    python -m studies.attack --slice      # an eightieth of it; what CI runs
    python -m studies.attack bits         # one part
    python -m studies.attack bits --count 500 --seed 1
    python -m studies.attack readers:plans  # one reader

Prints one table of counts, in Markdown, and exits with 1 if anything got through: such outcomes
are in capitals.
"""

import argparse
import importlib
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tests' own models, mutations and browser.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

COUNTS = {
    "interruptions": 200,
    "verbs": 200,
    "cluster": 20,
    "bits": 500,
    "readers": 2000,
    "commands": 340,
    "functions": 1500,
    "pages": 100,
    "soak": 20_000,
    "shared": 100,
}
SLICE = 80


def loud(word: str) -> bool:
    """Whether a word of an outcome says that something got through: in capitals, but no signal."""
    return word.isupper() and len(word) > 2 and not word.startswith("SIG")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studies.attack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(COUNTS)}")
    parser.add_argument("--slice", action="store_true", help="an eightieth of everything")
    parser.add_argument("--count", type=int, default=0, help="of each part, instead of its own")
    parser.add_argument("--seed", type=int, default=0, help="of what is chosen at random")
    options = parser.parse_args()
    if unknown := {part.partition(":")[0] for part in options.parts} - {*COUNTS}:
        parser.error(f"expected parts of {', '.join(COUNTS)}; got {', '.join(sorted(unknown))}")
    broken, here = False, Path.cwd()
    print("| attack | outcome | count |\n| --- | --- | --- |", flush=True)
    for word in options.parts or COUNTS:
        part, _, only = word.partition(":")
        full = options.count or COUNTS[part]
        count = max(1, full // SLICE) if options.slice else full
        attack = importlib.import_module(f"studies.attack.{part}").attack
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            choice = {"only": only} if only else {}
            try:
                outcomes = attack(count, Path(folder), options.seed, **choice)
            except Exception:  # a mistake of the attack's own costs the other parts nothing
                traceback.print_exc()
                outcomes = {"THE ATTACK ITSELF BROKE": 1}
            finally:
                os.chdir(here)  # out of a folder that is removed now
        for outcome, number in sorted(outcomes.items()):
            print(f"| {part} | {outcome} | {number} |", flush=True)
            broken |= any(loud(word) for word in outcome.split())
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
