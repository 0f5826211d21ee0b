"""A fingerprint changes when code of the person's own does, and only then."""

import linecache
import os
import runpy
import subprocess
import sys
from itertools import count

import pytest
import torch
from torch.nn import functional as F
from work import calls

from depthmup.model import Model, find_function, resolved
from depthmup.model.fingerprint import fingerprint

END = """
from depthmup.model.fingerprint import fingerprint
CODE = fingerprint(GIVEN)
"""
MINE = ("mynet", "inner", "pack")


@pytest.fixture
def code(tmp_path, monkeypatch):
    """The fingerprint of what a script gives, run beside other files."""
    number = count()

    def code(script, given="[make]", **beside):
        folder = tmp_path / f"run{next(number)}"
        for name, text in {"script": f"{script}\nGIVEN = {given}\n{END}", **beside}.items():
            path = folder / (name.replace("_in_", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        with monkeypatch.context() as here:
            here.chdir(folder)
            here.syspath_prepend(str(folder))
            for name in [n for n in sys.modules if n.partition(".")[0] in MINE]:
                here.delitem(sys.modules, name)
            result = runpy.run_path(str(folder / "script.py"), run_name="__main__")["CODE"]
            for name in [n for n in sys.modules if n.partition(".")[0] in MINE]:
                del sys.modules[name]
        return result

    return code


class TestFilesThatAScriptImports:
    """Their content counts, in whatever way the script's functions come by it."""

    @pytest.mark.parametrize(
        "script",
        [
            "from mynet import Net\ndef make(w, d): return Net(w)",
            "from mynet import build\ndef make(w, d): return build(w)",
            "import mynet\ndef make(w, d): return mynet.Net(w)",
            "import mynet as m\ndef make(w, d): return m.Net(w)",
            "def make(w, d):\n    from mynet import Net\n    return Net(w)",
            "def make(w, d):\n    import mynet\n    return mynet.Net(w)",
            "from mynet import Net\nclass Mine(Net): pass\ndef make(w, d): return Mine(w)",
            "from mynet import Net\nKINDS = {'net': [Net]}\ndef make(w, d): return KINDS['net']",
            "from mynet import Net\ndef make(w, d, kind=Net): return kind(w)",
            "from mynet import Net\nNET = Net(1)\ndef make(w, d): return NET",
            "from mynet import build as make",
        ],
    )
    def test_whatever_the_way(self, code, script):
        net = "from inner import SCALE\nclass Net:\n    def __init__(self, w): self.w = w\n"
        net += "def build(w): return Net(w)\n"
        first = code(script, mynet=net, inner="SCALE = 1")
        assert code(script, mynet="# mine\n" + net, inner="SCALE = 1") == first
        assert code(script, mynet=net.replace("w = w", "w = 2 * w"), inner="SCALE = 1") != first
        assert code(script, mynet=net, inner="SCALE = 2") != first

    def test_modules_in_packages(self, code):
        script = "import pack.part\ndef make(w, d): return pack.part.build(w)"
        init = {"pack_in___init__": "", "pack_in_part": "def build(w): return w"}
        first = code(script, **init)
        assert code(script, **init) == first
        assert code(script, **{**init, "pack_in_part": "def build(w): return 2 * w"}) != first
        del init["pack_in___init__"]  # a folder is a package too
        first = code(script, **init)
        assert code(script, **{**init, "pack_in_part": "def build(w): return 2 * w"}) != first

    def test_files_elsewhere_that_are_not_installed(self, code):
        """As for a package under development, of which Python knows the folder."""
        script = "import sys\nsys.path.insert(1, 'src')\nfrom mynet import make"
        other = {"mynet": "from pack.part import SCALE\ndef make(w, d): return SCALE"}
        first = code(script, **other, src_in_pack_in_part="SCALE = 1")
        assert code(script, **other, src_in_pack_in_part="SCALE = 2") != first

    def test_folders_that_are_links_of_another_name(self, code, tmp_path):
        script = "import sys\nsys.path.insert(1, '../links')\n"
        script += "import pack.part\ndef make(w, d): return pack.part.build(w)"
        real, links = tmp_path / "pack-2", tmp_path / "links"
        for folder in (real, links):
            folder.mkdir()
        (links / "pack").symlink_to(real)
        (real / "__init__.py").touch()
        codes = []
        for scale in (1, 1, 23):
            (real / "inner.py").write_text(f"SCALE = {scale}")
            (real / "part.py").write_text("from pack.inner import SCALE\ndef build(w): ...\n")
            codes.append(code(script))
        assert codes[0] == codes[1] != codes[2]


class TestFunctionsOfOneName:
    def test_nameless_ones(self, code):
        script = "make = lambda w, d: w\nbatch = lambda g: g"
        first = code(script, given="[make, batch]")
        assert code("x = 1\n\n" + script, given="[make, batch]") == first
        for other in (script.replace("g: g", "g: 2 * g"), script.replace("d: w", "d: d")):
            assert code(other, given="[make, batch]") != first

    def test_nameless_ones_of_many_lines(self, code):
        script = "GIVEN = dict(\n    make=lambda w, d: w +\n        d,\n)"
        given = "GIVEN.values()"
        assert code(script, given=given) != code(script.replace("  d,", "  2,"), given=given)

    def test_inner_ones(self, code):
        script = (
            "def outer(x):\n    def inner(w, d): return w * x\n    return inner\n"
            "def other(x):\n    def inner(w, d): return w + x\n    return inner\n"
            "make, batch = outer(2), outer(3)"
        )
        given = "[make, batch]"
        codes = [code(script, given)]
        codes += [code(script.replace("outer(3)", "outer(4)"), given)]
        codes += [code(script.replace("outer(3)", "other(3)"), given)]
        assert len({*codes}) == 3

    def test_which_function_of_a_file_is_given(self, tmp_path):
        path = tmp_path / "two_own.py"
        path.write_text("def make(w, d): ...\ndef one(g): return 1\ndef two(g): return 2\n")
        first = Model(make=f"{path}:make", batch=f"{path}:one").code
        assert Model(make=f"{path}:make", batch=f"{path}:two").code != first
        assert Model(make=f"{path}:make", batch=f"{path}:one").code == first

    def test_files_of_one_name(self, tmp_path):
        def code():
            places = [f"{tmp_path}/{name}/main_own.py" for name in "ab"]
            return Model(make=f"{places[0]}:make", batch=f"{places[1]}:batch").code

        for name in "ab":
            (tmp_path / name).mkdir()
            (tmp_path / name / "main_own.py").write_text("def make(w, d): ...\ndef batch(g): ...\n")
        result = [code()]
        for name in "ab":
            with (tmp_path / name / "main_own.py").open("a") as file:
                file.write("SCALE = 2\n")
            resolved.cache_clear()
            result.append(code())
        assert len({*result}) == 3

    def test_files_of_one_name_that_change_places(self, tmp_path):
        for name in "ab":
            (tmp_path / name).mkdir()
            text = f"def make(w, d): return {name!r}\ndef batch(g): return {name!r}\n"
            (tmp_path / name / "main_own.py").write_text(text)
        places = [f"{tmp_path}/{name}/main_own.py" for name in "ab"]
        first = Model(make=f"{places[0]}:make", batch=f"{places[1]}:batch").code
        assert Model(make=f"{places[1]}:make", batch=f"{places[0]}:batch").code != first


class TestValues:
    @pytest.mark.parametrize(
        "script",
        [
            "CONFIG = {'heads': 4}\ndef make(w, d): return CONFIG['heads']",
            "defaults = {'heads': 4}\ndef make(w, d): return defaults",
            "HEADS = [1, [4]]\ndef make(w, d): return HEADS",
            "HEADS = 4\ndef make(w, d, heads=HEADS): return heads",
            "HEADS = 4\ndef make(w, d, *, heads=HEADS): return heads",
            "HEADS = {4, 'a', 'b', 'c'}\ndef make(w, d): return HEADS",
            "import torch\nTYPE = torch.float64\ndef make(w, d): return TYPE",
            "from torch.nn.functional import gelu as act\ndef make(w, d): return act",
            "from torch import nn\nACT = {'a': nn.GELU}\ndef make(w, d): return ACT",
            "from fractions import Fraction\nA = Fraction(1, 4)\ndef make(w, d): return A",
            "HEADS = 4\nclass Cfg:\n    heads = HEADS\ndef make(w, d): return Cfg.heads",
            "from dataclasses import dataclass\n@dataclass\nclass Cfg:\n    heads: int\n"
            "CFG = Cfg(4)\ndef make(w, d): return CFG.heads",
        ],
    )
    def test_that_a_function_uses(self, code, script):
        other = script.replace("64", "32").replace("4", "8")
        other = other.replace("gelu", "relu").replace("GELU", "ReLU")
        assert code(script) == code(script) != code(other)

    def test_behind_decorators(self, code):
        script = (
            "from functools import wraps, lru_cache\nHEADS, TIMES = 4, 1\ndef deco(f):\n"
            "    @wraps(f)\n    def inner(*a): return [f(*a)] * TIMES\n    return inner\n"
            "@deco\ndef make(w, d): return HEADS\n"
            "@lru_cache\ndef batch(g): return HEADS + 1"
        )
        changes = ("4, 1", "8, 1"), ("4, 1", "4, 2"), ("(*a)]", "()]")
        codes = {code(script), *(code(script.replace(*change)) for change in changes)}
        assert len(codes) == 4
        assert code(script, "[batch]") != code(script.replace("4, 1", "8, 1"), "[batch]")

    def test_are_told_alike_in_every_run(self, tmp_path):
        """An object's address and the order of a set would have all trained anew."""
        script = (
            "from functools import cached_property\nfrom enum import Enum\n"
            "class Odd:\n    def __repr__(self): return str(id(self))\n"
            "    @cached_property\n    def x(self): return 1\n"
            "class Act(Enum):\n    A = 1\n"
            "THINGS = (object(), {'a': [object()]}, lambda: 1, {*'abcdef'}, Odd(), Act.A)\n"
            "LOOP = []\nLOOP.append(LOOP)\n"
            "def make(w, d): return THINGS, LOOP, Odd, Act, d in {'a', 'b', 'c'}\n"
            f"GIVEN = [make]{END}print(CODE)"
        )
        (tmp_path / "script.py").write_text(script)
        here = runpy.run_path(str(tmp_path / "script.py"), run_name="__main__")["CODE"]
        # Six letters have another order there than here, for 719 of 720 seeds of this process.
        there = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": "1"}, check=True,
        ).stdout  # fmt: skip
        assert there == f"{here}\n"


class TestClasses:
    HEAD = (
        "from dataclasses import dataclass, field\nfrom enum import Enum\n"
        "from functools import cached_property\nfrom typing import NamedTuple\nHEADS = 4\n"
    )

    @pytest.mark.parametrize(
        ("made", "before", "after"),
        [
            ("@dataclass\nclass Cfg:\n    w: int = 1", "= 1", "= 2"),
            ("@dataclass(frozen=True, order=True)\nclass Cfg:\n    w: int = 1", "= 1", "= 2"),
            ("@dataclass\nclass Cfg:\n    w: list = field(default_factory=list)", "=list", "=dict"),
            ("class Cfg(NamedTuple):\n    w: int = 1", "= 1", "= 2"),
            ("class Cfg(Enum):\n    W = 1", "= 1", "= 2"),
            ("class Cfg:\n    @cached_property\n    def w(self): return HEADS", "S = 4", "S = 5"),
            ("class Cfg:\n    @property\n    def w(self): return HEADS", "S = 4", "S = 5"),
            ("class Cfg:\n    @classmethod\n    def w(cls): return HEADS", "S = 4", "S = 5"),
            ("class Cfg:\n    @staticmethod\n    def w(): return HEADS", "S = 4", "S = 5"),
        ],
    )
    def test_of_a_script(self, code, made, before, after):
        script = f"{self.HEAD}{made}\ndef make(w, d): return Cfg"
        assert code(script) == code(script) != code(script.replace(before, after))

    @pytest.mark.parametrize(
        "made",
        [
            "@dataclass\nclass Cfg:\n    w: int = 1\n",
            "class Cfg(NamedTuple):\n    w: int = 1\n",
            "class Cfg(Enum):\n    W = 1\n",
            "class Cfg:\n    def w(self): return 1\n",
        ],
    )
    def test_of_a_notebook(self, made):
        """Whose cells are no files, and known to Python's ``linecache`` alone."""

        def code(text):
            name, space = f"<cell {hash(text)}>", {"__name__": "__main__"}
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            exec(compile(text, name, "exec"), space)
            return fingerprint([space["make"]])

        text = f"{self.HEAD}{made}def make(w, d): return Cfg\n"
        assert code(text) == code(text) != code(text.replace("1\n", "2\n"))

    @pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda", 0)])
    def test_does_not_depend_on_a_notebooks_device(self, device):
        """``device = "cuda" if torch.cuda.is_available() else "cpu"`` is no part of a run."""

        def code(**names):
            name, text = "<a cell>", "def make(w, d): return nn.Linear(w, w).to(device, kind)\n"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            space = {"__name__": "__main__", "nn": torch.nn, "kind": "a", **names}
            exec(compile(text, name, "exec"), space)
            return fingerprint([space["make"]])

        cpu = torch.device("cpu") if isinstance(device, torch.device) else "cpu"
        assert code(device=device) == code(device=cpu) != code(device=cpu, kind="b")


class TestLibraries:
    def test_are_known_by_name_and_version(self, monkeypatch, tmp_path):
        first, count = calls(lambda: fingerprint([F.mse_loss, F.mse_loss]))
        assert count < 3_000_000  # 0.7 million; reading all of torch takes a hundred
        assert fingerprint([F.mse_loss, F.mse_loss]) == first
        losses = (F.l1_loss, torch.dist, F.max_pool1d, F.max_pool2d, F.gelu, max)
        codes = {first, *(fingerprint([F.mse_loss, loss]) for loss in losses)}
        assert len(codes) == 1 + len(losses)
        monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0")
        assert fingerprint([F.mse_loss, F.mse_loss]) != first

    def test_links_into_a_store_of_packages_are_installed(self, tmp_path, monkeypatch):
        store, installed = tmp_path / "store", tmp_path / "site-packages"
        for folder in (store, installed):
            folder.mkdir()
        (store / "linked_own.py").write_text("def make(w, d): return 1\n")
        (installed / "linked_own.py").symlink_to(store / "linked_own.py")
        monkeypatch.syspath_prepend(str(installed))
        first = fingerprint([find_function("linked_own:make")])
        (store / "linked_own.py").write_text("def make(w, d): return 2\n")
        resolved.cache_clear()
        assert fingerprint([find_function("linked_own:make")]) == first

    def test_decorators_of_theirs_do_not_hide_ones_own(self, code):
        script = "import torch\n@torch.no_grad()\ndef make(w, d): return HEADS\nHEADS = 4"
        assert code(script) != code(script.replace("HEADS = 4", "HEADS = 5"))

    def test_values_of_an_object_are_no_code(self):
        with pytest.raises(ValueError, match=r"source of .* cannot be found"):
            _ = fingerprint([[].append])
