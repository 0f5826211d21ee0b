"""The file formats that MNIST and CIFAR-10 were published in, read without trusting the files.

MNIST is IDX: two zero bytes, a type (8: unsigned byte), the number of dimensions, each dimension as
a big-endian 32-bit integer, then the values. CIFAR-10's binary version is rows of 3073 bytes: a
label, then 1024 red, 1024 green and 1024 blue values. Its Python version is pickles, and a pickle
is a program: it is run here with stand-ins for the three things that such a file may name, none of
which does anything, and refused if it names another.

*Source:* http://yann.lecun.com/exdb/mnist/, https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import gzip
import io
import math
import pickle
import pickletools
import reprlib
import struct
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

UNSIGNED_BYTE = 8
CIFAR_FEATURES = 3 * 32 * 32

# The official files are each below 200 MB; five times that leaves room, and bounds memory.
MOST_BYTES = 2**30
# A batch has fewer than ten; the exact bound does not matter, only that there is one.
MOST_TUPLES = 1000


def contents(path: Path) -> bytes:
    """The bytes of a file, decompressed if its name ends in .gz: at most ``MOST_BYTES``."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            raw = file.read(MOST_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}. Fetch it again.") from error
    if len(raw) > MOST_BYTES:
        raise ValueError(
            f"Expected {path} to unpack to at most {MOST_BYTES} bytes, as the official files do; "
            "it unpacks to more. Fetch it again."
        )
    return raw


def idx(raw: bytes, *, dimensions: int, of: object) -> Bytes:
    """An array of unsigned bytes in IDX format."""
    header = 4 + 4 * dimensions
    expected = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if raw[:4] != expected or len(raw) < header:
        raise ValueError(
            f"Expected {of} to be an IDX file of unsigned bytes in {dimensions} dimensions, "
            f"beginning with {expected.hex()}; it begins with {raw[:4].hex() or 'nothing'} and has "
            f"{len(raw)} bytes. Fetch it again."
        )
    shape = struct.unpack(f">{dimensions}I", raw[4:header])
    size = math.prod(shape)
    if len(raw) != header + size:
        raise ValueError(
            f"Expected {of} to hold {header + size} bytes, as its header says (shape {shape}); got "
            f"{len(raw)}. It is damaged or cut off: fetch it again."
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def cifar_rows(raw: bytes, *, of: object) -> tuple[Bytes, Bytes]:
    """Pixels (examples, 3072) and labels (examples,) of a binary batch."""
    if not raw or len(raw) % (1 + CIFAR_FEATURES):
        raise ValueError(
            f"Expected {of} to be rows of {1 + CIFAR_FEATURES} bytes; got {len(raw)} bytes. It is "
            "damaged or cut off: fetch it again."
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 1 + CIFAR_FEATURES)
    return rows[:, 1:], rows[:, 0]


def cifar_pickle(raw: bytes, *, of: object) -> tuple[Bytes, Bytes]:
    """Pixels (examples, 3072) and labels (examples,) of a batch of the Python version."""

    def refuse(why: object) -> NoReturn:
        raise ValueError(
            f"Expected {of} to be a batch of CIFAR-10's Python version: a pickled dictionary with "
            f"'data', an array of bytes of shape (examples, {CIFAR_FEATURES}), and 'labels'; "
            f"{why}. Fetch it again, or use the binary version."
        )

    try:
        _scan(raw)
        batch = _Restricted(io.BytesIO(raw), encoding="bytes").load()
    # A damaged pickle can fail in any way; nothing but stand-ins was called.
    except Exception as error:
        said = str(error)[:500].encode("unicode_escape").decode()  # it may quote the file
        refuse(f"reading it failed: {said}")
    if not isinstance(batch, dict):
        refuse(f"it holds a {type(batch).__name__}")
    named = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in batch.items()}
    array, labels = named.get("data"), named.get("labels")
    pixels = _pixels(array) if isinstance(array, _Array) else None
    if pixels is None:
        refuse("its 'data' is missing or another kind of array")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        refuse(f"it has no list of {len(pixels)} 'labels'")
    if not all(isinstance(label, int) and 0 <= label < 256 for label in labels):
        refuse("a label is not a whole number below 256")
    return pixels, np.array(labels, np.uint8)


# What pickles of protocols 2 to 4 are made of, where they hold dictionaries, lists and arrays.
_OPCODES = frozenset(
    [
        *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE"),
        *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
        *("BININT", "BININT1", "BININT2", "LONG1"),
        *("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINBYTES", "SHORT_BINBYTES"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"),
        *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
    ]
)


# Results that such files may use twice: names, texts and what calling a stand-in returned.
_SHARED = frozenset(
    [
        *("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINBYTES", "SHORT_BINBYTES", "GLOBAL", "STACK_GLOBAL", "REDUCE"),
    ]
)


def _scan(raw: bytes) -> None:
    """Refuse other opcodes, and pickles that would take unbounded memory or time.

    A high memo index makes the unpickler allocate as much memory. A tuple that is a dictionary's
    key is hashed with all that it holds: deep nesting overflows the stack and kills the process,
    and shared tuples take time exponential in their depth.
    """
    tuples, made_by, remembered = 0, "", dict[int, str]()
    for opcode, argument, _ in pickletools.genops(raw):
        name = opcode.name
        if name not in _OPCODES:
            raise pickle.UnpicklingError(
                f"it contains {name}, which no such file needs: do not trust it"
            )
        if name.endswith("BINPUT") or name == "MEMOIZE":
            number = len(remembered) if argument is None else int(argument)
            if number > len(raw):
                raise pickle.UnpicklingError(f"it remembers an object as number {number}")
            remembered[number] = made_by
            continue
        made_by = name
        if name.endswith("BINGET"):
            made_by = remembered.get(int(argument or 0), "nothing")
            if made_by not in _SHARED:
                raise pickle.UnpicklingError(
                    f"it uses the result of {made_by} twice, which no such file needs: do not "
                    "trust it"
                )
        tuples += "TUPLE" in name
        if tuples > MOST_TUPLES:
            raise pickle.UnpicklingError(f"it contains more than {MOST_TUPLES} tuples")


class _Array:
    """Stands in for numpy's array, dtype and what rebuilds them: keeps all, does nothing."""

    __slots__ = ("arguments", "state")

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Latin1(bytes):
    """Stands in for ``_codecs.encode``, by which Python 3 writes bytes for Python 2."""

    __slots__ = ()

    def __new__(cls, text: str, encoding: str | bytes = "latin1") -> "_Latin1":
        if encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError(f"unexpected encoding {reprlib.repr(encoding)}")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("bytes have no state")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Array,
    ("_codecs", "encode"): _Latin1,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a global of a pickle; nothing of the real module is imported."""
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which no such file needs: do not trust it"
            ) from None


def _pixels(array: _Array) -> Bytes | None:
    """The array that numpy would have rebuilt, if it is one of bytes and of the right shape."""
    # numpy's own state: version, shape, dtype, whether in Fortran order, values.
    match array.state:
        case (int(), (int(examples), int(features)), _Array(arguments=(kind, *_)), order, values):
            pass
        case _:
            return None
    if kind not in ("u1", b"u1") or features != CIFAR_FEATURES or examples < 1:
        return None
    if not isinstance(values, bytes) or len(values) != examples * features:
        return None
    pixels = np.frombuffer(values, np.uint8)
    return pixels.reshape((examples, features), order="F" if order else "C")
