"""The compiled kernel: other builds of itself, a sanitizer, bad arguments, and abuse."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cells import cell, fuzz

from depthmup.models import ACTIVATIONS
from depthmup.records import Network, Optimizer, Status
from depthmup.training import Weights, engine_for, train, train_group, train_native
from depthmup.training.native import BuildError, build, compiler, library, load, supports
from depthmup.training.native import train as train_module
from depthmup.training.native.build import FLAGS, SOURCE
from depthmup.training.native.library import _attempt
from depthmup.training.native.member import Member

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")

TESTS = str(Path(__file__).parent.parent)
# Single precision rounds to 6e-8; twenty well-conditioned steps must stay far below this.
SAME = 1e-5


def native(cells, **options):
    return {record.cell.key: record for record in train_native(cells, **options)}


def test_every_activation_is_supported():
    for name in ACTIVATIONS:
        assert supports(cell(activation=name)) is None
    assert "'swish'" in supports(cell(activation="swish"))


# ---- builds for other processors, and of other strictness ----

NARROWER = {16: ("-mno-avx512f",), 8: ("-mno-avx512f", "-mno-avx")}


@pytest.mark.parametrize("register_length", [8, 4])
def test_narrower_registers_agree_too(register_length, tmp_path):
    wider = 2 * register_length
    if library().register_length < wider:
        pytest.skip(f"the registers of this processor hold no {wider} floats")
    narrow = load(build(extra_flags=NARROWER[wider], folder=tmp_path))
    assert narrow.register_length == register_length
    for options in ({}, {"activation": "cos", "layer_norm": True}, {"width": 37, "batch_size": 11}):
        each = cell(-6.0, **options)
        result = native([each], library=narrow)[each.key]
        np.testing.assert_allclose(result.losses, train(each).losses, rtol=SAME)


# One per register length, and those for which a compiler's analysis differs (gcc 12 of Debian).
TARGETS = ("native", "x86-64", "x86-64-v3", "x86-64-v4", "icelake-server", "armv8-a")
STRICT = ("-Wall", "-Wextra", "-Wvla", "-Wshadow")
# What the text alone decides. What else a compiler warns of hangs on what its optimizer infers,
# which differs from release to release: it is shown, and fails nobody's tests.
ERRORS = (
    *("implicit-function-declaration", "implicit-int", "incompatible-pointer-types"),
    *("int-conversion", "return-type", "format", "parentheses", "sign-compare", "switch"),
    *("missing-field-initializers", "unused-function", "unused-label", "unused-parameter"),
    *("unused-value", "unused-variable", "shadow", "vla"),
)


# The compilers of Debian 12, which must be silent altogether: what they infer is known.
SILENT = {"gcc": "12", "clang": "14.0.6"}


def compiled(path, folder, *flags, source=SOURCE):
    command = [path, *FLAGS, *flags, "-o", str(folder / "kernel.so"), "-x", "c", str(source), "-lm"]
    return subprocess.run(command, capture_output=True, text=True, errors="replace")


@pytest.mark.sanitize
@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("target", TARGETS)
def test_no_register_length_gives_a_pinned_warning(name, target, tmp_path):
    path, flags = shutil.which(name), (f"-march={target}",)
    if path is None or compiled(path, tmp_path, *flags, source=os.devnull).returncode:
        pytest.skip(f"no {name} here that compiles for {target}")
    strict = (*STRICT, *(f"-Werror={each}" for each in ERRORS))
    done = compiled(path, tmp_path, *flags, *strict)
    assert not done.returncode, done.stderr
    if done.stderr:
        version = subprocess.run([path, "-dumpversion"], capture_output=True, text=True).stdout
        assert SILENT[name] != version.strip(), done.stderr
        warnings.warn(f"{name} -march={target}:\n{done.stderr}", stacklevel=1)


@pytest.mark.sanitize
def test_a_pinned_warning_is_an_error(tmp_path):
    source = tmp_path / "doubtful.c"
    source.write_text(f"{SOURCE.read_text()}\nint f(int n) {{ int unused; return n; }}\n")
    done = compiled(compiler(), tmp_path, *STRICT, "-Werror=unused-variable", source=source)
    assert done.returncode
    assert "unused" in done.stderr


# ---- shapes ----


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long(slice=False))])
def test_fuzzed_shapes_agree_with_double_precision(seed):
    for each in fuzz(40 if seed == 0 else 400, seed):
        result = native([each])[each.key]
        exact = train(each, dtype=torch.float64)
        assert result.status is exact.status, each
        np.testing.assert_allclose(result.losses, exact.losses, rtol=SAME, err_msg=str(each))


UNDER_THE_SANITIZER = """
import sys
from pathlib import Path
from cells import cell, fuzz
from depthmup.training import train_native
from depthmup.training.native import load
from depthmup.training.native.member import Member
kernel = load(Path(sys.argv[1]))
if sys.argv[2] == "beyond":
    state = Member(cell(), kernel.register_length)
    state.struct.depth += 1
    state.advance(kernel, 0, 1, 1e9)
cells = list(fuzz(25, 2))
for each, record in zip(cells, train_native(cells, library=kernel)):
    print(record.cell.key, list(record.losses))
"""


def sanitizer(name):
    """The path of a sanitizer's library, or None."""
    result = subprocess.run(
        [compiler(), f"-print-file-name={name}"], capture_output=True, text=True
    ).stdout.strip()
    return result if os.path.isabs(result) else None


@pytest.fixture(scope="module")
def instrumented(tmp_path_factory):
    """A kernel that stops at the first access out of bounds or undefined operation."""
    if sanitizer("libasan.so") is None:
        pytest.skip("the compiler comes without the address sanitizer")
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
    return build(extra_flags=flags, folder=tmp_path_factory.mktemp("instrumented"))


@pytest.mark.sanitize
@pytest.mark.parametrize("what", ["fuzz", "beyond"])
def test_no_access_out_of_bounds(what, instrumented):
    """Every array is an allocation of its own, so that the sanitizer sees each one's ends."""
    done = subprocess.run(
        [sys.executable, "-c", UNDER_THE_SANITIZER, str(instrumented), what],
        env={
            **os.environ,
            "LD_PRELOAD": str(sanitizer("libasan.so")),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
    )
    if what == "beyond":
        assert done.returncode != 0
        assert "heap-buffer-overflow" in done.stderr
        return
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == 25


# ---- the same bits, whatever happens around ----


def test_the_initial_weights_of_a_seed_are_drawn_once(monkeypatch):
    draws, draw = [], Weights._draw
    monkeypatch.setattr(
        Weights,
        "_draw",
        lambda self, *what: draws.append((self.seed, *what)) or draw(self, *what),
    )
    native([cell(k, seed=s) for k in (-7.0, -6.0) for s in range(2)])
    assert len(draws) == len(set(draws)) == 2 * (cell().network.depth + 2)


def test_the_same_bits_however_often_progress_is_told(monkeypatch):
    each = cell()
    at_once = native([each])[each.key]
    for steps in (1, 3, 1000):
        monkeypatch.setattr(train_module, "steps_per_call", lambda cell, steps=steps: steps)
        assert native([each])[each.key] == at_once


def test_records_come_as_soon_as_they_end_and_progress_grows_to_one():
    cells, fractions = [cell(20.0), cell(-5.0), cell(-6.0)], []
    records = train_native(cells, on_progress=fractions.append)
    assert next(records).status is Status.DIVERGED
    assert not fractions or fractions[-1] < 1 / 3
    assert [record.status for record in records] == [Status.FINISHED] * 2
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_small_numbers_are_flushed_inside_only():
    native([cell()])
    assert np.float32(1e-40) * np.float32(0.5) > 0


# ---- bad arguments ----


class Untouchable:
    """A kernel that must not be called."""

    register_length = 16

    def advance(self, *arguments):
        raise AssertionError("native code was reached")


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (Network, {"width": 0}, "width to be a whole number"),
        (Network, {"depth": -1}, "depth to be a whole number"),
        (Network, {"block_depth": 0}, "block_depth"),
        (Network, {"width": 2.5}, "width to be a whole number"),
        (Network, {"inputs": 63}, "network of 64 inputs"),
        (Network, {"outputs": 9}, "labels below the number of outputs"),
        (Network, {"multiplier": float("nan")}, "multiplier to be a finite"),
        (Network, {"activation": "swish"}, "'swish' is not in the kernel"),
        (Network, {"nonlinearity": "around"}, "'around' is not in the kernel"),
        (Optimizer, {"name": "lion"}, "'lion' is not in the kernel"),
        (Optimizer, {"lr": float("inf")}, "lr to be a finite"),
        (Optimizer, {"epsilon": -1e-8}, "epsilon not to be negative"),
        (Optimizer, {"beta2": 1.0}, "beta2 to be in"),
        (None, {"batch_size": 0}, "batch_size"),
        (None, {"steps": 0}, "steps"),
    ],
)
def test_bad_arguments_raise_before_native_code_runs(part, changes, message):
    bad = cell()
    if part is Network:
        bad = replace(bad, network=replace(bad.network, **changes))
    elif part is Optimizer:
        bad = replace(bad, optimizer=replace(bad.optimizer, **changes))
    else:
        bad = replace(bad, **changes)
    with pytest.raises(ValueError, match=message):
        list(train_native([cell(), bad], library=Untouchable()))
    with pytest.raises(ValueError, match=message):
        Member(bad, 16)


def test_steps_beyond_the_run_are_refused():
    state = Member(cell(steps=5), 16)
    for start, stop in ((-1, 2), (0, 6), (3, 2)):
        with pytest.raises(ValueError, match="steps within 0 to 5"):
            state.advance(Untouchable(), start, stop, 1.0)


# ---- the choice of engine, and what happens without a compiler ----


def test_the_choice_follows_device_cell_and_environment(monkeypatch):
    monkeypatch.delenv("DEPTHMUP_ENGINE", raising=False)
    assert engine_for(cell()).name == "native"
    unsupported = cell(activation="swish")
    assert engine_for(unsupported).name == "stacked"
    assert "swish" in engine_for(unsupported).why
    monkeypatch.setenv("DEPTHMUP_ENGINE", "stacked")
    assert engine_for(cell()).name == "stacked"
    monkeypatch.setenv("DEPTHMUP_ENGINE", "native")
    with pytest.raises(ValueError, match=r"cannot be used: .*swish"):
        engine_for(unsupported)
    monkeypatch.setenv("DEPTHMUP_ENGINE", "fortran")
    with pytest.raises(ValueError, match="native, stacked, reference or unset; got 'fortran'"):
        engine_for(cell())


def test_groups_are_trained_by_the_chosen_engine(monkeypatch):
    cells = [cell(-6.0), cell(-5.0)]
    monkeypatch.delenv("DEPTHMUP_ENGINE", raising=False)
    by_native = {record.cell.key: record for record in train_group(cells)}
    assert by_native == native(cells)
    monkeypatch.setenv("DEPTHMUP_ENGINE", "stacked")
    by_stack = {record.cell.key: record for record in train_group(cells)}
    assert by_stack != by_native
    for key, record in by_stack.items():
        np.testing.assert_allclose(record.losses, by_native[key].losses, rtol=SAME)
    with pytest.raises(ValueError, match=r"may differ in learning rate.*only"):
        list(train_group([cell(), cell(depth=5)]))


TRAIN_ONE = """
from cells import cell
from depthmup.training import engine_for, train_group
print(engine_for(), *(record.status for record in train_group([cell(steps=3)])), sep="|")
"""


def python(code, tmp_path, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={
            **{k: v for k, v in os.environ.items() if k != "DEPTHMUP_ENGINE"},
            "PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]),
            "XDG_CACHE_HOME": str(tmp_path),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process):
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out.strip()


@pytest.fixture
def begun(monkeypatch):
    """What ``TRAIN_ONE`` prints, from here: the kernel is looked for as in a new process."""

    def trained(folder, **environment):
        monkeypatch.delenv("DEPTHMUP_ENGINE", raising=False)
        for name, value in {"XDG_CACHE_HOME": str(folder), **environment}.items():
            monkeypatch.setenv(name, value)
        _attempt.cache_clear()
        statuses = [record.status for record in train_group([cell(steps=3)])]
        return "|".join(map(str, (engine_for(), *statuses)))

    yield trained
    _attempt.cache_clear()


def test_without_a_compiler_the_stacked_engine_is_used(tmp_path, begun):
    out = begun(tmp_path, PATH="")
    assert out.startswith("stacked: There is no C compiler")
    assert out.endswith("|finished")


def test_with_a_broken_compiler_too(tmp_path, begun):
    broken = tmp_path / "bin" / "cc"
    broken.parent.mkdir()
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] || { echo error: no headers >&2; exit 1; }\n'
    )
    broken.chmod(0o755)
    out = begun(tmp_path, PATH=str(broken.parent))
    assert out.startswith("stacked: The C compiler")
    assert "error: no headers" in out
    assert not list(tmp_path.glob("depthmup/*"))


LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))" + TRAIN_ONE
BROKEN = {
    "garbage": "while [ $1 != -o ]; do shift; done; echo garbage > $2",
    "messages without end": "yes error: no headers >&2; exit 1",
}


@pytest.mark.parametrize("how", BROKEN)
def test_with_a_compiler_that_writes_nonsense_too(how, tmp_path, begun):
    broken = tmp_path / "bin" / "cc"
    broken.parent.mkdir()
    broken.write_text(f"#!/bin/sh\n[ $1 = --version ] || {{ {BROKEN[how]}; }}\n")
    broken.chmod(0o755)
    path = os.pathsep.join([str(broken.parent), os.environ["PATH"]])
    endless = how == "messages without end"  # which must not fill the memory
    out = said(python(LIMITED, tmp_path, PATH=path)) if endless else begun(tmp_path, PATH=path)
    assert out.startswith("stacked: The ")
    assert not list(tmp_path.glob("depthmup/*"))


def test_with_a_cache_that_cannot_be_written_too(tmp_path, begun):
    taken = tmp_path / "file"
    taken.touch()
    out = begun(taken)
    assert out.startswith("stacked: The cache folder")


def test_a_damaged_build_is_built_anew(tmp_path, planted, begun):
    built = planted(tmp_path / "depthmup")
    whole = built.read_bytes()
    built.write_bytes(whole[:1000])
    assert begun(tmp_path).startswith("native: ")
    assert built.read_bytes() == whole


def test_a_file_that_is_no_kernel_is_not_loaded(tmp_path):
    other = tmp_path / "other.so"
    other.write_text("not a library")
    with pytest.raises(BuildError, match=r"cannot be loaded.*Delete it"):
        load(other)


def test_two_processes_may_build_at_once(tmp_path, compiled_quickly):
    processes = multiprocessing.get_context("fork")
    both = [processes.Process(target=build, kwargs={"folder": tmp_path}) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    (built,) = tmp_path.iterdir()
    assert load(built).register_length > 0


def test_importing_does_not_compile(tmp_path):
    said(python("import depthmup.training", tmp_path))
    assert not list(tmp_path.iterdir())


def test_without_a_home_folder_the_reason_is_told(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(BuildError, match="Set XDG_CACHE_HOME"):
        build()


def test_a_kernel_that_another_user_built_is_left_alone(monkeypatch, tmp_path, planted):
    theirs = planted(tmp_path)
    read = Path.read_bytes

    def locked(path):
        if path == theirs and not opened:
            opened.append(path)
            raise PermissionError(path)
        return read(path)

    opened = []
    monkeypatch.setattr(Path, "read_bytes", locked)
    assert build(folder=tmp_path).exists()
    assert opened
