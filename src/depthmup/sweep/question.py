"""Which question a design asks along batch and duration, in words.

The best learning rate for twice the batch depends on what else is held: the steps or the tokens,
the decay, the averages of the optimizer. A design answers all of it, and its report says so.
"""

from collections.abc import Iterable, Iterator, Sequence

from depthmup.records import Tuned
from depthmup.records.study import RUN_AXES
from depthmup.records.text import begin
from depthmup.rules import ONE, Power, RunLaws, family
from depthmup.sweep.design import Design, Variant
from depthmup.sweep.hyperparameters import law_of, ratios_at

_QUANTITIES = {
    "lr": "learning rate",
    "decay": "weight decay",
    "epsilon": "epsilon",
    "one_minus_beta": "1 - beta",
    "log_beta2": "log beta2",
}
_LETTERS = {
    "m_in": "width of the input",
    "m_out": "width of the output",
    "r": "depth",
    "b": "batch",
    "d": "duration in tokens",
}
_USUAL = ("lr", "decay", "epsilon")
"""Of which it is said when they stay."""


def question(design: Design, variants: Sequence[Variant] = ()) -> tuple[str, ...]:
    """What is held and what follows, a sentence each; nothing where batch and duration stay.

    Example:
        >>> design = Design(base={"batch": 32, "tokens": 6400}, batch=(32, 64), schemes="mup",
        ...                 optimizers="adamw", run=("none", "lmo"))
        >>> print(*question(design, design.variants[:1]), sep="\\n")
        As the batch grows, the tokens are held: b times the batch takes 1/b of the steps.
        Learning rate, weight decay, epsilon and betas are the base's for every batch and duration.
        >>> print(question(design)[-1])
        As multiples of the base's: b is the batch and d the tokens.
    """
    varied = {axis for axis in design.base if len({size[axis] for size in design.all_sizes}) > 1}
    if not varied & {*RUN_AXES}:
        return ()
    asked = variants or design.variants
    return (*_held(design, varied), *_laws(asked), *_cut(design, asked))


def tuning(design: Design) -> tuple[str, ...]:
    """What is tuned and what is held instead, a sentence each; nothing of learning rates.

    Example:
        >>> design = Design(base={"depth": 4}, tune="multiplier", lrs=0.0625, values=(0.5, 1, 2),
        ...                 schemes="depth-mup", optimizers="adamw")
        >>> print(*tuning(design), sep="\\n")
        The branch multiplier is tuned. The learning rate is held: 0.0625 at the base.
        Depth-muP moves the branch multiplier by r^-1/2, and the learning rate by its own laws.
        As multiples of the base's: r is the depth.
    """
    what = design.tune
    if design.beside:
        return _together(design)
    if what.is_learning_rate:
        return ()
    rate = f"{2.0 ** design.log2_lrs[0]:.4g}"
    moves = dict.fromkeys(_moved(variant, what) for variant in design.variants)
    return (
        f"{begin(what.the)} is tuned. The learning rate is held: {rate} at the base.",
        *moves,
        *_letters([law_of(what, variant) for variant in design.variants]),
    )


def _together(design: Design) -> tuple[str, ...]:
    """The same of several values."""
    *others, last = (one.the for one in design.tuned)
    told = f"{', '.join(others)} and {last} are tuned together."
    if design.log2_lrs:
        told += f" The learning rate is held: {2.0 ** design.log2_lrs[0]:.4g} at the base."
    (variant, *_) = design.variants
    laws = [(one, law_of(one, variant)) for one in design.tuned]
    moved = [f"{one.the} by {law}" for one, law in laws if law != ONE]
    kept = [one.the for one, law in laws if law == ONE]
    says = f"moves {', '.join(moved)}" if moved else ""
    says += f"{' and ' if moved and kept else ''}" + (f"keeps {', '.join(kept)}" if kept else "")
    return (
        " ".join([begin(told), *_counted(design)]),
        f"{variant.scheme.title} {says} as the size grows, inside branches.",
        *_letters(law for _, law in laws),
    )


def _counted(design: Design) -> Iterator[str]:
    """What is fixed where the batch or the number of steps is tuned."""
    keys = [one.key for one in design.tuned]
    if "batch" in keys and "tokens" in design.base:
        yield "All runs of a size see the same tokens: twice the batch takes half the steps."
    elif "batch" in keys and "steps" not in keys:
        yield "All runs of a size take the same steps: twice the batch sees twice the examples."
    if "steps" in keys:
        yield (
            "Runs of any length compete by their last losses, whatever they cost. Every run is "
            "judged by the same fraction of it at its end."
        )


def _letters(powers: Iterable[Power]) -> Iterator[str]:
    """What the letters of laws stand for."""
    used = {part.partition("^")[0] for power in powers for part in str(power).split()}
    if says := [f"{letter} is the {text}" for letter, text in _LETTERS.items() if letter in used]:
        yield f"As multiples of the base's: {', '.join(says)}."


def _moved(variant: Variant, what: Tuned) -> str:
    """How the law of a variant moves what is tuned with size, inside branches."""
    power = law_of(what, variant)
    by_rule = "" if variant.run is None else f", run by {variant.run.key},"
    law = f"moves {what.the} by {power}, and"
    if power == ONE:
        law = f"keeps {what.the} at every size, and moves"
    return f"{variant.scheme.title}{by_rule} {law} the learning rate by its own laws."


def _held(design: Design, varied: set[str]) -> Iterator[str]:
    if "batch" in varied and "tokens" in design.base:
        yield "As the batch grows, the tokens are held: b times the batch takes 1/b of the steps."
    elif "batch" in varied:
        yield "As the batch grows, the steps are held: b times the batch sees b times the tokens."
    batch = "tuned" if any(one.key == "batch" for one in design.tuned) else "held"
    for axis in ("steps", "tokens"):
        if axis not in varied:
            continue
        constant = design.settings.get("schedule", "constant") == "constant"
        schedule = (
            "the learning rate is constant, so that a longer run begins as a shorter one does"
            if constant and not design.settings.get("warmup")
            else "the schedule is stretched over the run"
        )
        yield (
            f"As the {axis} grow, the batch is {batch} and {schedule}; every run is judged by the "
            "same fraction of it at its end."
        )


def _laws(variants: Sequence[Variant]) -> Iterator[str]:
    """What moves with batch and duration; each law with the variants that follow it, if several."""
    followers: dict[str, list[str]] = {}
    for variant in variants:
        followers.setdefault(_followed(variant), []).append(variant.title)
    for law, titles in followers.items():
        yield law if len(followers) == 1 else f"{', '.join(titles)}: {law[:1].lower()}{law[1:]}"
    if any(variant.run_laws != RunLaws() for variant in variants):
        yield "As multiples of the base's: b is the batch and d the tokens."


def _followed(variant: Variant) -> str:
    laws = variant.run_laws
    if laws == RunLaws():
        return (
            "Learning rate, weight decay, epsilon and betas are the base's for every batch and "
            "duration."
        )
    powers = {name: getattr(laws, name) for name in _QUANTITIES}
    moving = [f"{_QUANTITIES[name]} by {power}" for name, power in powers.items() if power != ONE]
    staying = [_QUANTITIES[name] for name in _USUAL if powers[name] == ONE]
    rule = variant.scheme.title if variant.run is None else variant.run.name
    source = variant.scheme.source if variant.run is None else variant.run.source
    stay = f"; {', '.join(staying)} as at the base" if staying else ""
    averages = {powers["epsilon"], powers["one_minus_beta"], powers["log_beta2"]}
    if family(variant.optimizer).matrices_only and averages != {ONE}:
        stay += (
            ". Epsilon and betas are those of the AdamW beside the optimizer of matrices, whose "
            "momentum stays"
        )
    return f'The run follows "{rule}" ({source}): {", ".join(moving)}{stay}.'


def _cut(design: Design, variants: Iterable[Variant]) -> Iterator[str]:
    """Where a rule asks for averages over less than a step."""
    for variant in variants:
        factors = [
            variant.run_laws.one_minus_beta.at(ratios_at(design, size)) for size in design.all_sizes
        ]
        betas = design.settings.get("betas", (0.9, 0.999))
        if max(factors) * (1 - min(betas)) > 1:
            yield (
                f"{variant.title}: at the largest batch 1 - beta1 would exceed one; beta1 is zero "
                "there."
            )
