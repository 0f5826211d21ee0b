"""Results that answer a name they lack with the one that is meant."""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar


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
            near = difflib.get_close_matches(name, public, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            if name in self.MEANT:
                meant = f" Use {self.MEANT[name]}."
            of = type(self).__name__
            raise AttributeError(f"A {of} has no attribute {name!r}.{meant}", name=name, obj=self)
