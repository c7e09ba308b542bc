"""The levels of the paper, one file each: context, triplet, entity."""
