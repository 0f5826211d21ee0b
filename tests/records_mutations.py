"""Mutations of JSON files: as a disk, an editor or an enemy may leave them."""

import copy
import json
import random

VALUES = [
    *(None, True, -1, 0, 10**400, 1e308, float("nan"), "", "x", "1e99999999", "1/0", "\x1b[2J"),
    *("Infinity", [], {}, [[]], {"a": 1}, "9" * 5000, [None], "\ud800"),
]


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def changed(document, rng):
    """The document with one value replaced, removed, doubled, or under another name."""
    document = copy.deepcopy(document)
    path = rng.choice([each for each in places(document) if each])
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    how, key = rng.randrange(4), path[-1]
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[str(key) + "x"] = holder.pop(key)
    elif how == 2 and isinstance(holder, list):
        holder += [copy.deepcopy(holder[key])] * rng.choice([1, 100])
    else:
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    return document


def texts(document, count, seed, *, seal=lambda document: document):
    """Mutated texts of a document: of its values, then of its characters.

    ``seal`` puts right what guards the document, such as its checksum, as an enemy would.
    """
    rng = random.Random(seed)
    text = json.dumps(document)
    yield from ("", "[" * 100_000, "{" * 10, "null", "[]", "\x00", "9" * 9999)
    for number in range(count):
        if number % 4:
            yield json.dumps(seal(changed(document, rng)))
        else:
            start = rng.randrange(len(text))
            rest = text[start + rng.choice([0, 1, 50]) :]
            yield text[:start] + rng.choice(["", "\x00", "]", "9", '"']) + rest
