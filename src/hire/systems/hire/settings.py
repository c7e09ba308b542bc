"""HiRe's settings: the model, its training, its optimizer, its embeddings, and the choice of the best step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hire.embeddings.settings import EmbeddingSettings
from hire.optim.settings import OptimizerSettings, SelectionSettings
from hire.systems.episodic.losses import LossName
from hire.systems.episodic.settings import EpisodeSettings
from hire.systems.hire.entity import Decoder
from hire.util.ranges import Batch, Count, Dropout, Few, Rate, Repeats, Scale, Share, Size, Weight
from hire.util.settings import Settings


@dataclass(frozen=True)
class HireModelSettings(Settings):
    """The architecture, and how its losses are computed."""

    dimension: Size = 100  # of entities, projections and the meta relation
    learner: Literal["set", "mean", "lstm"] = "set"  # MRL, and its ablations AVG and LSTM
    decoder: Decoder = "mtransd"  # of the entity level; mtranse and mtransh are ablations
    loss: LossName = "softmax"  # over shared negatives, or the paper's margin
    margin: Weight = 1.0  # gamma of Eq. 12 and 20, for the margin loss
    temperature: Scale = 8.0  # factor of distances before the softmax; learned from here
    residual: bool = True  # add the gated mean of t - h to the meta relation
    residual_shots: Few = 1  # references from which on that mean counts fully; of fewer it counts K / residual_shots
    learned_shifts: bool = True  # the learner also shifts r_p and the projections; else only the inner step does
    learner_start: Weight = 1.0  # initial factor of the learner's last layer: with a small one, R is mean(t - h)
    drop_path: Dropout = 0.2  # of the set attention block, while training
    dropout: Dropout = 0.0  # of single outputs of the meta relation learner, while training
    drop_relation: Dropout = 0.0  # of all its outputs for a task, while training: then h and t alone have to fit
    inner_steps: Repeats = 1  # of MAML; 0 leaves it out
    inner_rate: Rate = 0.1  # l_r of Eq. 13; learned for each dimension from here with the softmax loss
    inner_negatives: Batch = 512  # drawn from the candidates when a relation is learned after training
    full_negatives: Batch = 128  # candidates that each count fully in the softmax; for more of them see crowding
    crowding: Share = 0.5  # C > full_negatives candidates count as full_negatives * (C / full_negatives) ** crowding
    second_order: bool = True  # whether gradients flow through the inner steps
    reference_weight: Weight = 0.0  # of the loss on the references, before they are refined, in the objective
    context_weight: Weight = 0.05  # lambda of Eq. 21; 0 leaves the context level out
    context_temperature: Scale = 0.1  # tau of Eq. 5
    false_contexts: Few = 1  # N of Eq. 5
    context_heads: Few = 1  # of the self-attention over a context
    rejection_weight: Weight = 0.3  # of rejected pairs relative to the references; at 1, single rejections do harm
    facts_of_a_role: Count = 1_000  # facts of a relation that are used to embed new entities


@dataclass(frozen=True)
class HireTrainingSettings(EpisodeSettings):
    """What HiRe is trained with; the defaults are those of the preset `fast`."""

    context_references: Batch | None = 16  # for which the context loss is computed in a step; None for all


@dataclass(frozen=True)
class HireSettings(Settings):
    """All settings of HiRe."""

    model: HireModelSettings = field(default_factory=HireModelSettings)
    training: HireTrainingSettings = field(default_factory=HireTrainingSettings)
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(ema=0.05, clip=5.0))
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    selection: SelectionSettings = field(default_factory=lambda: SelectionSettings(evaluate_every=500))
