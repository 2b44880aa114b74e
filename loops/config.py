"""The run config: one closed YAML file says everything that decides a run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BeforeValidator, Field

from evidence.contracts import CaseFile
from evidence.errors import ConfigError, did_you_mean
from evidence.registry import ADAPTERS, INTERPRETERS, POLICIES, SIMULATORS, Registry
from evidence.strict_yaml import Place, below, key_lines, parse_value, read_value
from evidence.values import Name, Number, Value, sha256_of


class Component(Value):
    """A component by its registered name, and its options."""

    name: Name
    options: dict[str, Any] = {}


def _from_name(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[Component, BeforeValidator(_from_name)]


class Prices(Value):
    """What a model costs, for a million tokens of the prompt and of the completion."""

    prompt: Number = Field(ge=0)
    completion: Number = Field(ge=0)
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")


class Model(Component):
    """An interpretation model: a registered interpreter, its options, and its prices if they are to be counted."""

    prices: Prices | None = None


NamedModel = Annotated[Model, BeforeValidator(_from_name)]


class Budget(Value):
    """What may be measured in one case: a number of measurements and, if given, their total cost."""

    measurements: int = Field(default=1, ge=1)
    cost: Number | None = Field(default=None, gt=0)


class Attempts(Value):
    """How often one call may be tried while the server fails: rate limits, server errors, timeouts, connections.

    The n-th retry waits `backoff_s` x 2^(n-1) seconds, or what the server asks for. A server that asks for more than
    `max_wait_s` stops the run, which can be resumed.
    """

    max_attempts: int = Field(default=3, ge=1, le=20)
    backoff_s: Number = Field(default=1.0, ge=0)
    max_wait_s: Number = Field(default=60.0, ge=0)


class Limits(Value):
    """What a whole run may use; reaching one stops it cleanly, and it can be resumed with a higher one.

    `calls`, `tokens` (in and out together) and `cost` (in the currency of the interpreter's prices) count what earlier
    starts of the run used; `wall_time_s` counts from each start anew.
    """

    calls: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    cost: Number | None = Field(default=None, gt=0)
    wall_time_s: Number | None = Field(default=None, gt=0)

    @property
    def counted(self) -> bool:
        """Whether something but time is limited, so that calls have to be counted."""
        return (self.calls, self.tokens, self.cost) != (None, None, None)


class CommonConfig(Value):
    """What every run's config says: who is asked, how often, and within what limits."""

    version: int = Field(ge=1, le=1)
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    interpreter: NamedModel
    repairs: int = Field(default=1, ge=0, le=10)
    attempts: Attempts = Attempts()
    limits: Limits = Limits()
    repeats: int = Field(default=1, ge=1, le=10_000)
    seed: int = 0
    concurrency: int = Field(default=1, ge=1, le=1000)
    processes: int | None = Field(default=None, ge=1, le=64)


class RunConfig(CommonConfig):
    """One run of the loop. Paths are relative to the config file."""

    cases: str
    data: str | None = None
    simulator: Named | None = None
    adapter: Named = Component(name="none")
    policy: Named = Component(name="model")
    modalities: tuple[Literal["table", "figure"], ...] = Field(default=("table", "figure"), min_length=1)
    review: bool = True
    budget: Budget = Budget()


C = TypeVar("C", bound=CommonConfig)


def rename(config: C, name: str) -> C:
    """The config under another name. Raises ConfigError for a name no run folder may have."""
    plain = {**config.model_dump(mode="json"), "name": name}
    return parse_value(json.dumps(plain), type(config), where=f"--name {name!r}", as_json=True)


NOT_PART_OF_THE_RESULT = ("concurrency", "processes", "attempts", "limits")
"""Keys that a resumed run may change: they decide how fast and how far it goes, not what it gives."""


class Loaded(NamedTuple):
    """A config, its file, and what it names: the case file and its hash, resolved paths, components ready to use."""

    path: Path
    config: RunConfig
    case_file: CaseFile
    case_path: Path
    case_sha256: str
    data: Path | None
    simulator: Any
    adapter: Any
    interpreter: Any
    policy: Any


def load_config(source: str, *, shipped: Path, instead: RunConfig | None = None) -> Loaded:
    """Load a config by path, or a shipped one by name. Raises ConfigError naming file and field.

    `instead` is taken in place of what the file says; its paths are still relative to the file.
    """
    path = find_config(source, shipped)
    config = instead or read_value(path, RunConfig, what="config")
    where = f"config {path}"
    case_path = rooted(path.parent, config.cases, f"{where}: cases")
    case_file = read_value(case_path, CaseFile, what="case file")
    data = None if config.data is None else rooted(path.parent, config.data, f"{where}: data")
    lines = key_lines(path) if instead is None else {}
    problems: list[str] = []

    def made(registry: Registry, key: str, base: Path | None = None) -> Any:
        component = getattr(config, key)
        if component is None:
            return None
        try:
            return build(registry, component, f"{where}: {key}", base, below(lines, key, "options"))
        except ConfigError as error:
            problems.append(str(error))

    loaded = Loaded(
        path=path.resolve(),
        config=config,
        case_file=case_file,
        case_path=case_path,
        case_sha256=sha256_of(case_path.read_bytes()),
        data=data,
        simulator=made(SIMULATORS, "simulator", path.parent),
        adapter=made(ADAPTERS, "adapter"),
        interpreter=made(INTERPRETERS, "interpreter", path.parent),
        policy=made(POLICIES, "policy"),
    )
    if problems:
        raise ConfigError("\n".join(problems))
    if not set(config.modalities) & loaded.interpreter.modalities:
        raise ConfigError(
            f"{where}: modalities: interpreter {config.interpreter.name!r} reads "
            f"{sorted(loaded.interpreter.modalities)}, and the run would show it only {sorted(config.modalities)}"
        )
    return loaded


def build(
    registry: Registry,
    component: Component,
    where: str,
    base: Path | None = None,
    lines: Mapping[Place, int] | None = None,
) -> Any:
    """Check a component's options against its own type and construct it. Raises ConfigError.

    `lines`: where in the config's file each option stands.
    """
    try:
        kind = registry.get(component.name)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    options = parse_value(
        json.dumps(component.options), kind.Options, where=f"{where}.options", as_json=True, lines=lines
    )
    return kind(_rooted(options, base))


def _rooted(options: Value, base: Path | None) -> Value:
    """The options with relative paths made relative to the config file's folder."""
    paths = {name: value for name, value in options if isinstance(value, Path)}
    if base is None or not paths:
        return options
    return options.model_copy(update={name: (base / path.expanduser()).resolve() for name, path in paths.items()})


def rooted(base: Path, text: str, where: str) -> Path:
    """A path of a config, relative to the config's folder. Raises ConfigError where nothing is there."""
    try:
        path = (base / Path(text).expanduser()).resolve()
        path.stat()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{where}: {text[:200]!r} does not exist ({getattr(error, 'strerror', None) or error})"
        ) from error
    return path


def find_config(source: str, shipped: Path, *, beside: Path | None = None) -> Path:
    """The file of a config, by path (relative to `beside`) or by the name of a shipped one. Raises ConfigError."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        path = (beside or Path()) / Path(source).expanduser()
        if path.is_file():
            return path
    named = shipped / f"{source}.yaml"
    if "/" not in source and named.is_file():
        return named
    names = [p.stem for p in shipped.glob("*.yaml")]
    raise ConfigError(
        f"no config file {source[:200]!r}, and no shipped config of that name.{did_you_mean(Path(source).stem, names)}"
    )
