"""MLflow: a database file, a folder with ``mlflow.db``, or the address of a server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depthmup.tables.trackers.run import DEAD, FINISHED, RAISED, UNKNOWN, LoggedRun

STATUSES = {"FINISHED": FINISHED, "FAILED": RAISED, "KILLED": RAISED, "RUNNING": DEAD}


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs of all experiments, every metric as it was written.

    ``search_runs`` would give the value at the greatest step: of a run that was resumed and ended
    earlier than its dead attempt had come, that of the dead one.
    """
    from mlflow import MlflowClient  # type: ignore[import-not-found]

    client = MlflowClient(tracking_uri=_uri(address))
    experiments = [e.experiment_id for e in client.search_experiments()]
    token = None
    while experiments:
        page = client.search_runs(experiments, max_results=1000, page_token=token)
        for run in page:
            name = run.info.run_id
            written = {m: client.get_metric_history(name, m) for m in run.data.metrics}
            yield LoggedRun(
                name=name,
                settings={setting: _typed(text) for setting, text in run.data.params.items()},
                metrics={m: [(at.step, at.value) for at in all_] for m, all_ in written.items()},
                status=STATUSES.get(run.info.status, UNKNOWN),
            )
        token = page.token
        if not token:
            return


def _uri(address: str) -> str:
    if match := re.match(r"(https?):/+(.*)", address):  # a path has single slashes
        return f"{match[1]}://{match[2]}"
    path = Path(re.sub(r"^sqlite:/*", "/", address) if address.startswith("sqlite:") else address)
    file = path / "mlflow.db" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"Expected a database of MLflow, or a folder with mlflow.db; {address} is none. Old "
            "folders `mlruns`: mlflow migrate-filestore, or search_runs() as a frame."
        )
    return f"sqlite:///{file.absolute()}"


def _typed(text: Any) -> Any:
    """Parameters are texts there."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if re.fullmatch(r"[+-]?\d{1,15}", text) else number
