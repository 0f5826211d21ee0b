"""Folders as real trackers leave them: twelve runs, of which one is killed, one resumed, one raises
and one diverges.

    python tests/tables/trackers/make.py NAME FOLDER

It needs that tracker's package alone. Every run is a process of its own. ``loop.json`` beside the
folder's files is the table that the loop itself wrote: what a reader must find.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STEPS, HALF, SAVED = 40, 25, 20
KILLED, RESUMED, DIVERGED, RAISED = 3, 5, 8, 10
CONFIGS = [
    {"width": width, "lr": 2.0**k, "seed": 0, "optim": {"name": "adamw"}}
    for width in (64, 128, 256)
    for k in (-9, -8, -7, -6)
]


def loss_at(config, step, number):
    if number == DIVERGED and step >= HALF:
        return math.nan
    best = -7.5 - 0.25 * math.log2(config["width"] / 64)
    return 2.0 + 0.1 * (math.log2(config["lr"]) - best) ** 2 + 1.5 * (1 - step / STEPS)


def train(number, config, log, *, first=1, last=STEPS):
    """The loop of a run: it logs at every step and ends as its number says."""
    for step in range(first, last + 1):
        log(step, loss_at(config, step, number))
        if step == HALF and number == RAISED:
            raise RuntimeError("out of memory")
        if step == HALF and first == 1 and number in (KILLED, RESUMED):
            time.sleep(1.0)  # long enough for a tracker that writes every half a second
            os.kill(os.getpid(), signal.SIGKILL)


def wandb(folder, number, config, first):
    import wandb

    run = wandb.init(
        project="sweep", dir=folder, mode="offline", config=config, id=f"run{number}",
        resume="allow", settings=wandb.Settings(silent=True, console="off"),
    )  # fmt: skip
    train(number, config, lambda step, loss: run.log({"val_loss": loss}, step=step), first=first)
    run.finish()


def mlflow(folder, number, config, first):
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("sweep")
    kept = Path(folder, f"id{number}.txt")
    with mlflow.start_run(run_id=kept.read_text() if first > 1 else None) as run:
        if first == 1:
            kept.write_text(run.info.run_id)
            mlflow.log_params({"width": config["width"], "lr": config["lr"], "seed": 0})
        train(
            number, config, lambda step, loss: mlflow.log_metric("val_loss", loss, step=step),
            first=first,
        )  # fmt: skip


def optuna(folder, number, config, first):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=f"sqlite:///{folder}/optuna.db", study_name="sweep", load_if_exists=True
    )
    study.enqueue_trial({"width": config["width"], "lr": config["lr"]})

    def objective(trial):
        trial.suggest_int("width", 1, 1024)
        trial.suggest_float("lr", 1e-6, 1.0, log=True)
        trial.set_user_attr("seed", 0)
        train(number, config, lambda step, loss: trial.report(loss, step))
        return loss_at(config, STEPS, number)

    study.optimize(objective, n_trials=1, catch=(RuntimeError,))


def trackio(folder, number, config, first):
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    trackio.init(
        project="sweep", name=f"run{number}", config=config, embed=False,
        **({"resume": "must"} if first > 1 else {}),
    )  # fmt: skip
    train(
        number, config, lambda step, loss: trackio.log({"val_loss": loss}, step=step), first=first
    )
    trackio.finish()


def sacred(folder, number, config, first):
    from sacred import Experiment
    from sacred.observers import FileStorageObserver

    experiment = Experiment("sweep", save_git_info=False)
    experiment.observers.append(FileStorageObserver(folder))
    experiment.add_config(config)

    @experiment.main
    def main(_run):
        log = lambda step, loss: _run.log_scalar("val_loss", loss, step)  # noqa: E731
        log_all = log
        if number in (KILLED, RESUMED) and first == 1:  # its heart beats every ten seconds

            def log_all(step, loss):
                log(step, loss)
                if step == HALF:
                    _run._emit_heartbeat()

        train(number, config, log_all, first=first)

    experiment.run()


def dvclive(folder, number, config, first):
    from dvclive import Live

    live = Live(
        str(Path(folder, f"run{number}")), resume=first > 1, save_dvc_exp=False, dvcyaml=None
    )
    with live:
        live.log_params({"width": config["width"], "lr": config["lr"], "seed": 0})

        def log(step, loss):
            live.step = step
            live.log_metric("val_loss", loss)
            live.make_summary()

        train(number, config, log, first=first)


def tensorboard(folder, number, config, first):
    import yaml
    from tensorboardX import SummaryWriter

    of_run = Path(folder, f"run{number}")
    of_run.mkdir(exist_ok=True)
    (of_run / "hparams.yaml").write_text(yaml.safe_dump(config))
    writer = SummaryWriter(str(of_run), flush_secs=1)
    log = lambda step, loss: (writer.add_scalar("val_loss", loss, step), writer.flush())  # noqa: E731
    train(number, config, log, first=first)
    writer.close()


def aim(folder, number, config, first):
    from aim import Run

    kept = Path(folder, f"id{number}.txt")
    run = Run(
        kept.read_text() if first > 1 else None, repo=str(folder), system_tracking_interval=None
    )
    kept.write_text(run.hash)
    run["hparams"] = config
    train(
        number, config, lambda step, loss: run.track(loss, name="val_loss", step=step), first=first
    )
    run.close()


def ray(folder):
    """All twelve at once: its trials are processes of their own; none is resumed."""
    import ray as cluster
    from ray import tune

    def trained(config):
        numbers = {(c["width"], c["lr"]): number for number, c in enumerate(CONFIGS)}
        number = numbers[config["width"], config["lr"]]
        report = lambda step, loss: tune.report({"val_loss": loss})  # noqa: E731
        train(-1 if number == RESUMED else number, config, report)

    cluster.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        space = {"width": tune.grid_search([64, 128, 256]), "seed": 0, "optim": {"name": "adamw"}}
        space["lr"] = tune.grid_search([2.0**k for k in (-9, -8, -7, -6)])
        storage = tune.RunConfig(storage_path=str(folder), name="sweep", verbose=0)
        tune.Tuner(trained, param_space=space, run_config=storage).fit()
    finally:
        cluster.shutdown()


def in_process(run, *arguments):
    """Run it in a process of its own, which may be killed or raise."""
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        status = 1
        try:
            if not os.environ.get("SHOW"):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                os.dup2(2, 1)
            run(*arguments)
            status = 0
        except RuntimeError:
            sys.excepthook(*sys.exc_info())  # as a script that raises: trackers look at it
        finally:
            import atexit

            atexit._run_exitfuncs()
            os._exit(status)
    os.waitpid(child, 0)


def main(name, folder):
    folder = Path(folder).absolute()
    folder.mkdir(parents=True)
    rows = []
    if name == "ray":
        ray(folder)
    for number, config in enumerate(CONFIGS):
        if name != "ray":
            in_process(globals()[name], str(folder), number, config, 1)
        if number == RESUMED and name not in ("ray", "optuna"):
            in_process(globals()[name], str(folder), number, config, SAVED + 1)
        ended = number not in (KILLED, RAISED) and not (number == RESUMED and name == "optuna")
        loss = "diverged" if number == DIVERGED else loss_at(config, STEPS, number)
        rows.append({**config, "val_loss": loss, "ended": ended})
    if name == "aim":  # without it every run is empty and active
        command = "from aim.cli.cli import cli_entry_point; cli_entry_point()"
        words = [sys.executable, "-c", command, "storage", "--repo", str(folder), "reindex", "-y"]
        subprocess.run(words, check=True)
    (folder / "loop.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
