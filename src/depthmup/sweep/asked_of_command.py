"""What a design asks of a command: every difference between runs has to reach it."""

from depthmup.model import Command, check_names, names_of
from depthmup.rules import SP, Scheme
from depthmup.sweep.design import Design


def check_asked(command: Command, design: Design) -> None:
    """Refuse a design of which a command takes no notice."""
    settings = {*design.settings, *({"betas"} if design.tune.key == "one_minus_beta2" else ())}
    named = [name for names in names_of(settings).values() for name in names]
    check_names(command, [*design.base, *named])
    _need(command, "lr", "the learning rate")
    if design.seeds > 1:
        _need(command, "seed", "the seed: the same run would be repeated")
    tuned_beta2 = design.tune.key == "one_minus_beta2" and "beta2" in command.placeholders
    if not design.tune.is_learning_rate and not tuned_beta2:
        _need(command, design.tune.key, f"{design.tune.the}, which is tuned")
    if any(value != 1.0 for value in design.multipliers):
        _need(command, "multiplier", "the branch multiplier")
    if any(design.weight_decays):
        _need(command, "weight_decay", "the weight decay")
    if len(design.optimizers or ()) > 1:
        _need(command, "optimizer", "the optimizer")
    if any(scheme.name != SP.name for scheme in design.schemes or ()):
        _need(command, "scheme", "the scheme: your script has to apply it")


def usual_scheme(command: Command) -> Scheme:
    """The scheme of a command where none is given: SP, as the script runs as it is."""
    if "scheme" in command.placeholders:
        raise ValueError(
            "Expected schemes for a command that takes {scheme}, such as "
            "Design(..., schemes=('sp', 'completep')) or --schemes sp completep."
        )
    return SP


def _need(command: Command, name: str, what: str) -> None:
    if name not in command.placeholders:
        raise ValueError(
            f"Expected {{{name}}} in the command, by which your script is given {what}; got "
            f"{command.template!r}."
        )
