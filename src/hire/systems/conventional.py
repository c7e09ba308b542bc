"""Conventional embeddings as few-shot systems: TransE, TransH, DistMult, ComplEx and ComplEx-N3.

A conventional model has one vector for each relation and knows no relation that was not in its training graph. It
becomes a few-shot system in one of two ways:

- By default the graph of training is the background graph with the facts of the train tasks. A relation is taught
  afterwards: with all entities fixed, `adapt` fits its vector to the references. One model serves any relation and any
  number of references.
- With `training.shots`, the references of all dev and test tasks are in the graph of training as well, as in the
  comparison of HiRe's paper. The vector of such a relation is the trained one; any other is fitted as above.

The scores and the training are those of `hire.embeddings`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hire.data.dataset import FewShotDataset
from hire.embeddings.scores import EmbeddingName, logits
from hire.embeddings.settings import EmbeddingSettings
from hire.embeddings.trainer import EmbeddingTrainer, TripleBatch
from hire.errors import HireError
from hire.optim.settings import SelectionSettings
from hire.systems.base import Capability, FewShotSystem, Recipe, Resources, Support, SystemTrainer, as_tensor, in_blocks
from hire.systems.episodic.drawing import adaptation_negatives
from hire.util.arrays import IntArray
from hire.util.ranges import Batch, Natural, Rate, Shots, Weight
from hire.util.settings import Settings

LEAST_SPREAD = 1e-3  # of a dimension over all relations


@dataclass(frozen=True)
class ConventionalTrainingSettings(EmbeddingSettings):
    """How embeddings are learned, and of which graph."""

    shots: tuple[Shots, ...] | None = None  # one K, to learn the first K references of all dev and test tasks, too


@dataclass(frozen=True)
class FittingSettings(Settings):
    """How the vector of a relation that was not in training is found."""

    steps: Natural = 100  # of Adam
    learning_rate: Rate = 0.1  # in units of the spread of trained relations, falling linearly to 0
    negatives: Batch = 512  # of the candidates
    prior: Weight = 1.0  # how strongly a relation is held near the trained ones; 0 for not at all


@dataclass(frozen=True)
class ConventionalSettings(Settings):
    """All settings."""

    training: ConventionalTrainingSettings = field(default_factory=ConventionalTrainingSettings)
    fitting: FittingSettings = field(default_factory=FittingSettings)
    selection: SelectionSettings = field(default_factory=lambda: SelectionSettings(evaluate_every=1_000))


class Learned(NamedTuple):
    """What training gives; widths are those of `hire.embeddings.scores.widths`."""

    entities: Tensor  # [entities, width]
    relations: Tensor  # [2 * relations, width]: inverses behind the others; random where a relation was not in training
    prior: Tensor  # [2, width]: mean and standard deviation over the background and train relations
    references: Tensor  # [n, 3]: those of dev and test tasks that were in training


class Conventional(FewShotSystem):
    """score(h, t) = the model's score of (h, r, t); the state is the vector of r."""

    model: ClassVar[EmbeddingName]  # the score function
    settings_type: ClassVar[type[ConventionalSettings]]
    capabilities: frozenset[Capability] = frozenset({"vectors"})
    recipes: ClassVar[Mapping[Recipe, Mapping[str, Any] | str]] = {
        "common": {},
        "published": {"training.shots": [5]},  # the comparison of HiRe's paper: references are in the training graph
    }

    def __init__(self, settings: ConventionalSettings, learned: Learned) -> None:
        self.settings = settings
        self.learned = learned

    def adapt(self, support: Support) -> Tensor:
        """The vector of the relation, [width]: the one of training if it was learned from these references alone."""
        relation = -1 if support.relation is None else support.relation
        trained = self.learned.references[self.learned.references[:, 1] == relation]
        before, now = ({(int(h), int(t)) for h, t in pairs} for pairs in (trained[:, [0, 2]], support.pairs))
        if not before <= now:
            raise HireError(
                f"the system was trained with {len(before)} references of a relation that is now given others, "
                "so that it would be asked about facts it has seen",
                remedy=f"evaluate it with --shots {len(before)} and without --draws, or train without training.shots",
            )
        return self.learned.relations[relation] if before == now else self._fitted(support)

    def _fitted(self, support: Support) -> Tensor:
        """The most probable vector, given that the references rank before other candidates.

        A vector's prior is a normal distribution with the mean and spread of the trained relations.
        """
        settings, count = self.settings.fitting, len(self.learned.entities)
        pairs = support.pairs[np.lexsort(support.pairs.T)]  # the same sums in whatever order they are given
        size = count if support.candidates is None else len(support.candidates)
        seed = self.settings.training.seed
        false = adaptation_negatives(seed, pairs[:, 1], size, support.candidates, settings.negatives)
        heads, tails, negatives = (self.vectors(ids) for ids in (pairs[:, 0], pairs[:, 1], false))
        mean, spread = self.learned.prior.unbind()
        shift = torch.zeros_like(mean, requires_grad=True)  # [width]: from the mean, in units of the spread
        optimizer = torch.optim.Adam([shift], settings.learning_rate)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / settings.steps, settings.steps - 1)
        correction = math.log(size / len(false))  # the sample stands for all candidates
        with torch.enable_grad():
            for _ in range(settings.steps):
                relation = mean + spread * shift
                true = self._logits(heads[:, None], relation, tails[:, None])[:, 0]  # [shots, 1]
                other = self._logits(heads, relation, negatives) + correction  # [shots, negatives]
                losses = torch.cat([true, other], dim=1).logsumexp(dim=1) - true[:, 0]  # [shots]
                value = losses.sum() + settings.prior * shift.square().sum() / 2
                (shift.grad,) = torch.autograd.grad(value, [shift])
                optimizer.step()
                schedule.step()
        return (mean + spread * shift).detach()

    def _logits(self, heads: Tensor, relation: Tensor, tails: Tensor) -> Tensor:
        relations = relation.expand(*heads.shape[:-1], -1)
        return logits(self.model, self.settings.training.margin, heads, relations, tails)

    def score(self, state: Tensor, heads: IntArray, tails: IntArray) -> Tensor:
        """The score of each triple, [heads, tails]."""
        of_heads = self.vectors(heads)
        return in_blocks(
            lambda tails: self._logits(of_heads, state, self.vectors(tails)).cpu(),
            tails,
            self.learned.entities.shape[1],
        )

    def vectors(self, entities: IntArray) -> Tensor:
        """The embeddings of some entities."""
        return self.learned.entities[as_tensor(entities).to(self.learned.entities.device)].float()

    def tensors(self) -> dict[str, Tensor]:
        """What training gave."""
        return self.learned._asdict()

    @classmethod
    def restore(
        cls,
        dataset: FewShotDataset,
        settings: ConventionalSettings,
        tensors: dict[str, Tensor],
        device: torch.device | str = "cpu",
    ) -> Conventional:
        """With the weights that were saved."""
        return cls(settings, Learned(**{name: tensors[name].to(device) for name in Learned._fields}))

    @classmethod
    def trainer(
        cls, dataset: FewShotDataset, settings: ConventionalSettings, resources: Resources
    ) -> ConventionalTrainer:
        """A trainer of entities and relations at once."""
        return ConventionalTrainer(cls, dataset, settings, resources.device)


class ConventionalTrainer(EmbeddingTrainer, SystemTrainer[TripleBatch, nn.Module]):
    """Learns embeddings of the background graph, the facts of train tasks and, with `shots`, the references."""

    def __init__(
        self,
        kind: type[Conventional],
        dataset: FewShotDataset,
        settings: ConventionalSettings,
        device: torch.device | str = "cpu",
    ) -> None:
        training = settings.training
        if training.model != kind.model:
            raise HireError(
                f"training.model is {training.model!r}, but the system is {kind.name!r}",
                remedy=f"leave it at {kind.model!r}, or choose another system",
            )
        shots = training.shots or ()
        if len(shots) > 1:
            raise HireError(
                f"training.shots has {len(shots)} numbers: with the references of the largest in training, "
                "a ranking with fewer would ask about facts that were seen",
                remedy="train one system for each number of references",
            )
        self.kind, self.all_settings, self.selection = kind, settings, settings.selection
        self.shots = shots or SystemTrainer.shots
        known = np.concatenate([dataset.graph.triples, dataset.task_triples("train")])
        relations = np.unique(known[:, 1])
        self._known_relations = np.concatenate([relations, relations + len(dataset.graph.relations)])
        references = [dataset.task_triples(split, *shots) for split in ("dev", "test") if shots]
        self.references = np.concatenate([known[:0], *references])
        graph = dataset.graph.extended([], np.concatenate([known[len(dataset.graph.triples) :], self.references]))
        super().__init__(graph, training, device)

    def system(self) -> Conventional:
        """The system as it is now."""
        relations = self.relations.averaged()
        of_known = relations[as_tensor(self._known_relations).to(relations.device)]
        prior = torch.stack([of_known.mean(dim=0), of_known.std(dim=0).clamp_min(LEAST_SPREAD)])
        references = as_tensor(self.references).to(relations.device)
        return self.kind(self.all_settings, Learned(self.entities.averaged(), relations, prior, references))


@dataclass(frozen=True)
class TransESettings(ConventionalSettings):
    """Settings of TransE."""

    training: ConventionalTrainingSettings = field(default_factory=lambda: ConventionalTrainingSettings("transe"))
    fitting: FittingSettings = field(default_factory=lambda: FittingSettings(prior=0.1))


class TransE(Conventional):
    """score = margin - ||h + r - t||, with the dissimilarity d(h + r, t) of Eq. 1 of its paper as the L2 norm."""

    name = "transe"
    summary = "the relation translates heads to tails"
    paper = "Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NeurIPS 2013"
    model = "transe"
    settings_type = TransESettings


@dataclass(frozen=True)
class TransHSettings(ConventionalSettings):
    """Settings of TransH."""

    training: ConventionalTrainingSettings = field(default_factory=lambda: ConventionalTrainingSettings("transh"))
    fitting: FittingSettings = field(default_factory=lambda: FittingSettings(prior=0.01))


class TransH(Conventional):
    """score = margin - ||(h - w·h w) + d - (t - w·t w)||, the score f_r of its paper without the square.

    The normal w has length 1 (its Eq. 3) by construction; the soft constraints of Eq. 1 and 2 are left out.
    """

    name = "transh"
    summary = "the relation translates the projections of heads and tails on a hyperplane of its own"
    paper = "Wang et al., Knowledge Graph Embedding by Translating on Hyperplanes, AAAI 2014"
    model = "transh"
    settings_type = TransHSettings


@dataclass(frozen=True)
class DistMultSettings(ConventionalSettings):
    """Settings of DistMult."""

    training: ConventionalTrainingSettings = field(
        default_factory=lambda: ConventionalTrainingSettings("distmult", regularization=0.05)
    )
    fitting: FittingSettings = field(default_factory=lambda: FittingSettings(prior=0.3))


class DistMult(Conventional):
    """score = sum of h r t, the bilinear form of Eq. 2 of its paper with a diagonal matrix.

    It is regularized as ComplEx-N3 is; the L2 term of its paper did not help.
    """

    name = "distmult"
    summary = "the relation weights the dimensions of a product of head and tail"
    paper = "Yang et al., Embedding Entities and Relations for Learning and Inference in Knowledge Bases, ICLR 2015"
    model = "distmult"
    settings_type = DistMultSettings


@dataclass(frozen=True)
class ComplExSettings(ConventionalSettings):
    """Settings of ComplEx."""

    training: ConventionalTrainingSettings = field(
        default_factory=lambda: ConventionalTrainingSettings("complex", learning_rate=1e-2)
    )


class ComplEx(Conventional):
    """score = Re(sum of r h conj(t)), Eq. 9 of its paper; a vector's real half stands before its imaginary half."""

    name = "complex"
    summary = "DistMult with complex numbers, so that head and tail may play different parts"
    paper = "Trouillon et al., Complex Embeddings for Simple Link Prediction, ICML 2016"
    model = "complex"
    settings_type = ComplExSettings


@dataclass(frozen=True)
class ComplExN3Settings(ConventionalSettings):
    """Settings of ComplEx-N3."""

    training: ConventionalTrainingSettings = field(
        default_factory=lambda: ConventionalTrainingSettings("complex-n3", regularization=0.05)
    )
    fitting: FittingSettings = field(default_factory=lambda: FittingSettings(prior=0.3))


class ComplExN3(Conventional):
    """ComplEx, with the nuclear 3-norm of its paper as regularizer: the cubes of absolute values of h, r and t."""

    name = "complex-n3"
    summary = "ComplEx, regularized by the cubes of absolute values"
    paper = "Lacroix et al., Canonical Tensor Decomposition for Knowledge Base Completion, ICML 2018"
    model = "complex-n3"
    settings_type = ComplExN3Settings
