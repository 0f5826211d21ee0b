"""MLflow: a database file, a folder with ``mlflow.db``, or the address of a server."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depthmup.tables.trackers.run import DEAD, FINISHED, RAISED, UNKNOWN, LoggedRun, copied

STATUSES = {"FINISHED": FINISHED, "FAILED": RAISED, "KILLED": RAISED, "RUNNING": DEAD}


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs of all experiments, every metric as it was written.

    ``search_runs`` would give the value at the greatest step: of a run that was resumed and ended
    earlier than its dead attempt had come, that of the dead one.
    """
    if match := re.match(r"(https?):/+(.*)", address):  # a path has single slashes
        yield from _of(f"{match[1]}://{match[2]}")
        return
    path = Path(re.sub(r"^sqlite:/*", "/", address) if address.startswith("sqlite:") else address)
    file = path / "mlflow.db" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"Expected a database of MLflow, or a folder with mlflow.db; {address} is none. Old "
            "folders `mlruns`: mlflow migrate-filestore, or search_runs() as a frame."
        )
    with copied(file) as copy:  # the package would write newer tables into the owner's
        yield from _of(f"sqlite:///{copy}")


def _of(uri: str) -> Iterator[LoggedRun]:
    from mlflow import MlflowClient  # type: ignore[import-not-found]

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    client = MlflowClient(tracking_uri=uri)
    experiments = {e.experiment_id: e.name for e in client.search_experiments()}
    token = None
    while experiments:
        page = client.search_runs([*experiments], max_results=1000, page_token=token)
        for run in page:
            name = run.info.run_id
            written = {m: client.get_metric_history(name, m) for m in run.data.metrics}
            settings = {setting: _typed(text) for setting, text in run.data.params.items()}
            yield LoggedRun(
                name=name,
                settings={"experiment": experiments[run.info.experiment_id], **settings},
                metrics={m: [(at.step, at.value) for at in all_] for m, all_ in written.items()},
                status=STATUSES.get(run.info.status, UNKNOWN),
            )
        token = page.token
        if not token:
            return


def _typed(text: Any) -> Any:
    """Parameters are texts there."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if re.fullmatch(r"[+-]?\d{1,15}", text) else number
