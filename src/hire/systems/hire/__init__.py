"""HiRe, the paper's system: context, triplet and entity level, MAML."""
