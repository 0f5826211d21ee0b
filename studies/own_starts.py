"""What a model's values alone say of its initialization, beside what its initializers drew.

    python -m studies.own_starts            # every model of the zoo: about 12 minutes of a core
    python -m studies.own_starts dit rwkv   # those whose names have one of these words

Each model is planned twice, at 64 x 6 from 16 x 2: once with what its factory drew (``recorded``),
which is exact, and once from its values. A plan from values should say the same law, or refuse.
"""

import collections
import math
import sys

import torch

import depthmup
from depthmup.planning import recorded
from depthmup.tracing import pattern_of
from tests.zoo.architectures import architectures

BASE, TARGET = (16, 2), (64, 6)


def said(make, inputs):
    """The laws from draws, those from values, and the notes of the latter's plan."""
    torch.manual_seed(0)
    (model, drawn), (base, base_drawn) = (recorded(lambda s=s: make(*s)) for s in (TARGET, BASE))
    exact, measured = (
        depthmup.plan(model, base=base, scheme="completep", example_inputs=inputs, drawn=draws)
        for draws in ((drawn, base_drawn), None)
    )
    return exact.own_laws, measured.own_laws, measured.notes


def main(words):
    counts, models = collections.Counter(), 0
    for one in architectures(("plain torch", "by hand", "transformers")):
        if words and not any(word in one.name for word in words):
            continue
        try:
            exact, measured, notes = said(one.make, one.inputs)
        except (ValueError, RuntimeError):  # no plan at all: another benchmark's question
            continue
        models += 1
        for name in exact:
            law = measured.get(name)
            unsure = any(n.startswith(f"{pattern_of(name)} has too few") for n in notes)
            if law is None:
                answer = "of a model that is refused"
            else:
                right = math.isclose(law.ratio, exact[name].ratio, rel_tol=1e-6)
                answer = f"{'right' if right else 'wrong'}{', with a note' if unsure else ''}"
                if not right:
                    print(f"{one.name} {name}: drawn {exact[name]}, measured {law}", flush=True)
            counts[answer] += 1
        print(*(n for n in notes if "initialize would" in n or "too few" in n), sep="\n", end="\n")
    print(f"{models} models, {sum(counts.values())} parameters: {dict(counts)}")


if __name__ == "__main__":
    main(sys.argv[1:])
