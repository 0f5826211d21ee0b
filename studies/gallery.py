"""The pictures of docs/gallery.md, by the commands that it shows.

    python -m studies.gallery

Three minutes of two cores. The first picture is that of ``studies.first_screen``.
"""

import shutil
import tempfile
from pathlib import Path

import depthmup
from depthmup.cli import main as depthmup_command
from depthmup.reports import check_figure
from depthmup.tables import example

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "_static" / "gallery"
MODEL = f"{ROOT / 'examples' / 'own_model.py'}:make"
OF_A_MEASUREMENT = {
    **{name: f"{name}-depth" for name in ("transfer", "rates", "loss", "drift")},
    **{name: f"certificate-1-{name}" for name in ("law", "penalty")},
}


def of_a_measurement(folder: Path) -> None:
    runs = ("--preset", "tiny", "--target", "depth=256", "--out", str(folder))
    depthmup_command(["transfer", *runs])
    depthmup_command(["report", str(folder), "--figure", "paper"])
    for name, figure in OF_A_MEASUREMENT.items():
        shutil.copy(folder / "figures" / f"{figure}.svg", PICTURES / f"{name}.svg")


def of_a_model() -> None:
    model = depthmup.Model.load(MODEL)
    found = depthmup.check(model, scheme="completep", widths=(32, 64, 128), depths=(4,), seeds=2)
    check_figure(found).save(PICTURES / "check.svg")
    sizes = ("--base", "32x2", "--depths", "2,4,8,16", "--scheme", "completep")
    picture = str(PICTURES / "predict.svg")
    depthmup_command(["predict", "--model", MODEL, *sizes, "--out", picture])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        of_a_measurement(Path(folder))
    of_a_model()
    columns = {"depth": "n_layers"}
    report = depthmup.fit(example(), axes=columns, lr="lr", loss="final_loss", by=("scheme",))
    report.plot(PICTURES / "fit.svg")
    depthmup_command(["regimes", "--map", str(PICTURES / "regimes.svg")])


if __name__ == "__main__":
    main()
