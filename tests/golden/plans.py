"""Saved plans of every model of the zoo, under every scheme and optimizer here."""

import json
import re
import tempfile
from functools import cache
from pathlib import Path

import torch

import depthmup
from depthmup import tracing
from depthmup.planning import recorded
from depthmup.tracing import plain_name
from tests.golden.views import facts, sentences

SCHEMES = ("depth-mup", "completep", "mup", "sp")
OPTIMIZERS = ("adamw", "sgd", "muon")
BASE, TARGET = (16, 2), (64, 6)
# What a model's weights happen to be, where they have memory: of the processor that drew them.
_DRAWN = ("base_init", "base_default", "model_init", "proof")
# What a plan has beside what was frozen, where it is nothing.
_LATER = {"tuned_with": "", "converted": 1.0, "narrows": False, "times": 1}


@cache
def models():
    """The zoo, wherever its table stands: what makes a model of a size, and its inputs, by name."""
    from tests.zoo.architectures import architectures

    packages = ("plain torch", "by hand", "transformers")
    return {f"{a.package}: {a.name}": (a.make, a.inputs) for a in architectures(packages)}


def _built(make, device):
    torch.manual_seed(0)
    with torch.device(device):
        (model, drawn), (base, base_drawn) = (
            recorded(lambda size=size: make(*size)) for size in (TARGET, BASE)
        )
    return model, base, (drawn, base_drawn)


def _read(model, base, inputs, drawn):
    """What both models are, read once for all plans, which takes a tenth of the time."""
    read = []
    for one, draws in zip((model, base), drawn, strict=True):
        constants = {name: d.constant for name, d in draws.items() if d.constant is not None}
        read.append(tracing.read(one, inputs, {plain_name(n): c for n, c in constants.items()}))
    return {"options": depthmup.PlanOptions(facts=tuple(read))}


def _document(plan):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        plan.save(path)
        return json.loads(path.read_text(encoding="utf-8"))["plan"]


def _without_later(entry):
    later = {"ratios"} if "where" in entry else ()  # of multipliers
    return {
        k: _without_later(v) if k == "role" else v
        for k, v in entry.items()
        if k not in later and (k not in _LATER or v != _LATER[k])
    }


def _layers(entries):
    """Entries that differ in the numbers of their layers alone, once, with a count."""
    counts = {}
    for entry in entries:
        entry = _without_later(entry)
        text = re.sub(r"(?<=[.\"/])\d+(?=[.\"/])", "*", json.dumps(entry, sort_keys=True))
        counts[text] = counts.get(text, 0) + 1
    return [{"entries": count, **json.loads(text)} for text, count in counts.items()]


def _compact(document):
    return {
        field: _layers(value) if isinstance(value, list) and value and isinstance(value[0], dict)
        else value
        for field, value in _without_later(document).items() if field not in _DRAWN
    }  # fmt: skip


def _refusal(error):
    first = str(error).splitlines()[0]
    return {
        "refused": type(error).__name__,
        "names": re.findall(r"\w+(?:\.\w+)+", first),
        "sentence": first,
    }


@cache
def _plans(name):
    """By scheme and optimizer, as JSON text: without sentences, and the sentences."""
    make, inputs = models()[name]
    said = {}
    for device in ("meta", "cpu"):
        try:
            model, base, drawn = _built(make, device)
            read = _read(model, base, inputs, drawn)
        except Exception as error:  # a model whose code depends on values needs memory
            said = {"built": {**_refusal(error), "on": device}}
            continue
        said = {}
        for scheme in SCHEMES:
            for optimizer in OPTIMIZERS:
                try:
                    with torch.device(device):
                        plan = depthmup.plan(
                            model, base=base, scheme=scheme, optimizer=optimizer,
                            example_inputs=inputs, drawn=drawn, **read,
                        )  # fmt: skip
                    said[f"{scheme} {optimizer}"] = _compact(_document(plan))
                except Exception as error:  # a refusal is an answer like any other
                    said[f"{scheme} {optimizer}"] = _refusal(error)
        break
    return json.dumps(facts(said)), json.dumps(sentences(said))


def plans():
    for name in models():
        yield name, lambda n=name: json.loads(_plans(n)[0])


def texts():
    for name in models():
        yield name, lambda n=name: json.loads(_plans(n)[1])
