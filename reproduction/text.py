"""Text as bytes: 256 tokens and no tokenizer, from any machine's own standard library."""

import hashlib
import os
import platform
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

# A terabyte: more than any memory holds, and far more than a step needs.
MOST_BYTES = 2**40
# Characters: more than a run of the small decoders here draws from, and quick to read.
LIMIT = 4_000_000
# Parts of the standard library that are left out: packages that some distributions of Python lack
# (the text would differ between machines), and tables of characters.
_LEFT_OUT = {"distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter"}
_LEFT_OUT |= {"test", "tests", "turtledemo"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """Bytes to ``train`` on, (bytes,) uint8.

    ``source`` says where they come from. ``digest`` is the SHA-256 of the text that they begin:
    results with equal digests saw the same text.
    """

    train: Tensor
    source: str
    digest: str

    def batch(
        self, generator: torch.Generator, batch_size: int, length: int
    ) -> tuple[Tensor, Tensor]:
        """Windows drawn with replacement, and the same windows one byte later.

        Both are (batch_size, length) int64; they depend on the generator and these sizes alone, so
        networks of every size see the same data.

        Example:
            >>> text = standard_library()
            >>> inputs, targets = text.batch(torch.Generator().manual_seed(0), 16, 64)
            >>> inputs.shape, bool((inputs[:, 1:] == targets[:, :-1]).all())
            (torch.Size([16, 64]), True)
        """
        if min(batch_size, length) < 1:
            raise ValueError(
                f"Expected at least one window of one byte; got {batch_size=}, {length=}."
            )
        if batch_size * length > MOST_BYTES:
            raise ValueError(f"Expected a batch of at most {MOST_BYTES:,} bytes; got a larger one.")
        starts = len(self.train) - length
        if starts < 1:
            raise ValueError(
                f"Expected at least {length + 1} bytes, one window of {length} and its next byte; "
                f"{self.source} has {len(self.train)}. Use a shorter window."
            )
        # The last start leaves a byte after its window, the target of the window's last one.
        first = torch.randint(starts, (batch_size, 1), generator=generator)
        windows = self.train[first + torch.arange(length + 1)].long()
        return windows[:, :-1], windows[:, 1:]


def standard_library() -> Text:
    """The source files of the Python that runs this: real text without a download.

    Files are ordered by the SHA-256 of their paths, which mixes subjects; of the first ``LIMIT``
    bytes nine tenths are trained on. Other versions of Python give other text, and another
    ``digest``.

    Example:
        >>> len(standard_library().train)
        3600000
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = list(_modules(root))
    if not paths:
        raise ValueError(
            f"Expected the standard library's source files in {root}; there are none (frozen or "
            "zipped Python). Use another installation of Python."
        )

    def mixed(path: Path) -> str:
        return hashlib.sha256(path.relative_to(root).as_posix().encode()).hexdigest()

    data = _joined(p.read_bytes() for p in sorted(paths, key=mixed))
    # A copy: torch shares a buffer's memory, and bytes must not be written to.
    train = torch.frombuffer(bytearray(data[: len(data) * 9 // 10]), dtype=torch.uint8)
    source = f"the standard library of Python {platform.python_version()}"
    return Text(train=train, source=source, digest=hashlib.sha256(data).hexdigest())


def _modules(root: Path) -> Iterator[Path]:
    """The files of the standard library proper; site-packages lie in the same folder."""
    modules = sys.stdlib_module_names - _LEFT_OUT
    yield from (p for p in root.glob("*.py") if p.stem in modules)
    for package in (p for p in root.iterdir() if p.name in modules and p.is_dir()):
        for folder, subfolders, files in os.walk(package):
            # In place, as os.walk goes on into what is left of the list.
            subfolders[:] = sorted(set(subfolders) - _LEFT_OUT)
            yield from (Path(folder, name) for name in files if name.endswith(".py"))


def _joined(parts: Iterable[bytes]) -> bytes:
    """The first ``LIMIT`` bytes of the parts, without reading further parts than that takes."""

    def until_enough() -> Iterator[bytes]:
        taken = 0
        for part in parts:
            yield part
            taken += len(part)
            if taken >= LIMIT:
                return

    return b"".join(until_enough())[:LIMIT]
