"""From records to certificates: the best learning rate predicted for a size not swept."""

from collections.abc import Mapping

from depthmup.records import RUN_AXES, Certificate
from depthmup.records.certificate import Probe
from depthmup.statistics import TOLERANCE, calibrate
from depthmup.sweep.design import Size, Variant
from depthmup.sweep.losses import early_window
from depthmup.sweep.store import Store
from depthmup.sweep.study import losses_over
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
    """One variant's certificate for a target, judged by the last window of training.

    Args:
        sweep: whose runs are done.
        records: of its runs.
        variant: whose learning rate is predicted.
        target: a value for every axis.
        probe: of the target, if one was trained.
        tolerance: octaves per doubling within which an optimum counts as staying.
        config, environment: how it was run, and on what.
    """
    late = slice(sweep.design.steps - sweep.design.window, sweep.design.steps)
    early = early_window(sweep.design.steps, sweep.design.window)
    losses = losses_over(sweep, records, variant, sweep.design.all_sizes, late)
    before = None
    if early is not None:
        before = losses_over(sweep, records, variant, sweep.design.all_sizes, early).values
    return calibrate(
        sizes=losses.sizes,
        log2_lrs=losses.log2_lrs,
        losses=losses.values,
        early=before,
        target=target,
        base=sweep.design.base,
        chance=losses.chance,
        probe=probe,
        tolerance=tolerance,
        about={
            "rate_unit": 1.0,
            "title": variant.title,
            "scheme": variant.name,
            "model": sweep.model.code,
            "measure": f"mean training loss over steps {late.start} to {late.stop}",
            "config": config or {},
            "environment": environment or {},
        },
    )


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
    """Every variant's certificate, checked by a probe of the target.

    Args:
        sweep: whose runs are done.
        store: of its runs and of the probes.
        records: of its runs.
        target: a value for every axis.
        train: trains missing probes; without it, only those in the store are used.
        tolerance: octaves per doubling within which an optimum counts as staying.
        config, environment: how it was run, and on what.
    """
    # Whether a scheme breaks down is a matter of the network: the run of the base shows it, and its
    # losses can be compared with those of the other networks.
    base = sweep.design.base
    network = {axis: base[axis] if axis in RUN_AXES else n for axis, n in target.items()}
    certificates = []
    for variant in sweep.design.variants:

        def of(
            size: Size = target, probe: Probe | None = None, variant: Variant = variant
        ) -> Certificate:
            return certificate(
                sweep,
                records,
                variant,
                size,
                probe=probe,
                tolerance=tolerance,
                config=config,
                environment=environment,
            )

        result = of()
        of_network = result if network == target else of(network)
        if result.issued and of_network.issued and network != sweep.design.base:
            # What the probe shows may withdraw the certificate, so it is judged once more with it.
            probe = probe_target(of_network, sweep.probed(variant), store, train)
            result = result if probe is None else of(probe=probe)
        certificates.append(result)
    return tuple(certificates)
