"""Names that do not exist, answered with the ones that are meant."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def near(name: str, known: Iterable[str]) -> str:
    """The known name that is meant, as a sentence to append to an error; empty if none is near.

    Example:
        >>> near("weight_decy", ["lr", "weight_decay"])
        " Did you mean 'weight_decay'?"
    """
    match = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {match[0]!r}?" if match else ""


def keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function whose error on an unknown keyword names the near one, on every Python."""
    parameters = signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind is not Parameter.VAR_KEYWORD and p.name != "self"]
    if len(known) < len(parameters) - 1:
        raise TypeError(f"{function.__name__} takes any keyword; it must check them itself.")

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"Expected {function.__name__} with {', '.join(known)}; got {name}."
                    + near(name, known)
                )
        return function(*args, **kwargs)

    return checked


class Meant:
    """A class whose missing attributes are errors that name what to use instead.

    ``MEANT`` has, for names that people try, the expression with the answer.
    """

    __slots__ = ()  # so that a class without a __dict__ stays without one

    MEANT: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # it would have every attribute

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that raised: its own error, again
                return object.__getattribute__(self, name)
            public = [n for n in dir(type(self)) if not n.startswith("_") and n != "MEANT"]
            meant = near(name, public)
            if name in self.MEANT:
                meant = f" Use {self.MEANT[name]}."
            of = type(self).__name__
            raise AttributeError(f"A {of} has no attribute {name!r}.{meant}", name=name, obj=self)
