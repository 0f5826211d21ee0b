"""From records to certificates: the best learning rate predicted for a size not swept."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from depthmup.records import RUN_AXES, Certificate, Place, Tuned
from depthmup.records.certificate import Lack, Probe, Refusal
from depthmup.statistics import TOLERANCE, Curves, calibrate, optima
from depthmup.statistics.bracket import CLOSE
from depthmup.statistics.runs import Runs
from depthmup.statistics.sharpening import FINEST
from depthmup.sweep.custom import Custom
from depthmup.sweep.design import Design, Size, Variant
from depthmup.sweep.question import question
from depthmup.sweep.store import Store
from depthmup.sweep.study import early_window, runs_of
from depthmup.sweep.sweep import Records, Sweep
from depthmup.sweep.target_probe import Train, probe_target


def certificate(
    sweep: Sweep,
    records: Records,
    variant: Variant,
    target: Size,
    *,
    probe: Probe | None = None,
    tolerance: float = TOLERANCE,
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, object] | None = None,
) -> Certificate:
    """One variant's certificate for a target, judged by the last window of training."""
    late = slice(sweep.design.steps - sweep.design.window, sweep.design.steps)
    asked = question(sweep.design, [variant])
    early = early_window(sweep.design.steps, sweep.design.window)
    runs = runs_of(sweep, records, variant, late)
    before = None if early is None else _early(runs, runs_of(sweep, records, variant, early))
    result = calibrate(
        sizes=runs.sizes,
        curves=runs.fitted,
        early=before,
        target=target,
        base=sweep.design.base,
        chance=runs.chance,
        probe=probe,
        refusals=_too_coarse(runs.fitted, sweep.design.tune) if runs.sought else (),
        tolerance=tolerance,
        about={
            "rate_unit": 1.0,
            "title": variant.title,
            "scheme": variant.name,
            "model": sweep.model.code if isinstance(sweep.model, Custom) else "",
            "tuned": sweep.design.tune,
            "measure": _measure(sweep.design, late),
            # Of the sentences about a sweep those about this variant.
            "config": {
                **(config or {}),
                **({"question": list(asked)} if asked else {}),
            },
            "environment": environment or {},
        },
    )
    # A search ends where sizes do not train, whatever was asked of it: finer rates are no remedy.
    if any(refusal.lack is Lack.FAILED for refusal in result.refusals):
        others = tuple(r for r in result.refusals if r.lack is not Lack.SEARCH)
        return replace(result, refusals=others)
    return result


def _measure(design: Design, late: slice) -> str:
    """What runs are judged by; where they differ in length, by the same fraction of each."""
    if len({design.steps_at(size) for size in design.all_sizes}) == 1:
        return f"mean training loss over steps {late.start} to {late.stop}"
    return f"mean training loss over the last {design.window / design.steps:.0%} of every run"


def _too_coarse(curves: Curves, tuned: Tuned) -> tuple[Refusal, ...]:
    """Why three rates a factor of two apart, which decide a verdict, would hand out a wrong one.

    The lowest point of a lopsided valley lies beside the centre of three points, by up to 0.3
    octaves, and three points do not show it.
    """
    spacing = float(optima(curves).spacing.max())
    if spacing <= FINEST + CLOSE:
        return ()
    return (
        Refusal(
            lack=Lack.SEARCH,
            reason=(
                f"{tuned.begin(tuned.plural)} were found for the verdict, a factor of "
                f"{2.0**spacing:.2g} apart around the optimum: too far to see where in a lopsided "
                "valley the best one lies."
            ),
            advice="Ask for the target with the sweep, --target or transfer(..., target=...).",
        ),
    )


def _early(late: Runs, early: Runs) -> Curves | None:
    """Curves of the early window at the rates and seeds that are fitted in the late one.

    None where rates were looked for in the late window, and the early optimum lies outside of them.
    """
    if not late.sought:
        return early.curves
    grids = [grid[~np.isnan(grid)] for grid in late.fitted.log2_lrs]
    values = []
    for i, grid in enumerate(grids):
        rows = np.isin(np.round(early.curves.log2_lrs[i], 9), np.round(grid, 9))
        seeds = late.fitted.seeds[i]
        values.append(early.curves.losses[i][rows][:, : len(seeds)][:, seeds])
    curves = Curves.of(grids, values)
    places = optima(curves, chance=early.chance).places()
    return curves if set(places) <= {Place.INTERIOR} else None


def certify(
    sweep: Sweep,
    store: Store,
    records: Records,
    target: Size,
    *,
    train: Train | None = None,
    tolerance: float = TOLERANCE,
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, object] | None = None,
) -> tuple[Certificate, ...]:
    """Every variant's certificate, checked by a probe of the target."""
    # Whether a scheme breaks down is a matter of the network: the run of the base shows it, and its
    # losses can be compared with those of the other networks.
    base = sweep.design.base
    network = {axis: base[axis] if axis in RUN_AXES else n for axis, n in target.items()}
    certificates = []
    for variant in sweep.design.variants:
        of = partial(
            certificate,
            sweep,
            records,
            variant,
            tolerance=tolerance,
            config=config,
            environment=environment,
        )
        result = of(target)
        of_network = result if network == target else of(network)
        if result.issued and of_network.issued and network != base:
            # What the probe shows may withdraw the certificate, so it is judged once more with it.
            probe = probe_target(of_network, sweep, variant, store, train)
            result = result if probe is None else of(target, probe=probe)
        certificates.append(result)
    return tuple(certificates)
