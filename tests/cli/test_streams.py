"""Output that cannot be written: closed by the shell, or on a disk that is full."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = ("--help", "fit --help", "--version", "completion --help", "rules", "rules --json")
FULL = Path("/dev/full")


def run(words, **options):
    command = [sys.executable, "-m", "depthmup", *words.split()]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, **options)
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done


@pytest.mark.skipif(not FULL.exists(), reason="Linux alone has /dev/full.")
@pytest.mark.parametrize("words", WORDS)
def test_a_full_disk_is_said(words):
    with FULL.open("w") as full:
        done = run(words, stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("error: No space left on device.")


@pytest.mark.parametrize("words", WORDS)
def test_a_closed_output_is_no_error(words):
    assert run(words, preexec_fn=lambda: os.close(1)).returncode == 0


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    assert run("fit example --out out", cwd=folder, stdout=subprocess.DEVNULL).returncode == 0
    return folder


def small_disk():
    """No file of the process grows beyond 20 kB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))


@pytest.mark.parametrize("words", ["fit example --out out", "report out", "report out --json"])
def test_the_answer_is_printed_before_anything_is_written(words, fitted):
    before = {path: path.read_bytes() for path in (fitted / "out").iterdir()}
    done = run(words, cwd=fitted, stdout=subprocess.PIPE, preexec_fn=small_disk)
    assert done.returncode == 2
    assert "Use learning rate 0.15 with depth-mup." in done.stdout
    assert "File too large" in done.stderr
    assert {path: path.read_bytes() for path in (fitted / "out").iterdir()} == before


@pytest.mark.parametrize("words", ["fit example --out out", "report out --figure paper"])
def test_the_same_command_gives_the_same_bytes(words, fitted):
    found = []
    for _ in range(2):
        assert run(words, cwd=fitted, stdout=subprocess.DEVNULL).returncode == 0
        files = [path for path in (fitted / "out").rglob("*") if path.is_file()]
        found.append({path: path.read_bytes() for path in files})
    assert found[0] == found[1]


@pytest.mark.parametrize("words", ["fit example --out out", "fit example --out out --json"])
def test_files_are_written_though_the_reader_has_gone(words, tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = run(words, cwd=tmp_path, stdout=write)
    os.close(write)
    assert done.returncode == 141
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.html", "summary.json"} <= written


def test_a_reader_of_both_streams_may_go(tmp_path):
    words = "transfer --preset tiny --out out --steps 20 2>&1 | head -1; exit ${PIPESTATUS[0]}"
    command = f"{sys.executable} -m depthmup {words}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, timeout=240, check=False)
    assert done.returncode in (0, 141)
    assert (tmp_path / "out" / "report.html").exists()
