"""Heads that Muon orthogonalizes one by one: what a person says of queries, keys and values."""

from collections.abc import Mapping

from depthmup.planning.anatomy import Anatomy
from depthmup.planning.options import PlanOptions
from depthmup.planning.parameters import ParameterPlace
from depthmup.planning.prescribe import BY_HEADS, served_by
from depthmup.rules import Family
from depthmup.tracing import named_by, pattern_of


def heads_apart(
    compared: Anatomy, options: PlanOptions, family: Family
) -> dict[str, tuple[int, int]]:
    """Rows of one head, in the model and in the base, by parameter."""
    if options.head_rows and family not in BY_HEADS:
        raise ValueError(
            "Expected head_rows with an optimizer whose updates are a multiple of U V^T (muon, "
            f"muon-rms, dion); got the family {family}. Leave head_rows out."
        )
    if options.head_rows and options.tuned_with:
        raise ValueError(
            "Expected head_rows or tuned_with; got both. Convert the base's rate first: "
            "depthmup.rules.converted_lr with the shape of one head."
        )
    places = {place.name: place for place in compared.places}
    heads: dict[str, tuple[int, int]] = {}
    for pattern, rows in options.head_rows.items():
        pair = tuple(rows) if isinstance(rows, tuple | list) else (rows, rows)
        if len(pair) != 2 or not all(isinstance(n, int) and n > 0 for n in pair):
            raise ValueError(
                f"Expected head_rows to be the size of a head, or (the model's, the base's); got "
                f"{rows!r} for {pattern!r}."
            )
        for name in named_by(pattern, places, f"No parameter matches {pattern!r} of head_rows"):
            if served_by(family, places[name]) is not family:
                raise ValueError(
                    f"Expected head_rows of matrices that Muon trains; got {name}, which AdamW "
                    "trains beside it. Leave it out."
                )
            if name in compared.columns_out:
                raise ValueError(
                    f"Expected head_rows of matrices stored as (out, in); got {name}, whose heads "
                    "are columns. Use nn.Linear, or orthogonalize it whole."
                )
            _check(places[name], *pair)
            heads.setdefault(name, pair)
    return heads


def _check(place: ParameterPlace, rows: int, rows_before: int) -> None:
    for given, shape in ((rows, place.shape), (rows_before, place.base_shape)):
        if shape[0] % given:
            raise ValueError(
                f"Expected head_rows to divide the rows of {place.name}; got {given} for "
                f"{list(shape)}. Pass the size of a head: one number, or (model, base)."
            )
    if rows != rows_before and rows * place.base_shape[0] != rows_before * place.shape[0]:
        raise ValueError(
            f"Expected the heads of {place.name} to grow in number or in size; got both, "
            f"{rows_before} of {place.base_shape[0]} rows in the base and {rows} of "
            f"{place.shape[0]} in the model. Use a base whose heads have the model's size."
        )


def heads_note(heads: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """What a plan says of them: its rates are for no other optimizer."""
    if not heads:
        return ()
    names = ", ".join(dict.fromkeys(map(pattern_of, heads)))
    return (
        f"Rates of {names} are for an optimizer that orthogonalizes each head by itself. For whole "
        "matrices leave head_rows out.",
    )
