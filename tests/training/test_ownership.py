"""Whose kernel is loaded: nobody else's, wherever it lies."""

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from depthmup.records.cache import is_private, is_trusted
from depthmup.training.native import build, compiler
from depthmup.training.native.build import TEMPORARY

pytestmark = pytest.mark.usefixtures("compiled_quickly")

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@needs_compiler
def test_the_cache_is_for_this_user_alone(tmp_path):
    folder = tmp_path / "depthmup"
    before = os.umask(0)
    try:
        library = build(folder=folder)
    finally:
        os.umask(before)
    assert library.parent == folder
    assert mode(folder) == 0o700
    assert mode(library) & 0o077 == 0


def test_rights_of_others_in_an_own_folder_are_taken_away(tmp_path):
    tmp_path.chmod(0o755)
    assert is_private(tmp_path)
    assert mode(tmp_path) == 0o700


@pytest.mark.parametrize(("rights", "private"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_folder_that_others_could_replace(tmp_path, rights, private):
    folder = tmp_path / "above" / "depthmup"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(rights)
    assert is_private(folder) is private


@needs_root
@needs_compiler
@pytest.mark.parametrize("whose", ["folder", "file", "above"])
def test_a_planted_kernel_is_not_loaded(tmp_path, planted, whose):
    folder = tmp_path / "above" / "depthmup"
    file = planted(folder)
    os.chown({"folder": folder, "file": file, "above": folder.parent}[whose], NOBODY, NOBODY)
    library = build(folder=folder)
    if whose == "file":  # in a folder of one's own: built anew, in its place
        assert is_trusted(library)
    else:
        assert library.parent not in (folder, *folder.parents)
        assert is_private(library.parent)


DRIVER = """
import subprocess, sys
from depthmup.training.native import build
here = build()
if sys.argv[1:] != ["worker"]:
    done = subprocess.run([sys.executable, "-c", sys.argv[1], "worker"], capture_output=True)
    there = done.stdout.decode()
    print(here, here.exists(), there == f"{here} True\\n", sep="|")
else:
    print(here, here.exists())
    sys.stdout.flush()
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_compiler
def test_where_a_cache_is_not_to_be_trusted_workers_use_their_drivers_kernel(tmp_path):
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    around = {name: value for name, value in os.environ.items() if name != TEMPORARY}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, DRIVER],
        env={**around, "XDG_CACHE_HOME": str(above), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    where, there_was_one, the_same = done.stdout.strip().split("|")
    assert (there_was_one, the_same) == ("True", "True"), done.stderr
    assert not Path(where).parent.exists()
    assert not list(tmp_path.glob("depthmup-*"))


@needs_compiler
@pytest.mark.parametrize("rights", [0o720, 0o702])
def test_a_kernel_that_others_may_write_is_built_anew(tmp_path, planted, rights):
    planted(tmp_path).chmod(rights)
    library = build(folder=tmp_path)
    assert is_trusted(library)
    assert mode(library) & 0o022 == 0


@needs_compiler
def test_a_link_is_no_kernel(tmp_path, planted):
    library = planted(tmp_path)
    elsewhere = tmp_path / "elsewhere.so"
    library.rename(elsewhere)
    library.symlink_to(elsewhere)
    assert not is_trusted(library)
    assert not build(folder=tmp_path).is_symlink()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_compiler_that_hangs_is_given_up_once_and_with_all_its_programs(tmp_path):
    """In this process and those that it starts; a person is told meanwhile."""
    fake = tmp_path / "bin" / "cc"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/child\nwait\n")
    fake.chmod(0o755)
    code = """
        import os, subprocess, sys, time
        from depthmup.training.native import BuildError, build
        module = sys.modules["depthmup.training.native.build"]
        module.PATIENCE, module.SECONDS = 0.2, 1.0
        for _ in range(2):
            try:
                build()
            except BuildError as error:
                print(error)
        again = "from depthmup.training.native import build; build()"
        print(subprocess.run([sys.executable, "-c", again], capture_output=True).stderr.decode())
    """
    environment = {**os.environ, "PATH": f"{fake.parent}:/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=350,  # the compiler's own would be two minutes, three times
    )
    assert done.stdout.count("was stopped: it had not ended after 1 s") == 3
    assert done.stderr.count("waiting for the C compiler") == 1
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"
