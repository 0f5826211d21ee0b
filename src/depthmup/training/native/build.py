"""Compiling the kernel for the processor at hand, once per machine.

A compiled extension in a wheel would have to serve the oldest processor that it may meet, or
carry one build for each. The kernel is one C file, and takes a system compiler seconds; so it is
built on first use, for exactly this processor, and kept in the user's cache folder.
"""

import atexit
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from depthmup.records.cache import cache_folder, is_private, is_trusted

SOURCE = Path(__file__).with_name("kernel.c")
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 120.0
"""For the compiler, which takes 3 on an idle machine: one that hangs is given up."""
PATIENCE = 10.0
"""Seconds after which a message says what is being waited for."""
GAVE_UP = "_DEPTHMUP_COMPILER_GAVE_UP"
"""In the environment of the processes that this one starts: why they need not try again."""

TEMPORARY = "_DEPTHMUP_KERNELS"
"""In the same environment: the temporary folder of this process, which removes it at its end."""
MESSAGES = 100_000
"""Characters that are read of what a compiler prints; one that prints on is cut off."""

# No -ffast-math: sums keep their order, and NaN must stay NaN for divergence to be seen. Without
# errno a square root is one instruction. Multiply-adds may be contracted (the GNU default).
FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-fPIC", "-shared")


class BuildError(RuntimeError):
    """The kernel could not be built; the message says why."""


def processor_flags() -> tuple[str, ...]:
    """What tells a compiler to use all of this processor."""
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return ("-mcpu=native",) if arm else ("-march=native",)


def compiler() -> str | None:
    """The path of the system's C compiler, or None: the first of cc, gcc, clang."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def _cache_folder() -> Path:
    try:
        return cache_folder()
    except RuntimeError as error:
        raise BuildError(
            "There is no home folder to keep the compiled kernel in. Set XDG_CACHE_HOME."
        ) from error


def _processor() -> str:
    """All that -march=native may look at: a cache folder may be shared by several machines."""
    listing = Path("/proc/cpuinfo")
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU ")
    if listing.exists():
        lines = listing.read_text(errors="replace").partition("\n\n")[0].splitlines()
        return "\n".join(line for line in lines if line.startswith(wanted))
    return f"{platform.machine()} {platform.processor()}"


def _run(command: Sequence[str]) -> str:
    if reason := os.environ.get(GAVE_UP):
        raise BuildError(reason)
    try:
        # A session of its own: a compiler is a driver of other programs, which end with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"The C compiler {command[0]} could not be run: {error}.") from error
    try:
        out, errors = _waited_for(process, command[0])
    except BaseException:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        first = next((line for line in errors.splitlines() if "error" in line), errors)
        raise BuildError(f"The C compiler {command[0]} failed: {first.strip()[:300]}")
    return out


def _waited_for(process: "subprocess.Popen[str]", name: str) -> tuple[str, str]:
    """What a process printed, at most ``MESSAGES`` characters of each kind."""
    said: dict[IO[str], str] = {}

    def read(pipe: IO[str]) -> None:
        said[pipe] = pipe.read(MESSAGES)
        pipe.close()  # whoever writes on is ended by the system

    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
    readers = [threading.Thread(target=read, args=(pipe,), daemon=True) for pipe in pipes]
    for reader in readers:
        reader.start()
    _wait(process, name)
    for reader in readers:
        reader.join(PATIENCE)  # a compiler's children may hold a pipe open
    out, errors = (said.get(pipe, "") for pipe in pipes)
    return out, errors


def _wait(process: "subprocess.Popen[str]", name: str) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=min(PATIENCE, SECONDS))
        return
    print(
        f"depthmup: waiting for the C compiler {name}, which builds the kernel once per machine; "
        f"the attempt ends after {SECONDS:g} s.",
        file=sys.stderr,
        flush=True,
    )
    try:
        process.wait(timeout=max(0.0, SECONDS - PATIENCE))
    except subprocess.TimeoutExpired:
        reason = f"The C compiler {name} was stopped: it had not ended after {SECONDS:g} s."
        os.environ[GAVE_UP] = reason  # workers would each wait as long
        raise BuildError(reason) from None


def build(*, extra_flags: Sequence[str] = (), folder: Path | None = None) -> Path:
    """The shared library of this machine, built if it is not in the cache yet.

    Its name holds a hash of all that made it and one of its content: a damaged file is rebuilt. It
    is moved into place in one step, so that processes that build it at once disturb nobody. It is
    loaded only where nobody but this user can have put it: the hashes are of public things. Where
    the cache folder is another's, the kernel is built into a temporary folder.
    """
    path = compiler()
    if path is None:
        raise BuildError(f"There is no C compiler: none of {', '.join(COMPILERS)} is on the PATH.")
    version = _run([path, "--version"])
    flags = (*FLAGS, *processor_flags(), *extra_flags)
    source = SOURCE.read_bytes()
    about = repr((source, path, version, flags, _processor())).encode()
    folder = _own_folder(folder or _cache_folder())
    key = hashlib.sha256(about).hexdigest()[:32]
    for library in sorted(folder.glob(f"kernel-{key}-*.so")):
        with suppress(OSError):  # it may be removed meanwhile
            if is_trusted(library) and library == _named(folder, key, library.read_bytes()):
                return library
    try:
        handle, draft = tempfile.mkstemp(prefix=f"kernel-{key}", suffix=".draft", dir=folder)
        os.close(handle)
    except OSError as error:
        raise BuildError(
            f"The cache folder {folder} cannot be written: {error.strerror}. Make it writable, or "
            "set XDG_CACHE_HOME."
        ) from error
    try:
        _run([path, *flags, "-o", draft, str(SOURCE), "-lm"])
        os.chmod(draft, 0o700)  # a linker makes a new file, by the umask
        library = _named(folder, key, Path(draft).read_bytes())
        os.replace(draft, library)
    finally:
        Path(draft).unlink(missing_ok=True)
    return library


def _own_folder(folder: Path) -> Path:
    """The cache folder, made for this user alone; a temporary one where it is another's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            f"The cache folder {folder} cannot be written: {error.strerror}. Make it writable, or "
            "set XDG_CACHE_HOME."
        ) from error
    if is_private(folder):
        return folder
    if (shared := os.environ.get(TEMPORARY)) and is_private(Path(shared)):
        return Path(shared)
    temporary = Path(tempfile.mkdtemp(prefix="depthmup-"))
    os.environ[TEMPORARY] = str(temporary)
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return temporary


def _named(folder: Path, key: str, content: bytes) -> Path:
    return folder / f"kernel-{key}-{hashlib.sha256(content).hexdigest()[:16]}.so"
