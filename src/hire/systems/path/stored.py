"""The evidence index: what the path level counts of a graph, as arrays in a folder that opens by memory map.

It is in the folder of a dataset if `hire data build` or `hire data index` has made it there; other datasets have it in
the cache. It is made block by block, in bounded memory, whatever the size of the graph.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hire import __version__
from hire.data.dataset import FewShotDataset, check_files, describe_files, files_in
from hire.data.graph import KnowledgeGraph
from hire.errors import HireError
from hire.systems.path.counting import EDGES_AT_ONCE, TypeShares, blocks_of, fan_out_levels, fan_outs_back
from hire.systems.path.graph import EvidenceGraph
from hire.systems.path.names import SameNames, same_names_of
from hire.systems.path.settings import EvidenceSettings
from hire.util.arrays import IntArray
from hire.util.checksums import read_record, write_record
from hire.util.files import ArrayWriter, atomic_directory, cache_directory, is_mapped, open_array, save_array

FORMAT = 3
FOLDER = "evidence"  # in the folder of a dataset
MANIFEST = "index.json"
COUNTED_WITH = ("train_facts", "max_same_name", "max_fan_out", "sample")  # settings that change what is counted
INDEX_AGAIN = "make it again with hire data index DATASET --overwrite"
WRITTEN = {  # arrays that are written block by block, with their types
    "profile_keys": np.int64,
    "profile_counts": np.int64,
    "profile_edge_types": np.int32,
    "profile_offsets": np.int64,
    "_profile_starts": np.int64,
    "offsets": np.int64,
    "edge_types": np.int32,
    "targets": np.int32,
    "degrees": np.int64,
}

Arrays = dict[str, NDArray[Any]]


def evidence_of(dataset: FewShotDataset, settings: EvidenceSettings) -> EvidenceGraph:
    """A dataset's graph of evidence, from its own index, or from that in the cache, which is made if need be."""
    facts = train_facts(dataset, settings)
    own = own_index(dataset)
    if own is not None and _describes(own, dataset, settings):
        return EvidenceGraph.stored(open_index(own, dataset), dataset.graph.types, facts, settings)
    folder = cached_index(dataset, settings)
    arrays = None if folder is None else _cached(folder, dataset, settings, facts)
    if arrays is not None:
        return EvidenceGraph.stored(arrays, dataset.graph.types, facts, settings)
    return EvidenceGraph.counted(dataset.graph, facts, settings)


def train_facts(dataset: FewShotDataset, settings: EvidenceSettings) -> IntArray:
    """The facts of train tasks [n, 3], which are known facts, unless the settings leave them out."""
    return dataset.task_triples("train") if settings.train_facts else np.zeros((0, 3), np.int32)


def own_index(dataset: FewShotDataset) -> Path | None:
    """Where the index is in the folder of a dataset, whether there is one or not; None without a folder."""
    return None if dataset.directory is None else dataset.directory / FOLDER


def cached_index(dataset: FewShotDataset, settings: EvidenceSettings) -> Path | None:
    """Where the index of a dataset is in the cache; nowhere, if it is not a dataset as it was opened."""
    if dataset.identity is None:
        return None
    digest = hashlib.sha256(json.dumps(_about(dataset, settings), sort_keys=True).encode()).hexdigest()[:16]
    return cache_directory() / f"evidence-{digest}"


def open_index(folder: Path, dataset: FewShotDataset) -> Arrays:
    """The arrays of an index: every file is verified, then small ones are read and large ones mapped."""
    paths = {folder / name: about for name, about in files_in(_manifest(folder), folder / MANIFEST).items()}
    mapped = [path for path in paths if path.is_file() and is_mapped(path)]
    dataset.mapped.add(mapped)
    check_files(paths, INDEX_AGAIN)
    # Copied on write, although nobody writes: loops would be compiled once more for arrays that are read-only.
    arrays = {path.stem: open_array(path, copied_on_write=True) for path in paths}
    dataset.mapped.check()  # what is mapped now is what was verified
    return arrays


def _about(dataset: FewShotDataset, settings: EvidenceSettings) -> dict[str, Any]:
    """What an index is made from; it is valid for nothing else."""
    chosen = {name: getattr(settings, name) for name in COUNTED_WITH}
    return {"format": FORMAT, "hire": __version__, "dataset": dataset.identity, "settings": chosen}


def _manifest(folder: Path) -> dict[str, Any]:
    return read_record(folder / MANIFEST, INDEX_AGAIN)


def _describes(folder: Path, dataset: FewShotDataset, settings: EvidenceSettings) -> bool:
    """Whether there is an index in a folder, and for these settings."""
    if not (folder / MANIFEST).exists():
        return False
    manifest = _manifest(folder)
    return all(manifest.get(name) == value for name, value in _about(dataset, settings).items())


def _cached(folder: Path, dataset: FewShotDataset, settings: EvidenceSettings, facts: IntArray) -> Arrays | None:
    """The arrays of an index in the cache, made now if it is missing or damaged; None without a cache."""
    try:
        return open_index(folder, dataset)
    except HireError:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_index(folder, dataset, settings, facts)
    except (HireError, OSError):  # no room for it, or another process was faster
        pass
    try:
        return open_index(folder, dataset)
    except HireError:
        return None


def index_dataset(dataset: FewShotDataset, settings: EvidenceSettings, *, overwrite: bool = False) -> dict[str, int]:
    """Write the index of a dataset into its folder; its size in nodes, edges and bytes."""
    folder = own_index(dataset)
    if folder is None:
        raise HireError("the dataset has no folder", file=dataset.name, remedy="hire data build makes one")
    write_index(folder, dataset, settings, train_facts(dataset, settings), overwrite=overwrite)
    files = files_in(_manifest(folder), folder / MANIFEST)
    return {
        "nodes": len(dataset.graph.entities),
        "edges": len(open_array(folder / "targets.npy")),
        "bytes": sum(about["bytes"] for about in files.values()),
    }


def write_index(
    folder: Path,
    dataset: FewShotDataset,
    settings: EvidenceSettings,
    facts: IntArray,
    *,
    overwrite: bool = False,
    edges_at_once: int = EDGES_AT_ONCE,
) -> None:
    """Count a dataset's graph with more facts [n, 3], and write the index; complete or not at all."""
    with atomic_directory(folder, overwrite=overwrite, ours=[MANIFEST]) as partial:
        names, twins = same_names_of(dataset.graph, facts, settings.max_same_name)
        more = np.concatenate([np.asarray(facts, np.int64), twins])
        counted = _count_blocks(partial, dataset.graph, more, names, settings.max_fan_out, edges_at_once)
        for name in WRITTEN:
            counted[name] = open_array(partial / f"{name}.npy")
        counted["levels"] = _write_levels(partial, counted, edges_at_once)
        graph = EvidenceGraph.stored(counted, dataset.graph.types, facts, settings)
        for name, array in graph.arrays().items():
            if not (partial / f"{name}.npy").exists():
                save_array(partial / f"{name}.npy", array)
        write_record(partial / MANIFEST, _about(dataset, settings) | {"files": describe_files(partial)})


def _count_blocks(
    folder: Path,
    graph: KnowledgeGraph,
    more: IntArray,
    names: SameNames | None,
    max_fan_out: int,
    edges_at_once: int,
) -> Arrays:
    """Write all that is counted of one node after the other, and return what is counted of all of them."""
    known = len(graph.relations)
    relation_count = known if names is None else 2 * known + 1
    edge_type_count = 2 * relation_count
    edge_counts, source_counts = np.zeros((2, edge_type_count), np.int64)
    shares = TypeShares(graph.types, edge_type_count)
    with ExitStack() as stack:
        into = {name: stack.enter_context(ArrayWriter(folder / f"{name}.npy", kind)) for name, kind in WRITTEN.items()}
        for name in ("profile_offsets", "_profile_starts", "offsets"):
            into[name].append(np.zeros(1, np.int64))
        entries = edges = 0
        for block in blocks_of(graph, more, relation_count, max_fan_out, edges_at_once):
            nodes, edge_types = np.divmod(block.entries, edge_type_count)
            nodes -= block.first
            of_nodes = entries + np.cumsum(np.bincount(nodes, minlength=block.node_count))
            starts = edges + np.cumsum(block.walked)
            into["profile_keys"].append(block.entries)
            into["profile_counts"].append(block.counts)
            into["profile_edge_types"].append(edge_types)
            into["profile_offsets"].append(of_nodes)
            into["_profile_starts"].append(starts)
            into["offsets"].append(np.append(edges, starts)[of_nodes - entries])
            into["edge_types"].append(block.edge_types)
            into["targets"].append(block.targets)
            into["degrees"].append(np.bincount(nodes, block.counts, minlength=block.node_count))
            edge_counts += np.bincount(edge_types, block.counts, minlength=edge_type_count).astype(np.int64)
            source_counts += np.bincount(edge_types, minlength=edge_type_count)
            shares.add(block.entries, block.counts)
            entries, edges = entries + len(block.entries), edges + len(block.targets)
    found: Arrays = {"edge_counts": edge_counts, "source_counts": source_counts}
    found["sizes"] = np.array([len(graph.entities), relation_count, known])
    found |= {f"type_shares_{i}": part for i, part in enumerate(shares.shares(edge_counts))}
    return found if names is None else found | names.arrays()


def _write_levels(folder: Path, counted: Arrays, edges_at_once: int) -> NDArray[Any]:
    """The levels of fan-outs at both ends of every edge, written when all nodes have been counted."""
    relation_count = int(counted["sizes"][1])
    offsets, of_profiles, fan_outs = (counted[f"profile_{name}"] for name in ("offsets", "edge_types", "counts"))
    starts = counted["_profile_starts"]
    with ArrayWriter(folder / "levels.npy", np.int16, width=2) as into:
        for first in range(0, len(counted["targets"]), edges_at_once):
            edge_types, targets = (counted[name][first : first + edges_at_once] for name in ("edge_types", "targets"))
            both = np.empty((len(targets), 2), np.float32)
            owners = np.searchsorted(starts, [first, first + len(targets) - 1], side="right") - 1
            walked = np.diff(np.clip(starts[owners[0] : owners[1] + 2], first, first + len(targets)))
            both[:, 0] = np.repeat(fan_outs[owners[0] : owners[1] + 1], walked)
            back = np.empty(len(targets), np.float32)
            fan_outs_back(offsets, of_profiles, fan_outs, edge_types, targets, relation_count, back)
            both[:, 1] = back
            into.append(fan_out_levels(both))
    return open_array(folder / "levels.npy")
