"""Reasoning accuracy, split by whether the same image was perceived rightly (SPUR, Table 5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from evidence.errors import ContractError
from scoring.clusters import ClusterMean, cluster_accuracy
from scoring.intervals import DRAWS


class ByPerception(NamedTuple):
    """Accuracy on reasoning items of images perceived rightly and wrongly; items of images never asked are counted."""

    perceived: ClusterMean
    not_perceived: ClusterMean
    n_without_perception: int


def by_perception(
    *,
    reasoning_right: Sequence[bool],
    reasoning_images: Sequence[Hashable],
    perception_right: Sequence[bool],
    perception_images: Sequence[Hashable],
    seed: int,
    draws: int = DRAWS,
) -> ByPerception:
    """Split reasoning items by their image: perceived rightly if every perception item of that image was right.

    Items of images without a perception item belong to neither side. Images are the clusters of the intervals. SPUR
    does not print its rule for images with several perception items; all of them right is ours.
    """
    if len(reasoning_right) != len(reasoning_images) or len(perception_right) != len(perception_images):
        raise ContractError("expected one image for every reasoning and every perception item")
    seen: dict[Hashable, list[bool]] = defaultdict(list)
    for right, image in zip(perception_right, perception_images, strict=True):
        seen[image].append(bool(right))
    sides: dict[bool, list[tuple[bool, Hashable]]] = {True: [], False: []}
    without = 0
    for right, image in zip(reasoning_right, reasoning_images, strict=True):
        if image in seen:
            sides[all(seen[image])].append((bool(right), image))
        else:
            without += 1
    means = {
        side: cluster_accuracy([right for right, _ in rows], [image for _, image in rows], seed=seed, draws=draws)
        for side, rows in sides.items()
    }
    return ByPerception(means[True], means[False], without)
