"""What a training needs of memory at least: told before it begins, instead of a crash in the midst of it."""

from __future__ import annotations

from typing import Any

from hire.data.dataset import FewShotDataset
from hire.embeddings.settings import EmbeddingSettings
from hire.optim.storage import StorageSettings
from hire.systems.registry import system_class
from hire.util.memory import check_fits
from hire.util.processes import share
from hire.util.settings import items

FLOAT = 4  # bytes
TABLE_PARTS = 3  # of a learned row: weights, first moment, and EMA or a copy
TABLES = 2  # of entities: vectors, and projections or what a system has in their place
NETWORK_COPIES = 5  # weights, gradients, two moments, EMA
LAYERS = 20  # square layers of the smallest network, which has a few layers of two and four times its width
ELSEWHERE = "keep tables in a file (storage.place=file), or free some memory"
STEP_COPIES = 10  # of a step's inputs: activations and their gradients; measured, the least of all systems


def check_training(dataset: FewShotDataset, system: str, settings: Any) -> None:
    """Refuse a training that cannot fit into memory."""
    for part, of_part in system_class(system).parts(settings).values():
        check_training(dataset, part, of_part)
    needs = training_needs(dataset, settings)
    check_fits("this training", needs, f"choose a smaller model.dimension or fewer training.tasks, {ELSEWHERE}")


def check_embeddings(dataset: FewShotDataset, settings: EmbeddingSettings) -> None:
    """Refuse embeddings that cannot be learned in memory."""
    needs = _embedding(dataset, settings.dimension, settings.storage)
    vectors = 2 * settings.batch_size + settings.negatives
    needs["a step"] = FLOAT * (vectors * settings.dimension + settings.batch_size * settings.negatives)
    check_fits("learning these embeddings", needs, f"choose a smaller dimension or batch_size, {ELSEWHERE}")


def training_needs(dataset: FewShotDataset, settings: Any) -> dict[str, int]:
    """Bytes by what needs them, as far as a system has the usual settings; fewer than it will really take."""
    given: dict[str, Any] = {path: value for path, value in items(settings) if isinstance(value, int | tuple)}
    needs: dict[str, int] = {}
    if "embedding.dimension" in given:
        needs |= _embedding(dataset, given["embedding.dimension"], _storage(settings, "embedding"))
    dimension = given.get("model.dimension", 0)
    if dimension:
        of_a_table = _table(len(dataset.graph.entities), dimension, _storage(settings, "optimizer"))
        needs["the tables of entities"] = TABLES * of_a_table
        needs["the network"] = FLOAT * NETWORK_COPIES * LAYERS * dimension**2
    tasks, queries, negatives = (given.get(f"training.{name}", 0) for name in ("tasks", "queries", "negatives"))
    shots = max(given.get("training.shots", (0,)))
    vectors = (queries + negatives + shots) * max(1, dimension)
    needs["a step"] = FLOAT * STEP_COPIES * tasks * (vectors + queries * negatives)
    return needs


def _storage(settings: Any, section: str) -> StorageSettings:
    found = getattr(getattr(settings, section, None), "storage", None)
    return found if isinstance(found, StorageSettings) else StorageSettings()


def _embedding(dataset: FewShotDataset, dimension: int, storage: StorageSettings) -> dict[str, int]:
    relations = FLOAT * TABLE_PARTS * 2 * len(dataset.graph.relations) * dimension
    return {"the embeddings": relations + _table(len(dataset.graph.entities), dimension, storage)}


def _table(rows: int, dimension: int, storage: StorageSettings) -> int:
    """The bytes of a table of entities in the memory of this process."""
    if storage.place == "file":
        return 0
    own = share().some(rows) if storage.sharded else slice(0, rows)
    return storage.kind.itemsize * TABLE_PARTS * (own.stop - own.start) * dimension
