"""Parameters and multiplications of HiRe's three levels: the paper's formulas (its appendix) beside what is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hire.sampling.contexts import Tuples
from hire.systems.hire.entity import MetaRelation, Vectors, own_distances, translated
from hire.systems.hire.network import HireNetwork
from hire.systems.hire.settings import HireModelSettings

aten = torch.ops.aten
BY_ELEMENT = (aten.mul, aten.mul_, aten.div, aten.div_, aten.square, aten.pow)
TASKS = 4  # whose multiplications are counted: what a step does once for all of them is left out


@dataclass(frozen=True)
class Size:
    """What the formulas depend on."""

    references: int = 5  # n
    tuples: int = 100  # k: of the context of a triplet, at most 50 neighbors of each end
    dimension: int = 100  # d


SIZES = (Size(), Size(references=1), Size(references=3), Size(tuples=10), Size(tuples=50), Size(dimension=50))


@dataclass(frozen=True)
class Level:
    """A level: its formulas, and how to count."""

    name: str
    parameters: str
    operations: str
    value: Callable[[int, int, int], tuple[int, int]]  # of both formulas, for n, k, d
    work: Callable[[HireNetwork, Size, int], Any]  # what it does for so many tasks
    modules: Callable[[HireNetwork], list[nn.Module | nn.Parameter]]


@dataclass(frozen=True)
class Counted:
    """A level at one size: the values of the formulas, and what is counted."""

    level: str
    size: Size
    formula_parameters: int
    parameters: int
    formula_operations: int
    operations: int  # multiplications of the forward pass, for each task


def _of_elements(*_: Any, out_shape: Sequence[int], **__: Any) -> int:
    """FLOPs of a product element by element: the counter takes a multiplication for two, as in a matrix product."""
    return 2 * math.prod(out_shape)


def _vectors(size: Size, tasks: int) -> Vectors:
    return Vectors(*torch.randn(2, tasks, size.references, size.dimension))


def _contexts(network: HireNetwork, size: Size, tasks: int) -> Any:
    """The contexts of all references, no two tuples with the same entity."""
    if network.context is None:
        raise TypeError("the context level was left out")
    contexts = tasks * size.references
    count = contexts * size.tuples
    tuples = Tuples(torch.arange(count), torch.arange(count), torch.full((contexts,), size.tuples))
    return network.context(tuples, *torch.randn(2, count, size.dimension))


def _triplets(network: HireNetwork, size: Size, tasks: int) -> Tensor:
    heads, tails = _vectors(size, tasks), _vectors(size, tasks)
    meta: Tensor = network.learner(heads.embeddings, tails.embeddings)
    return meta


def _entities(network: HireNetwork, size: Size, tasks: int) -> Tensor:
    """One pair of each task."""
    one = replace(size, references=1)
    heads, tails = _vectors(one, tasks), _vectors(one, tasks)
    relation = MetaRelation(*torch.randn(4, tasks, size.dimension))
    moved = translated("mtransd", relation, heads)
    return own_distances("mtransd", relation, moved, Vectors(*(part.unsqueeze(-2) for part in tails)))


LEVELS = (
    Level(
        "context",
        "nkd + nk²",
        "nkd² + nk²d",
        lambda n, k, d: (n * k * d + n * k * k, n * k * d * d + n * k * k * d),
        _contexts,
        lambda network: [] if network.context is None else [network.context],
    ),
    Level(
        "triplet",
        "nd + n²",
        "nd² + n²d",
        lambda n, _, d: (n * d + n * n, n * d * d + n * n * d),
        _triplets,
        lambda network: [network.learner],
    ),
    Level("entity", "d", "d", lambda _n, _k, d: (d, d), _entities, lambda network: [network.direction]),
)


def count(sizes: tuple[Size, ...] = SIZES) -> list[Counted]:
    """Every level at every size."""
    with torch.random.fork_rng(devices=[]):
        return [_counted(level, size) for level in LEVELS for size in sizes]


def _counted(level: Level, size: Size) -> Counted:
    network = HireNetwork(HireModelSettings(dimension=size.dimension)).eval()
    values = level.value(size.references, size.tuples, size.dimension)
    own = _parameters(level.modules(network))
    return Counted(level.name, size, values[0], own, values[1], _operations(level, network, size))


def _parameters(modules: list[nn.Module | nn.Parameter]) -> int:
    each = (part.parameters() if isinstance(part, nn.Module) else [part] for part in modules)
    return sum(parameter.numel() for of_module in each for parameter in of_module)


@torch.no_grad()
def _operations(level: Level, network: HireNetwork, size: Size) -> int:
    """What one more task costs, so that what is done once for all tasks does not count."""
    counts = []
    for tasks in (TASKS, 2 * TASKS):
        counter = FlopCounterMode(display=False, custom_mapping=dict.fromkeys(BY_ELEMENT, _of_elements))
        with sdpa_kernel(SDPBackend.MATH), counter:  # attention as products that are counted
            level.work(network, size, tasks)
        counts.append(counter.get_total_flops() // 2)
    return (counts[1] - counts[0]) // TASKS
