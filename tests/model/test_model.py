"""A person's functions: which code they are, and how other processes find them."""

import importlib.util
import pickle
import runpy
import sys
from functools import partial

import pytest
from own_models import SOURCE, batch, make

import depthmup
from depthmup.model import Model, by_reference, resolved
from depthmup.model.loss import cross_entropy


@pytest.fixture
def written(tmp_path):
    """Writes modules and loads one of them anew; its functions."""

    def written(name="mine_own", **texts):
        for module, text in texts.items():
            path = tmp_path / (module.replace("_in_", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for module in [m for m in sys.modules if m.startswith(("mine_own", "layers_own"))]:
            del sys.modules[module]
        user = Model.load(f"{tmp_path / name}.py:make")
        return Model(make=user.make, batch=user.batch)

    yield written
    for module in [m for m in sys.modules if m.startswith(("mine_own", "layers_own"))]:
        del sys.modules[module]


class TestFingerprint:
    def test_changes_with_the_code_and_not_with_comments(self, written):
        first = written(mine_own=SOURCE).code
        assert written(mine_own=SOURCE).code == first
        assert written(mine_own="# by me\n" + SOURCE.replace("\n\n\n", "\n\n")).code == first
        assert written(mine_own=SOURCE.replace("abs()", "relu()")).code != first

    def test_follows_imports_of_files_beside(self, written):
        source = "from layers_own.inner import noise\nimport torch\n" + SOURCE
        inner = "def noise(): return 1\n"
        parts = {"mine_own": source, "layers_own_in_inner": inner}
        first = written(**parts, layers_own_in___init__="").code
        assert written(**parts).code == first
        assert written(**{**parts, "layers_own_in_inner": inner.replace("1", "2")}).code != first
        assert written(**parts, layers_own_in___init__="SCALE = 2").code != first

    def test_does_not_depend_on_where_the_file_lies(self, written, tmp_path):
        first = written(mine_own=SOURCE).code
        (tmp_path / "moved").mkdir()
        (tmp_path / "moved" / "mine_own.py").write_text(SOURCE)
        user = Model.load(f"{tmp_path}/moved/mine_own.py:make")
        assert Model(make=user.make, batch=user.batch).code == first

    def test_of_a_script_is_that_of_what_its_functions_use(self, tmp_path):
        """Not of the call below them, nor of what they do not use."""
        script = (
            SOURCE
            + "\nSCALE = 1.0\n"
            + "def other(): return 1\n"
            + "def loss(outputs, targets): return SCALE * outputs.sum()\n"
            + "from depthmup.model import Model\n"
            + "CODE = Model(make=make, batch=batch, loss=loss).code\n"
        )

        def code(text):
            script = tmp_path / f"script{len(list(tmp_path.iterdir()))}.py"
            script.write_text(text)
            return runpy.run_path(str(script), run_name="__main__")["CODE"]

        first = code(script)
        assert code(script + "x = 3\n") == code(script.replace("return 1", "return 2")) == first
        assert len({first, code(script.replace("abs()", "relu()")),
                    code(script.replace("SCALE = 1.0", "SCALE = 2.0"))}) == 3  # fmt: skip

    def test_what_has_no_source_needs_a_version(self):
        with pytest.raises(
            ValueError, match=r"(?s)source of functools.partial.*the version of your code"
        ):
            _ = Model(make=partial(make, multiplier=2.0), batch=batch).code
        space = {"__name__": "__main__"}
        exec("def typed(width, depth): return None", space)
        with pytest.raises(ValueError, match="source of typed cannot be found"):
            _ = Model(make=space["typed"], batch=batch).code


class TestReferences:
    def test_are_found_again_and_survive_pickling(self, written):
        functions = by_reference(written(mine_own=SOURCE))
        assert functions.make.endswith("mine_own.py:make")
        result = resolved(pickle.loads(pickle.dumps(functions)))
        assert result.make.__globals__ is result.batch.__globals__  # one module serves both
        assert result.loss is cross_entropy

    def test_files_find_what_lies_beside_them(self, written):
        own = written(
            mine_own="from layers_own.inner import noise\n" + SOURCE,
            layers_own_in_inner="def noise(): return 1\n",
        )
        assert own.make.__globals__["noise"]() == 1

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda width, depth: None, "not at the top of a module"),
            (partial(make, multiplier=2.0), "not at the top of a module"),
        ],
    )
    def test_what_others_cannot_import(self, function, message):
        with pytest.raises(ValueError, match=message):
            by_reference(Model(make=function, batch=batch))

    def test_what_is_defined_in_the_session(self):
        space = {"__name__": "__main__"}
        exec("def typed(width, depth): return None", space)
        with pytest.raises(ValueError, match="defined in the session that is running"):
            by_reference(Model(make=space["typed"], batch=batch))

    def test_what_was_replaced_in_its_module(self, written):
        first = written(mine_own=SOURCE)
        written(mine_own=SOURCE + "\n# edited\n")
        with pytest.raises(ValueError, match="another function now"):
            by_reference(first)

    def test_names_that_are_none(self):
        with pytest.raises(ValueError, match="module:function"):
            resolved(Model(train="nowhere"))
        with pytest.raises(ValueError, match="no function 'nothing'"):
            resolved(Model(train="own_models:nothing"))


def test_helpers_are_importable():
    assert importlib.util.find_spec("own_models") is not None


def test_a_factory_alone_is_no_model():
    with pytest.raises(TypeError, match=r"Expected a depthmup.Model\(make, batch=batch\); got"):
        resolved(make)


@pytest.mark.parametrize(
    "model",
    [
        Model(train=print, version="1"),
        Model(command="python t.py {lr} {width} {depth} {out}", loss="{out}/l.txt"),
    ],
)
def test_a_training_of_their_own_builds_no_network(model):
    with pytest.raises(ValueError, match=r"Expected a factory, .* depthmup\.transfer"):
        depthmup.check(model, depths=(2, 4, 8))
    with pytest.raises(ValueError, match="Expected a factory"):
        model.example_inputs()


def test_no_loss_is_refused_by_name_before_it_is_called():
    with pytest.raises(TypeError, match="Leave it out for cross-entropy"):
        Model(make=lambda width, depth: None, batch=lambda generator: None, loss=None)
