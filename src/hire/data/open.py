"""Datasets as every command opens them: a bundled one, the published layout, or a built directory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from hire import __version__
from hire.data.build import BuildSettings, build
from hire.data.dataset import MANIFEST, FewShotDataset
from hire.data.published.read import FILES, is_published_layout, read_published
from hire.data.sources.delimited import TableFormat, read_triples
from hire.data.sources.reading import SourceOptions, read_sources
from hire.errors import HireError
from hire.util.checksums import file_checksum
from hire.util.files import cache_directory, printable, restore_directory

BUNDLED = {"umls-one": ("umls.tsv.gz", BuildSettings("umls-one", candidates="all"))}


def open_dataset(dataset: str | Path) -> FewShotDataset:
    """Open a bundled dataset by name, or a directory in the published layout or written by `hire data build`."""
    directory = Path(dataset)
    restore_directory(directory)
    if (directory / MANIFEST).exists():
        return FewShotDataset.open(directory)
    if is_published_layout(directory):
        return _open_published(directory)
    if str(dataset) in BUNDLED:
        return _open_bundled(str(dataset))
    what = "contains no dataset" if directory.is_dir() else "is neither a bundled dataset nor a directory"
    raise HireError(
        what,
        file=dataset,
        remedy=f"bundled datasets: {', '.join(BUNDLED)}; hire data get downloads published datasets, "
        "hire data build makes one from your own graph",
    )


def open_graph(source: str | Path) -> FewShotDataset:
    """Open a dataset, or a raw graph without tasks: a file of triples in any format, or a SPARQL endpoint.

    A raw graph is read once; afterwards its binary form is opened from the cache, unless the bytes of the file have
    changed. Whether an endpoint has changed cannot be seen, so it is read again on another day.
    """
    path, endpoint = Path(source), str(source).startswith(("http://", "https://"))
    if not endpoint and not path.exists() and str(source) not in BUNDLED:
        remedy = "a graph is a file such as graph.tsv, graph.csv or graph.nt.gz, a dataset, or a SPARQL endpoint"
        raise HireError("no such file, directory or bundled dataset", file=source, remedy=remedy)
    if not endpoint and not path.is_file():
        return open_dataset(source)
    state: list[object] = [f"hire {__version__}"]
    if endpoint:
        state.append(datetime.now(UTC).date().isoformat())
    else:
        path = path.resolve()
        state.append(file_checksum(path))
    name = str(source) if endpoint else printable(path.name)

    def read() -> FewShotDataset:
        with TemporaryDirectory() as work:
            tables = read_sources([str(source)], SourceOptions(), Path(work))
        return build(tables, BuildSettings(name, tasks=False), take=True)[0]

    return _cached(str(source) if endpoint else str(path), state, read)


def _open_bundled(name: str) -> FewShotDataset:
    file, settings = BUNDLED[name]
    with as_file(files("hire.data.bundled") / file) as path:
        return build([read_triples(path, TableFormat())], settings)[0]


def _open_published(directory: Path) -> FewShotDataset:
    """Read a published layout once; afterwards open its binary form from the cache, unless its bytes have changed."""
    directory = directory.resolve()
    state = [
        f"hire {__version__}",
        *([name, file_checksum(directory / name)] for name in FILES if (directory / name).is_file()),
    ]
    return _cached(str(directory), state, lambda: read_published(directory))


def _cached(source: str, state: Sequence[object], read: Callable[[], FewShotDataset]) -> FewShotDataset:
    """A dataset from the cache, if its source has the same state as then; otherwise read, and cached."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    cached = cache_directory() / f"{Path(source).name}-{digest}"
    if (cached / MANIFEST).exists():
        try:
            dataset = FewShotDataset.open(cached)
            if dataset.origin.get("state") == list(state):
                return dataset
        except HireError:  # a damaged cache is written again
            pass
    dataset = read()
    try:
        replace(dataset, origin={**dataset.origin, "state": list(state)}).save(cached, overwrite=True)
    except HireError:  # without a cache, the dataset in memory will do
        return dataset
    return FewShotDataset.open(cached)
