"""Case files: made by a setting's `freeze`, written once, read strictly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from evidence.contracts import CaseFile
from evidence.datasets import cache_folder
from evidence.errors import ConfigError
from evidence.files import write_atomic
from evidence.registry import SETTINGS
from evidence.strict_yaml import read_value
from evidence.values import Value, canonical_json

V = TypeVar("V", bound=Value)


def freeze(setting: str, *, data: Path | None, shape: str, seed: int, options: Mapping[str, str]) -> CaseFile:
    """Freeze a case file with the setting's own rule. Raises ConfigError or DataError."""
    kind = SETTINGS.get(setting)
    maker = getattr(kind, "freeze", None)
    if maker is None:
        raise ConfigError(f"setting {setting!r} does not make case files: its class has no classmethod freeze")
    case_file: CaseFile = maker(data=data, shape=shape, seed=seed, options=dict(options))
    return case_file


def case_file_text(case_file: CaseFile) -> str:
    """The text of a case file: sorted keys, one entry a line, a newline at the end."""
    plain = case_file.model_dump(mode="json")
    return json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


def fetch_for(path: Path, dataset: str, say: Callable[[str], None]) -> Path:
    """Bring the part of a data set that a case file needs into the cache, where its setting knows how.

    Raises ConfigError for a setting that does not, DataError where it cannot be had.
    """
    case_file = read_value(path, CaseFile, what="case file")
    fetch = getattr(SETTINGS.get(case_file.setting), "fetch", None)
    if fetch is None:
        raise ConfigError(f"setting {case_file.setting!r} needs whole data sets: leave --cases out")
    folder = cache_folder(dataset)
    fetch(case_file, folder, say)
    return folder


def write_case_file(path: Path, case_file: CaseFile) -> None:
    """Write a case file. Raises ConfigError where one is there already: runs refer to it by its hash."""
    if path.exists():
        raise ConfigError(f"{path} exists; a frozen case file is not replaced: choose another name or remove it")
    write_atomic(path, case_file_text(case_file).encode())


def frozen_part(case_file: CaseFile, kind: type[V]) -> V:
    """What the setting froze, as its own value. Raises ConfigError naming the field."""
    try:
        return kind.model_validate_json(canonical_json(case_file.frozen))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ConfigError(f"case file {case_file.title!r}, field frozen.{where}: {first['msg']}") from error
