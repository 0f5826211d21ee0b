"""Which ordinary practice breaks transfer, and what mends it?

    python -m studies.practice --out runs/practice                 # all entries; hours
    python -m studies.practice --out runs/practice --optimizers adam --only "clipping by norm 1"
    python -m studies.practice --out runs/practice --table         # of what is there
    python -m studies.practice --out runs/practice --page practice.html

Every entry (``entries.py``) changes one thing of the recipe of a residual network on the digits:
150 steps under Depth-muP with a linear schedule. ``depthmup.transfer`` finds how its best rate
moves along width, 32 to 128, and depth, 4 to 32. Finished entries are not trained again.
"""

import argparse
from pathlib import Path

from studies.practice.entries import ENTRIES
from studies.practice.page import page_of
from studies.practice.sweeps import SEEDS, swept
from studies.practice.table import counts, folder, found_in, line_of, repeats, table


def main() -> None:
    """Measure what is asked for, a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--optimizers", nargs="+", default=["adam", "sgd"])
    parser.add_argument("--only", nargs="+", help="names of entries, or parts of them")
    parser.add_argument("--task", default="digits")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--share", default="0/1", help="i/n: every n-th entry, from the i-th")
    parser.add_argument("--table", action="store_true", help="print what was found")
    parser.add_argument("--page", type=Path, help="write what was found as a page")
    options = parser.parse_args()
    asked = {"first_seed": options.first_seed, "task": options.task}
    if options.table or options.page:
        found = [f for o in options.optimizers for f in found_in(options.out, o, **asked)]
        if options.page:
            page = page_of(found, options.optimizers)
            options.page.write_text(page.html(), encoding="utf-8")
        else:
            other = {**asked, "first_seed": SEEDS}
            again = [f for o in options.optimizers for f in found_in(options.out, o, **other)]
            print(table(found, options.optimizers), counts(found), repeats(found, again), sep="\n")
        return
    this, of = map(int, options.share.split("/"))
    chosen = [e for e in ENTRIES if not options.only or any(o in e.name for o in options.only)]
    for number, entry in enumerate(chosen):
        for optimizer in options.optimizers:
            if number % of != this or (entry.only and optimizer not in entry.only):
                continue
            out = folder(options.out, entry, optimizer, **asked)
            recipe = entry.under(optimizer, options.task)
            report = swept(recipe, optimizer, out=out, first_seed=options.first_seed)
            print(line_of(entry, optimizer, report), flush=True)


if __name__ == "__main__":
    main()
