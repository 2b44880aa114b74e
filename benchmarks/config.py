"""The configs of benchmark runs: closed YAML files beside the loop's, with the same keys for who is asked and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from benchmarks.items import ItemSet, load_item_set
from benchmarks.rubrics import L3Rubric
from benchmarks.strategies import StrategyName
from benchmarks.tracks import OptionOrder, Track, unfit
from evidence.errors import ConfigError
from evidence.registry import INTERPRETERS
from evidence.strict_yaml import below, key_lines, read_value
from evidence.values import Number
from loops.config import C, CommonConfig, build, find_config, rooted

SHIPPED = Path(__file__).resolve().parent.parent / "cases" / "bench"


class BenchConfig(CommonConfig):
    """One run over an item file. Paths are relative to the config file; images are beside the items by default."""

    items: str
    images: str | None = None
    title: str = ""
    track: Track = "mcq"
    options: OptionOrder = "given"
    strategy: StrategyName = "direct"


class JudgeConfig(CommonConfig):
    """A judge for the responses of open runs. Above `max_unscored` the result is marked as not valid."""

    l3: L3Rubric = "critique"
    max_unscored: Number = Field(default=0.05, ge=0, le=1)
    repairs: int = Field(default=2, ge=0, le=10)


class MineConfig(CommonConfig):
    """A model that rewrites wrong responses into distractors, and how many error groups of an item it may try."""

    candidates: int = Field(default=10, ge=5, le=100)
    repairs: int = Field(default=2, ge=0, le=10)


class LoadedBench(NamedTuple):
    """A config and what it names: the checked items, and the interpreter ready to use."""

    config: BenchConfig
    items: ItemSet
    items_file: str
    interpreter: Any


def load_bench(source: str) -> LoadedBench:
    """Load a config by path, or a shipped one by name. Raises ConfigError or DataError naming file and field."""
    path, config, interpreter = _load(source, BenchConfig)
    where = f"config {path}"
    items_path = rooted(path.parent, config.items, f"{where}: items")
    images = None if config.images is None else rooted(path.parent, config.images, f"{where}: images")
    items = load_item_set(items_path, images)
    problems = unfit(items.items, config.track)
    if problems:
        listed = "\n  ".join(problems[:20])
        raise ConfigError(f"{where}: {len(problems)} problem(s) with the track {config.track!r}:\n  {listed}")
    limit = getattr(getattr(interpreter, "options", None), "max_figure_bytes", None)
    heavy = [i for i in items.images.values() if limit is not None and i.n_bytes > limit]
    if heavy and config.track != "no_image":
        raise ConfigError(
            f"{where}: image {heavy[0].name!r} has {heavy[0].n_bytes} bytes, more than the interpreter's "
            f"max_figure_bytes ({limit}); {len(heavy)} such image(s)"
        )
    return LoadedBench(config, items, items_path.name, interpreter)


def load_judge(source: str) -> tuple[JudgeConfig, Any]:
    """Load a judge's config and its interpreter. A judge is asked at temperature 0. Raises ConfigError."""
    path, config, interpreter = _load(source, JudgeConfig)
    temperature = getattr(getattr(interpreter, "options", None), "temperature", None)
    if temperature not in (None, 0, 0.0):
        raise ConfigError(
            f"config {path}: interpreter: a judge is asked at temperature 0, got {temperature:g} (null leaves it out)"
        )
    return config, interpreter


def load_miner(source: str) -> tuple[MineConfig, Any]:
    """Load the config of a rewriting model and its interpreter. Raises ConfigError."""
    _, config, interpreter = _load(source, MineConfig)
    return config, interpreter


def _load(source: str, kind: type[C]) -> tuple[Path, C, Any]:
    path = find_config(source, SHIPPED)
    config = read_value(path, kind, what="config")
    lines = below(key_lines(path), "interpreter", "options")
    return path, config, build(INTERPRETERS, config.interpreter, f"config {path}: interpreter", path.parent, lines)
