"""The recipes of docs/reference/logs.md, each with the real package where it is installed.

``pip install 'depthmup[trackers]'`` installs them; nothing is sent anywhere.
"""

import json
import math

import pytest
from pytest import approx

import depthmup

SIZES, RATES = (2, 4, 8), tuple(2.0**k for k in range(-9, -1))


def loss_of(depth, rate):
    """The best log2 rate is -5 - 0.5 log2(depth / 2)."""
    best = -5 - 0.5 * math.log2(depth / 2)
    return 2.0 + 0.1 * (math.log2(rate) - best) ** 2


def expect(report):
    assert report.exponent("depth").value == approx(-0.5, abs=0.05)
    assert report.to_pandas("points")["seeds"].sum() == len(SIZES) * len(RATES)
    assert report.excluded == ()


def test_optuna():
    """``study.trials_dataframe()``, its columns as they are."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial):
        depth = trial.suggest_categorical("n_layers", SIZES)
        return loss_of(depth, trial.suggest_categorical("lr", RATES))

    study = optuna.create_study(
        sampler=optuna.samplers.GridSampler({"n_layers": SIZES, "lr": RATES})
    )
    study.optimize(objective, n_trials=len(SIZES) * len(RATES))
    frame = study.trials_dataframe()
    expect(
        depthmup.fit(
            frame,
            axes={"depth": "params_n_layers"},
            lr="params_lr",
            loss="value",
            where="state == COMPLETE",
        )
    )


def test_mlflow(tmp_path):
    """``mlflow.search_runs()``; parameters are text there."""
    mlflow = pytest.importorskip("mlflow")
    pd = pytest.importorskip("pandas")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_experiment("sweep")
    for depth in SIZES:
        for rate in RATES:
            with mlflow.start_run():
                mlflow.log_params({"n_layers": depth, "lr": rate})
                mlflow.log_metric("final_loss", loss_of(depth, rate))
    frame = mlflow.search_runs(experiment_names=["sweep"])
    assert isinstance(frame, pd.DataFrame)
    expect(
        depthmup.fit(
            frame, axes={"depth": "params.n_layers"}, lr="params.lr", loss="metrics.final_loss"
        )
    )


def test_wandb(tmp_path, monkeypatch):
    """Offline runs and their summaries, as ``wandb.Api().runs`` gives config and summary."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    path = tmp_path / "runs.jsonl"
    with path.open("w") as file:
        for depth in SIZES:
            for rate in RATES:
                run = wandb.init(
                    project="sweep", config={"n_layers": depth, "lr": rate}, dir=str(tmp_path)
                )
                run.log({"loss": 9.0})
                run.log({"loss": loss_of(depth, rate)})
                row = {"config": dict(run.config), "summary": {"loss": run.summary["loss"]}}
                file.write(json.dumps(row) + "\n")
                run.finish()
    expect(
        depthmup.fit(path, axes={"depth": "config.n_layers"}, lr="config.lr", loss="summary.loss")
    )


@pytest.mark.long(slice=False)
@pytest.mark.xdist_group("ray")  # one cluster at a time
def test_ray_tune(tmp_path, monkeypatch):
    """``results.get_dataframe()``; the configuration's columns begin with config/."""
    tune = pytest.importorskip("ray.tune")
    ray = pytest.importorskip("ray")

    # A cluster of its own leaves a token in the home folder, which others would ask for.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")

    def trained(config):
        tune.report({"loss": loss_of(config["n_layers"], config["lr"])})

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    try:
        tuner = tune.Tuner(
            trained,
            param_space={"n_layers": tune.grid_search(SIZES), "lr": tune.grid_search(RATES)},
            run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
        )
        frame = tuner.fit().get_dataframe()
    finally:
        ray.shutdown()
    expect(depthmup.fit(frame, axes={"depth": "config/n_layers"}, lr="config/lr", loss="loss"))
