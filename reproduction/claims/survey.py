"""One function measured at many settings: the tasks by key, and their values as arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from depthmup.records import Task
from depthmup.sweep import Store
from reproduction.claims.claim import values_of
from reproduction.runs import Measure

if TYPE_CHECKING:
    from depthmup.statistics import Array

Key = TypeVar("Key")


@dataclass(frozen=True, kw_only=True)
class Survey(Generic[Key]):
    """Tasks of one function, by a key such as (depth, seed).

    Attributes:
        tasks: what is to be computed, by key.
        measures: the jobs that compute it, in the order of the tasks.
    """

    tasks: Mapping[Key, Task]
    measures: tuple[Measure, ...]

    def values(self, store: Store) -> dict[Key, Mapping[str, Any]]:
        """The function's named values by key, of a store that holds all of them."""
        return {key: values_of(store, task) for key, task in self.tasks.items()}

    def array(self, store: Store, name: str) -> "Array":
        """One named value at every key, with an axis for each entry of the keys.

        (depths, seeds) for keys (depth, seed), (runs,) for keys that are runs; the axes of the
        value itself come last. The keys are all combinations of their entries, in order.

        Example:
            >>> from depthmup.records import Measurement
            >>> areas = survey("area", lambda width, height: {"area": width * height},
            ...     {(w, h): {"width": w, "height": h} for w in (1, 2) for h in (3, 4, 5)})
            >>> with Store(":memory:") as store:
            ...     for job in areas.measures:
            ...         values = job.function(**job.task.settings)
            ...         _ = store.add(Measurement(task=job.task, values=values))
            ...     areas.array(store, "area").tolist()
            [[3, 4, 5], [6, 8, 10]]
        """
        import numpy as np

        keys = [key if isinstance(key, tuple) else (key,) for key in self.tasks]
        # The distinct entries, in the order in which they first occur.
        axes = [tuple(dict.fromkeys(entries)) for entries in zip(*keys, strict=True)]
        if list(product(*axes)) != keys:
            raise ValueError(
                f"Expected keys that are all combinations of {' and '.join(map(str, axes))}, in "
                f"this order; got {keys}."
            )
        values = np.array([values_of(store, task)[name] for task in self.tasks.values()])
        return values.reshape(*(len(axis) for axis in axes), *values.shape[1:])


def survey(
    name: str,
    function: Callable[..., Mapping[str, Any]],
    settings_by_key: Mapping[Key, Mapping[str, Any]],
    *,
    work: float | Callable[[Key], float] = 1e9,
    version: int = 1,
) -> Survey[Key]:
    """A survey of a function.

    A result is stored under the task's name, settings and version: to change one of these is to
    measure again. The function stands at the top of a module, as workers get it by reference.
    ``work`` is that of one task, in parameters times training steps.

    Example:
        >>> halves = survey("half", lambda of: {"half": of / 2}, {n: {"of": n} for n in (1, 2)})
        >>> [dict(task.settings) for task in halves.tasks.values()]
        [{'of': 1}, {'of': 2}]
    """
    tasks = {
        key: Task(name=name, settings=settings, version=version)
        for key, settings in settings_by_key.items()
    }
    measures = tuple(
        Measure(task=task, function=function, work=work(key) if callable(work) else work)
        for key, task in tasks.items()
    )
    return Survey(tasks=tasks, measures=measures)
