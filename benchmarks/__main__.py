"""Every measurement of speed, one command: ``python -m benchmarks`` (or ``make bench``).

    python -m benchmarks                       # all parts; about ten minutes on two idle cores
    python -m benchmarks --quick               # all parts in a minute or so, noted nowhere
    python -m benchmarks engines --clock cpu   # a part, on a machine that others use too

Install jax beside the library to have it measured too. Tables go to the screen and, dated, to the
end of benchmarks/log.md; charts to benchmarks/charts/.
"""

import argparse
import os
import sys
import time
import traceback
from pathlib import Path

# Before any library starts its threads, here and in the processes to come.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

PARTS = ("engines", "batches", "scaling", "limits", "planning", "command", "imports", "tables")
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="see that everything works")
    parser.add_argument("--rounds", type=int, default=0, help="0: 5, or 1 if quick")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="of engines, batches"
    )
    parser.add_argument("--no-log", action="store_true", help="leave log and charts alone")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"expected parts of {', '.join(PARTS)}; got {', '.join(sorted(unknown))}")
    from depthmup.records import cores, environment
    from depthmup.training import engine_for

    about, engine = environment(), engine_for()
    hardware = f"{about['processor']}, {cores()} cores"
    rounds = options.rounds or (1 if options.quick else 5)
    quiet = options.quick or options.no_log
    lines = [
        f"{hardware}; torch {about['torch']}, depthmup {about['depthmup']}; {engine}; medians of "
        f"{rounds} rounds",
    ]
    print(lines[0], flush=True)
    failed = False
    try:
        for part in options.parts or PARTS:
            start = time.perf_counter()
            print(f"\n{part} ...", flush=True)
            try:
                found = measured(
                    part,
                    rounds=rounds,
                    clock=options.clock,
                    native=engine.name == "native",
                    quick=options.quick,
                    hardware=hardware,
                    charts=None if quiet else HERE / "charts",
                )
            except Exception:  # the other parts' minutes are not to be lost
                traceback.print_exc()
                failed, found = True, ["This part failed."]
            found.append(f"\nThis part took {time.perf_counter() - start:.0f} s.")
            print("\n" + "\n".join(found), flush=True)
            lines += ["", f"### {part}", "", *found]
    finally:
        if not quiet and len(lines) > 1:
            log(lines)
    return int(failed)


def measured(
    part: str,
    *,
    rounds: int,
    clock: str,
    native: bool,
    quick: bool,
    hardware: str,
    charts: Path | None,
) -> list[str]:
    """A part's table; its chart is saved on the way."""
    from benchmarks import batches, command, engines, imports, scaling
    from benchmarks.team import Team
    from depthmup.records import cores

    drawn = None
    if part == "engines":
        result = engines.run(rounds=rounds, clock=clock, cores=cores(), native=native, quick=quick)
        lines = [f"By the {clock} clock.", "", *engines.table(result)]
        if charts:
            from benchmarks.drawings import of_engines

            drawn = of_engines(result, hardware)
    elif part == "scaling":
        rivals = tuple(
            "jax" if "jax" in row else row
            for row in engines.rows(native)
            if row in (engines.FUSED, engines.ONE_EACH)
        )
        costs = scaling.run(rounds=rounds, cores=cores(), native=native, rivals=rivals, quick=quick)
        lines = scaling.table(costs)
        if charts:
            from benchmarks.drawings import of_scaling

            drawn = of_scaling(costs, hardware)
    elif part == "batches":
        if not native:
            return ["The compiled engine does not run here."]
        shares = batches.run(rounds=rounds, clock=clock, cores=cores(), quick=quick)
        lines = [f"By the {clock} clock.", "", *batches.table(shares)]
    elif part == "command":
        lines = command.table(rounds=rounds, cores=cores(), quick=quick)
    elif part == "imports":
        lines = imports.table(rounds)
    elif part == "tables":
        from benchmarks import tables

        lines = tables.table(rounds=rounds, quick=quick)
    else:
        from benchmarks import limits, planning

        with Team(1) as one:  # a process of its own, whose memory is only its own
            if part == "limits":
                (lines,) = one.ask(limits.table, 1 if quick else 3, quick)
            else:
                (lines,) = one.ask(planning.table, quick)
    if drawn is not None and charts is not None:
        from depthmup.reports import save_chart

        charts.mkdir(exist_ok=True)
        file = charts / f"{time.strftime('%Y-%m-%d')}-{part}.svg"
        save_chart(drawn, file)
        lines += ["", f"![{part}](charts/{file.name})"]
    return lines


def log(lines: list[str]) -> None:
    with (HERE / "log.md").open("a", encoding="utf-8") as out:
        out.write(f"\n## {time.strftime('%Y-%m-%d')}: the suite\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
