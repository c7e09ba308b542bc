"""Train and calibrate in one call: what `hire train` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hire.inference.calibrate import calibrate_new
from hire.training.pipeline import train_run
from hire.training.settings import RunSettings
from hire.util.processes import joined


def fit(
    source: str | Path,
    run: str | Path,
    settings: RunSettings | None = None,
    *,
    embeddings: Path | None = None,
    resume: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
    threads: int = 1,
    tensorboard: bool = False,
    calibrate: bool = True,
) -> dict[str, Any]:
    """Train a system on a dataset into a run, and find out on the dev tasks what its scores mean.

    Without settings they are those of the preset `best`. Embeddings are those of a file, or from the cache, or learned
    first; max_minutes counts them in. Returns the metrics of the best step on dev.
    """
    with joined():
        result = train_run(
            source,
            run,
            settings,
            embeddings=embeddings,
            resume=resume,
            max_minutes=max_minutes,
            device=device,
            threads=threads,
            tensorboard=tensorboard,
        )
        calibrated = calibrate and bool(result["finished"]) and calibrate_new(Path(run), source, device=device)
        return {**result, "calibrated": calibrated}
