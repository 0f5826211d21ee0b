"""Text that came from a file or from a person's code, made safe to print.

A terminal obeys control characters: a name in a store could move the cursor, overwrite earlier
lines, or set the window's title. Here they are shown as escapes instead.
"""

from collections.abc import Mapping
from typing import Any

# C0 but tab and newline, DEL, C1; the marks that turn the direction of text; line separators.
_CONTROL = (
    *(code for code in range(0x20) if code not in (0x09, 0x0A)),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_SHOWN = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROL}


def printable(text: str) -> str:
    """The text with control characters and unpaired surrogates shown as escapes."""
    shown = text.translate(_SHOWN)
    # A surrogate without its partner has no UTF-8: printing it would raise.
    return shown if shown.isascii() else shown.encode("utf-8", "backslashreplace").decode("utf-8")


def printable_values(value: Any) -> Any:
    """A JSON value with all of its texts made printable, names of fields included."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(str(k)): printable_values(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [printable_values(item) for item in value]
    return value
