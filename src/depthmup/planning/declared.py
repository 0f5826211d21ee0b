"""What a person may declare about a model instead of having it found: branches and roles."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch import Tensor, nn

from depthmup.rules import Kind
from depthmup.tracing import filled, inner, matches, named_by, pattern_of, plain_name


class Branch(nn.Sequential):
    """Marks a module whose output is added to a residual stream, in the model's own code.

    Computes like ``nn.Sequential``; without modules it is the identity. It has no parameters of its
    own: checkpoints stay the same.

    Example:
        >>> import torch
        >>> class Block(nn.Module):
        ...     def __init__(self, width):
        ...         super().__init__()
        ...         self.branch = Branch(nn.LayerNorm(width), nn.Linear(width, width))
        ...     def forward(self, x):
        ...         return x + self.branch(x)
        >>> Block(4)(torch.zeros(2, 4)).shape
        torch.Size([2, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        """What the modules in it make of the input; without any a view, a tensor of its own.

        Args:
            input: of the first module.

        Returns:
            The output of the last one.
        """
        output: Tensor = super().forward(input)
        return output.view_as(output) if output is input else output

    def __bool__(self) -> bool:
        # An empty Sequential is false, and ``if self.branch:`` would skip what marks the addition.
        return True


BranchHints: TypeAlias = (
    Mapping[str, Iterable[str]] | Iterable[str] | Callable[[str, nn.Module], bool]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredRole:
    """What a parameter is, where it cannot be found out.

    ``fan_in`` and ``fan_out`` name axes of the parameter; left empty, the axes that grow are taken
    as the kind has them: fan-out for an input matrix or a vector, fan-in for a readout. Those of a
    hidden matrix are the ones that its product shows, or else its first two, (out, in).

    Attributes:
        kind: input, hidden, readout or vector.
    """

    kind: Kind
    fan_in: tuple[int, ...] = ()
    fan_out: tuple[int, ...] = ()


RoleHints: TypeAlias = Mapping[str, "DeclaredRole | Kind | str"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredBranch:
    """One module whose output is added to the stream, and the parameters that belong to it."""

    module: str
    family: str
    parameters: frozenset[str]


def declared_branches(model: nn.Module, hints: BranchHints | None) -> tuple[DeclaredBranch, ...]:
    """The branches that hints name, or the ``Branch`` modules of a model."""
    modules = {plain_name(name): inner(m) for name, m in model.named_modules()}
    chosen: dict[str, tuple[str, list[str]]] = {}  # module -> what repeats, further patterns
    if hints is None:
        for name, module in modules.items():
            if isinstance(module, Branch):
                chosen[name] = (pattern_of(name), [])
    elif callable(hints):
        for name, module in modules.items():
            if name and hints(name, module):
                chosen[name] = (pattern_of(name), [])
    else:
        patterns = (hints,) if isinstance(hints, str) else hints
        more = patterns if isinstance(patterns, Mapping) else dict.fromkeys(patterns, ())
        for pattern, others in more.items():
            others = (others,) if isinstance(others, str) else others
            problem = (
                f"No module matches the branch pattern {pattern!r}. Patterns are names of "
                "modules with * for one segment, e.g. 'layers.*.attention'"
            )
            for name, match in named_by(pattern, modules, problem).items():
                chosen[name] = (pattern, [filled(o, match.groups()) for o in others])
    names = [plain_name(name) for name, _ in model.named_parameters()]
    result = []
    for name, (family, others) in chosen.items():
        inside = [n for n in chosen if n != name and n.startswith(f"{name}.")]
        if inside:
            raise ValueError(
                f"Declared branches may not lie inside one another; got {name} and {inside[0]}. "
                "Declare the module whose output is added to the stream, one per addition."
            )
        owned = {
            n
            for n in names
            if any(
                n == prefix or n.startswith(f"{prefix}.") or matches(prefix, n)
                for prefix in (name, *others)
            )
        }
        for other in others:
            if not any(n == other or n.startswith(f"{other}.") for n in names):
                raise ValueError(
                    f"{other!r}, declared to belong to branch {name}, names no module or parameter "
                    "of this model."
                )
        result.append(DeclaredBranch(module=name, family=family, parameters=frozenset(owned)))
    return tuple(result)


def declared_roles(hints: RoleHints | None, names: Iterable[str]) -> dict[str, DeclaredRole]:
    """The role of each parameter that a pattern names; the first that matches counts."""
    names = list(names)
    roles: dict[str, DeclaredRole] = {}
    for pattern, role in (hints or {}).items():
        problem = (
            f"No parameter matches {pattern!r} of roles. Patterns are names of parameters with "
            "* for one segment, e.g. 'layers.*.mlp.weight'"
        )
        for name in named_by(pattern, names, problem):
            roles.setdefault(name, _role(pattern, role))
    return roles


def _role(pattern: str, role: DeclaredRole | Kind | str) -> DeclaredRole:
    try:
        if isinstance(role, DeclaredRole):
            return replace(role, kind=Kind(role.kind))
        return DeclaredRole(kind=Kind(role))
    except ValueError:
        raise ValueError(
            f"Expected roles[{pattern!r}] to be {', '.join(Kind)}, or a DeclaredRole of such a "
            f"kind; got {role!r}."
        ) from None
