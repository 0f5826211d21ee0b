"""The file formats that MNIST and CIFAR-10 were published in, read without trusting the files.

MNIST is IDX: two zero bytes, a type (8: unsigned byte), the number of dimensions, each dimension as
a big-endian 32-bit integer, then the values. CIFAR-10's binary version is rows of 3073 bytes: a
label, then 1024 red, 1024 green and 1024 blue values. Its Python version is pickles, and a pickle
is a program: it is not run here. Its constants are read in the order in which they stand.

*Source:* http://yann.lecun.com/exdb/mnist/, https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import gzip
import math
import pickletools
import struct
import zlib
from collections.abc import Iterator
from itertools import dropwhile, islice
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

UNSIGNED_BYTE = 8
CIFAR_FEATURES = 3 * 32 * 32

# The official files are each below 200 MB; five times that leaves room, and bounds memory.
MOST_BYTES = 2**30


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
        constants = _constants(raw)
    except Exception as error:  # a damaged pickle can fail in any way
        said = str(error)[:500].encode("unicode_escape").decode()  # it may quote the file
        refuse(f"reading it failed: {said}")
    pixels = _pixels(_after("data", constants))
    if pixels is None:
        refuse("its 'data' is missing or another kind of array")
    labels: list[int] = []
    for value in _after("labels", constants):
        if not isinstance(value, int):
            break
        labels.append(value)
    if len(labels) != len(pixels):
        refuse(f"it has no list of {len(pixels)} 'labels'")
    if not all(0 <= label < 256 for label in labels):
        refuse("a label is not a whole number below 256")
    return pixels, np.array(labels, np.uint8)


Constant = int | str | None
"""A number, a text or bytes (as the text of their Latin-1), or nothing."""

_CONSTANTS = frozenset(
    [
        *("BININT", "BININT1", "BININT2", "LONG1", "NONE", "NEWTRUE", "NEWFALSE"),
        *("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINBYTES", "SHORT_BINBYTES", "GLOBAL"),
    ]
)
# What makes dictionaries, lists, tuples and arrays of constants.
_STRUCTURE = frozenset(
    [
        *("PROTO", "FRAME", "STOP", "MARK", "REDUCE", "BUILD"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"),
    ]
)
_NAMES = frozenset(
    [
        *("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"),
        *("numpy ndarray", "numpy dtype", "_codecs encode"),
    ]
)
_ENCODING = ("_codecs encode", "latin1")
"""By which Python 3 writes bytes for Python 2."""


def _constants(raw: bytes) -> list[Constant]:
    """A pickle's constants in order; refuses one that names what no such file needs."""
    constants: list[Constant] = []
    remembered: dict[object, Constant] = {}
    made: Constant = None  # by the last opcode
    for opcode, argument, _ in pickletools.genops(raw):
        name = opcode.name
        if name.endswith("BINPUT") or name == "MEMOIZE":
            remembered[len(remembered) if argument is None else argument] = made
            continue
        if name in _STRUCTURE:
            made = None
            continue
        if name in _CONSTANTS:
            made = name == "NEWTRUE" if name.startswith("NEW") else argument
        elif name.endswith("BINGET"):
            made = remembered.get(argument)
        elif name == "STACK_GLOBAL":
            made = " ".join(map(str, constants[-2:]))
            del constants[-2:]
        else:
            raise ValueError(f"it contains {name}, which no such file needs: do not trust it")
        if name.endswith("GLOBAL") and made not in _NAMES:
            raise ValueError(f"it asks for {made}, which no such file needs: do not trust it")
        made = made.decode("latin1") if isinstance(made, bytes) else made
        if made not in _ENCODING:
            constants.append(made)
    return constants


def _after(key: str, constants: list[Constant]) -> Iterator[Constant]:
    """The constants behind the first that is this text."""
    return islice(dropwhile(lambda value: value != key, constants), 1, None)


def _pixels(constants: Iterator[Constant]) -> Bytes | None:
    """The array that numpy would have rebuilt, if it is one of bytes and of the right shape."""
    # numpy's own state: version, shape, dtype, whether in Fortran order, values.
    match list(islice(constants, 21)):
        case (
            str(), "numpy ndarray", 0, "b", 1, int(examples), int(features),
            "numpy dtype", "u1", 0, 1, 3, "|", None, None, None, -1, -1, 0,
            bool(fortran), str(values),
        ) if features == CIFAR_FEATURES and examples >= 1:  # fmt: skip
            pass
        case _:
            return None
    if len(values) != examples * features:
        return None
    pixels = np.frombuffer(values.encode("latin1"), np.uint8)
    return pixels.reshape((examples, features), order="F" if fortran else "C")
