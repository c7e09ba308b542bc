"""Tables that do not fit into the memory of one process: shared by two, or in a file."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import EmbeddingSettings
from hire.evaluation.ranking import rank_queries
from hire.optim.storage import StorageSettings
from hire.systems.base import Support
from hire.systems.mean_translation import MeanTranslation
from hire.training.embedding import embeddings_of
from hire.training.pipeline import dev_metrics, train_run
from hire.training.run import load_system
from hire.util.memory import DATA, MIB, _pages
from hire.util.processes import joined
from hire.util.settings import items
from tests.support import small_settings
from tests.together import Ended, Together

MORE, DIMENSION = 40_000, 800
TABLE = 4 * MORE * (2 * DIMENSION + 1)  # bytes: weights and their moments
LIMIT = 17 * TABLE // 20


@pytest.fixture(scope="module")
def wide(umls: FewShotDataset) -> FewShotDataset:
    """Many more entities than facts."""
    fact = np.array([[len(umls.graph.entities), 0, 0]])
    return umls.extended([f"entity {i}" for i in range(MORE)], fact)


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A state after every step, and no check beforehand, which counts a reserve: what is tested is what it takes."""
    monkeypatch.setattr("hire.training.needs.check_fits", lambda *_: None)
    monkeypatch.setattr("hire.training.loop.SECONDS_BETWEEN_STATES", 0.0)
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "cache"))


def learned(dataset: FewShotDataset, storage: StorageSettings) -> Callable[[], None]:
    """Learn embeddings, keep them, and rank with them, within a limit that does not count maps of files."""
    settings = EmbeddingSettings(dimension=DIMENSION, steps=2, batch_size=32, negatives=8, storage=storage)

    def work() -> None:
        torch.set_num_threads(1)
        with joined() as share:
            most = _pages(DATA) + LIMIT
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
            embeddings_of(dataset, settings)
            system = MeanTranslation(embeddings_of(dataset, settings).entities)  # from the cache
            pairs, few = np.array([[0, 1], [2, 3], [4, 5]]), np.arange(100)
            ranks = rank_queries(system, dataset, 0, system.adapt(Support(pairs[:1], few)), pairs[1:], few)
            if share.first:
                print(system.entities.shape, system.entities.sum().item(), ranks.realistic.tolist())

    return work


@pytest.mark.parametrize("name", ["hire", "gmatching", "metar", "transe", "mean-translation", "nearest-pair"])
def test_a_system_in_half_precision_and_in_a_file_is_restored_as_it_was(
    umls: FewShotDataset, name: str, tmp_path: Path
) -> None:
    settings = small_settings(name)
    sections = [path for path, _ in items(settings.settings) if path.endswith("storage.precision")]
    chosen = dict.fromkeys(sections, "bfloat16") | {path.replace("precision", "place"): "file" for path in sections}
    result = train_run("umls-one", tmp_path / "run", settings.changed(chosen))
    system = load_system(tmp_path / "run", umls)
    assert system.tensors()["entities"].dtype == torch.bfloat16
    assert dev_metrics(system, umls, (1,))["mean"] == result["dev"]["1-shot"]
    single = {part: tensor.float() for part, tensor in system.tensors().items() if tensor.is_floating_point()}
    same = type(system).restore(umls, settings.settings, system.tensors() | single)  # the same numbers, whole tables
    assert dev_metrics(system, umls, (1, 3)) == pytest.approx(dev_metrics(same, umls, (1, 3)), abs=1e-3)
    assert system.vectors(np.arange(3)).dtype == torch.float32


def told(ended: list[Ended]) -> str:
    assert [process.code for process in ended] == [0] * len(ended), ended
    return ended[0].output


def test_a_table_that_one_process_cannot_hold_is_learned_by_two_or_in_a_file(
    wide: FewShotDataset, tmp_path: Path
) -> None:
    assert TABLE > 240 * MIB
    (alone,) = Together([learned(wide, StorageSettings())], tmp_path).wait()
    assert alone.code == 1 and "allocate memory" in alone.output, alone
    by_two = told(Together([learned(wide, StorageSettings(sharded=True))] * 2, tmp_path).wait())
    in_file = told(Together([learned(wide, StorageSettings(place="file"))], tmp_path).wait())
    assert f"[{MORE + 135}, {DIMENSION}]" in by_two and by_two.split()[-2:] == in_file.split()[-2:]
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.startswith(".rows")]
