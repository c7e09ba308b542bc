"""No damaged byte is believed: bits are flipped and files cut short in everything that is kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.embeddings.settings import EmbeddingSettings
from hire.errors import HireError
from hire.inference.answers import Answer
from hire.inference.bulk import Heads, Question, write_answers, writer
from hire.inference.fit import fit
from hire.inference.model import TrainedModel, load
from hire.systems.path import pretrained
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.settings import EvidenceSettings
from hire.systems.path.stored import cached_index
from hire.training.embedding import embeddings_of, embeddings_path
from hire.training.loop import STATE
from hire.training.run import MODEL
from hire.util.checksums import checksum_of
from hire.util.tensors import load_tensors
from tests.conftest import write_layout
from tests.faults.support import Trials, contents, how_many
from tests.service.stored import everything_in, taught
from tests.support import small_settings

REFERENCES = [("virus", "organism"), ("fungus", "organism"), ("cell_component", "cell")]
EMBEDDING = EmbeddingSettings(dimension=8, batch_size=64, negatives=16, steps=20)


Damage = Callable[[Trials, int, int], None]


@pytest.fixture
def damage(tell: Callable[..., None]) -> Damage:
    """Of all damage that `make torture` does to an artefact, `make test` does a hundredth, and something of each."""

    def done(trials: Trials, flips: int, truncations: int) -> None:
        trials.flips(how_many(max(3, flips // 100), flips))
        trials.truncations(how_many(max(2, truncations // 100), truncations))
        counts = {kind: trials.counts[kind] for kind in ("flips", "truncations", "told", "right_all_the_same")}
        tell("damage to", trials.name, **counts)

    return done


def arrays_of(dataset: FewShotDataset) -> tuple[Any, ...]:
    """All that a dataset holds."""
    graph = dataset.graph
    arrays: list[NDArray[Any]] = [graph.triples, graph.offsets, graph.neighbors, dataset.facts.keys]
    for table in (graph.entities, graph.relations):
        arrays += [table.text, table.offsets, table.order]
    arrays += [getattr(dataset, name) for name in FewShotDataset._ARRAYS]
    return dataset.name, dict(dataset.split_sizes), checksum_of(np.ascontiguousarray(array) for array in arrays)


def answers(model: TrainedModel) -> list[Answer]:
    return model.teach(REFERENCES, "part_of").predict("tissue", 5)


def test_a_dataset(umls_folder: Path, tmp_path: Path, damage: Damage) -> None:
    folder = shutil.copytree(umls_folder, tmp_path / "umls")
    damage(Trials("dataset", lambda: arrays_of(open_dataset(folder)), contents(folder)), 3_000, 300)


def test_a_run(levels_run: Path, umls_folder: Path, tmp_path: Path, damage: Damage) -> None:
    run = shutil.copytree(levels_run, tmp_path / "run")
    believed = [path for path in contents(run) if path.name in ("config.json", MODEL, "calibration.json")]
    assert len(believed) == 5  # one file of weights each for HiRe, the path level, and how they are joined
    trials = Trials("run", lambda: answers(load(run, umls_folder)), contents(*believed))
    damage(trials, 2_000, 200)


def test_a_missing_file_of_a_run(levels_run: Path, umls_folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(levels_run, tmp_path / "run")
    for path in run.rglob(MODEL):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(HireError, match="has no weights yet"):
            load(run, umls_folder)
        path.write_bytes(content)
    assert answers(load(run, umls_folder)) == answers(load(levels_run, umls_folder))


def test_the_state_of_a_training(umls_folder: Path, tmp_path: Path, damage: Damage) -> None:
    """Flips of everything that --resume reads: it refuses, or ends with the weights of an undisturbed training."""
    settings = small_settings("hire", training__steps=3, selection__evaluate_every=2)

    def train(run: Path, **options: Any) -> bytes:
        fit(umls_folder, run, settings, calibrate=False, **options)
        return (run / MODEL).read_bytes()

    train(tmp_path / "run")
    before = contents(tmp_path / "run")
    (state,) = (path for path in before if path.name == STATE)

    def resumed() -> bytes:
        return train(tmp_path / "run", resume=True)

    files = {path: content for path, content in before.items() if path in (state, tmp_path / "run" / "config.json")}
    damage(Trials("state of a training", resumed, files), 1_500, 150)


def test_the_cache_of_a_published_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    layout = write_layout(tmp_path / "layout")
    open_dataset(layout)
    trials = Trials(
        "cache of a published layout",
        lambda: arrays_of(open_dataset(layout)),
        contents(tmp_path / "cache"),
        is_cache=True,
    )
    damage(trials, 300, 60)


def test_the_cache_of_counted_evidence(
    umls_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage
) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    dataset = open_dataset(umls_folder)
    EvidenceGraph.of(dataset)
    path = cached_index(dataset, EvidenceSettings())
    assert path is not None

    def counted() -> str:
        arrays = EvidenceGraph.of(dataset).arrays()
        return checksum_of(np.ascontiguousarray(arrays[name]) for name in sorted(arrays))

    damage(Trials("cache of counted evidence", counted, contents(path), is_cache=True), 300, 60)


@pytest.mark.parametrize("finished", [True, False])
def test_the_cache_of_embeddings(
    umls: FewShotDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool, damage: Damage
) -> None:
    """Embeddings that were learned, or their state half-way."""
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))
    path = embeddings_path(umls, EMBEDDING)

    def learned() -> str:
        found = embeddings_of(umls, EMBEDDING)
        if not finished:
            path.unlink()  # so that the next one begins with the state
        return checksum_of(np.ascontiguousarray(table.numpy()) for table in (found.entities, found.relations))

    if finished:
        learned()
    else:
        _interrupt_embedding(umls, monkeypatch)
    (kept,) = contents(tmp_path / "cache")
    trials = Trials(f"cache of embeddings{'' if finished else ', half-way'}", learned, contents(kept), is_cache=True)
    damage(trials, 300, 40)


def _interrupt_embedding(umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    from hire.embeddings.trainer import EmbeddingTrainer

    batch = EmbeddingTrainer.batch

    def interrupted(self: EmbeddingTrainer, step: int) -> Any:
        if step == 15:
            raise HireError("the power fails")
        return batch(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingTrainer, "batch", interrupted)
        patch.setattr("hire.training.loop.SECONDS_BETWEEN_STATES", 0.0)
        with pytest.raises(HireError, match="the power fails"):
            embeddings_of(umls, EMBEDDING)


def test_the_shipped_weights(
    umls: FewShotDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage
) -> None:
    place = Path(str(pretrained.__file__)).parent
    shipped = [shutil.copy(place / name, tmp_path / name) for name in (pretrained.WEIGHTS, pretrained.ABOUT)]
    monkeypatch.setattr(pretrained, "files", lambda _package: tmp_path)

    def read() -> Any:
        for cached in (pretrained.about, pretrained._tensors):
            cached.cache_clear()
        tensors = pretrained._tensors()
        return pretrained.about(), checksum_of(tensors[name].numpy() for name in sorted(tensors))

    try:
        damage(Trials("shipped weights", read, contents(*map(Path, shipped))), 1_000, 50)
    finally:
        for cached in (pretrained.about, pretrained._tensors):
            cached.cache_clear()


def test_the_progress_of_a_prediction(
    umls_run: Path, tmp_path: Path, stopped: Callable[..., None], damage: Damage
) -> None:
    relation = load(umls_run).teach(REFERENCES)
    (tmp_path / "heads.txt").write_text("plant\nvirus\ncell\ntissue\n")
    heads, question, target = Heads(tmp_path / "heads.txt"), Question(k=3), tmp_path / "out.tsv"
    lines = writer("tsv", relation, question)
    stopped(relation, heads, question, lines, target)
    files = contents(*(Path(f"{target}.{suffix}") for suffix in ("partial", "progress")))

    def resumed() -> bytes:
        for path, content in files.items():
            if not path.exists():
                path.write_bytes(content)
        target.unlink(missing_ok=True)
        write_answers(relation, heads, question, lines, target, {"k": 3}, resume=True)
        return target.read_bytes()

    damage(Trials("progress of a prediction", resumed, files), 600, 60)


@pytest.fixture
def stopped() -> Callable[..., None]:
    """Stop writing answers at the third head."""

    def stop(relation: Any, heads: Heads, question: Question, lines: Any, target: Path) -> None:
        def stopping(head: str, found: list[Answer]) -> str:
            if head == "cell":
                raise HireError("the power fails")
            return str(lines.lines(head, found))

        with pytest.raises(HireError, match="the power fails"):
            write_answers(relation, heads, question, lines._replace(lines=stopping), target, {"k": 3})

    return stop


def test_taught_relations(tmp_path: Path, damage: Damage) -> None:
    path = tmp_path / "state"
    taught(path, 30)
    damage(Trials("taught relations", lambda: everything_in(path), contents(path)), 1_000, 120)


def test_tensors_of_any_kind_are_named_in_their_error(tmp_path: Path) -> None:
    (tmp_path / "empty.safetensors").write_bytes(b"")
    with pytest.raises(HireError, match=r"empty\.safetensors"):
        load_tensors(tmp_path / "empty.safetensors")
