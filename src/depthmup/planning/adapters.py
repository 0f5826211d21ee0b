"""Parameters by the names that a plan knows them by, in models that PEFT has wrapped too.

PEFT puts a model into ``base_model.model``, an adapted layer into ``base_layer``, and a module that
is trained whole into ``modules_to_save.NAME``. A plan of the plain model knows none of these.
"""

from torch import nn

from depthmup.planning.content import PlanContent
from depthmup.tracing import parameters, unwrapped

_PREFIX = "base_model.model."


def planned_parameters(plan: PlanContent, model: nn.Module) -> dict[str, nn.Parameter]:
    """The model's parameters under the plan's names; what the plan does not know keeps its own.

    Example:
        >>> from types import SimpleNamespace
        >>> plan = SimpleNamespace(prescriptions=[SimpleNamespace(name="weight")])
        >>> list(planned_parameters(plan, nn.Linear(2, 2)))
        ['weight', 'bias']
    """
    present = parameters(model)
    names = {p.name for p in plan.prescriptions}
    if names <= present.keys() or not _adapted(model):
        return present
    # The copy that is trained comes first: the frozen original has its name otherwise.
    renamed: dict[str, nn.Parameter] = {}
    for name, tensor in sorted(present.items(), key=lambda item: not item[1].requires_grad):
        plain = _without_adapters(name)
        renamed[plain if plain in names and plain not in renamed else name] = tensor
    return renamed


def _adapted(model: nn.Module) -> bool:
    # By the package of their classes, so that PEFT need not be installed.
    return any(type(m).__module__.partition(".")[0] == "peft" for m in unwrapped(model).modules())


def _without_adapters(name: str) -> str:
    """
    Example:
        >>> _without_adapters("base_model.model.layers.0.up.base_layer.weight")
        'layers.0.up.weight'
        >>> _without_adapters("base_model.model.head.modules_to_save.default.weight")
        'head.weight'
    """
    segments = name.removeprefix(_PREFIX).split(".")
    if "modules_to_save" in segments:
        at = segments.index("modules_to_save")
        del segments[at : at + 2]
    return ".".join(s for s in segments if s not in ("base_layer", "original_module"))
