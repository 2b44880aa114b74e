"""YAML read strictly: every problem of a file in one message, each with its line.

Repeated keys are refused (plain YAML lets the last one win), unknown keys get the nearest known name, and words that
YAML 1.1 turns into booleans (on, off, yes, no) are refused where text or a number was meant. Only plain data is built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from evidence.errors import ConfigError, did_you_mean
from evidence.values import Value

_SECRET = re.compile(r"key|token(?!s|_parameter)|secret|password", re.IGNORECASE)
V = TypeVar("V", bound=Value)
Place = tuple[str | int, ...]
MAX_BYTES = 50_000_000


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without dates: 2020-01-01 stays the text it is."""


_PLAIN_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.(?:inf|nan)\Z", re.I
    ),
}
"""YAML 1.1 would also read 010 as 8, 1:30 as 90 and 1_0 as 10: here they stay text."""

_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, _PLAIN_NUMBERS.get(tag, pattern)) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_value(path: Path, kind: type[V], *, what: str) -> V:
    """Read a YAML or JSON file as one value. Raises ConfigError that names the file, the lines and the fields."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{what} {path} has {len(data)} bytes; expected at most {MAX_BYTES}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} {path} is not UTF-8 text (byte {error.start})") from error
    return parse_value(text, kind, where=f"{what} {path}", as_json=path.suffix == ".json")


def key_lines(path: Path) -> dict[Place, int]:
    """The line of every place of a YAML file that was read before; none for another kind of file."""
    return {} if path.suffix == ".json" else _parse_yaml(path.read_text("utf-8-sig"), str(path))[1]


def below(lines: Mapping[Place, int], *keys: str) -> dict[Place, int]:
    """The lines of what stands below these keys, by its place there."""
    return {place[len(keys) :]: line for place, line in lines.items() if place[: len(keys)] == keys}


def parse_value(
    text: str, kind: type[V], *, where: str, as_json: bool = False, lines: Mapping[Place, int] | None = None
) -> V:
    """Parse text as one value; `where` names it in messages. Raises ConfigError.

    `lines`: of JSON that was made of a part of a file, the line of each of its places there.
    """
    plain, own, problems = _parse_json(text, where) if as_json else _parse_yaml(text, where)
    lines = own if lines is None else lines
    if not isinstance(plain, dict):
        raise ConfigError(f"{where}: expected a mapping of keys to values, got {type(plain).__name__}")
    try:
        value = kind.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        problems += [_problem(detail, plain, kind, lines) for detail in error.errors(include_url=False)]
        value = None
    if problems or value is None:
        listed = "\n".join(f"  {problem}" for problem in sorted(problems, key=_by_line))
        raise ConfigError(f"{where}: {len(problems)} problem{'s' * (len(problems) > 1)}\n{listed}")
    return value


def _check_finite(plain: object) -> None:
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError as error:
        raise ConfigError("a number is infinite or not a number (.inf, .nan)") from error


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not a number of JSON")


def _by_line(problem: str) -> tuple[int, str]:
    head = problem.partition(":")[0].removeprefix("line ")
    return (int(head) if head.isdigit() else 0, problem)


def _parse_json(text: str, where: str) -> tuple[Any, dict[Place, int], list[str]]:
    problems: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        problems.extend(f"repeated key {key!r}" for key in sorted({k for k in keys if keys.count(k) > 1}))
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=_refuse), {}, problems
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid JSON: {error}") from error


def _parse_yaml(text: str, where: str) -> tuple[Any, dict[Place, int], list[str]]:
    lines: dict[Place, int] = {}
    problems: list[str] = []
    try:
        root = yaml.compose(text, Loader=_PlainLoader)
        if root is None:
            raise ConfigError("the file is empty")
        _walk(root, (), lines, problems, set())
        plain = _PlainLoader("").construct_document(root)
        _check_finite(plain)
        return plain, lines, problems
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{where}: not valid YAML\n  {line}{error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{where}: not valid YAML: {error}") from error


def _walk(node: yaml.Node, place: Place, lines: dict[Place, int], problems: list[str], above: set[int]) -> None:
    """Note the line of every place; refuse repeated keys, keys that are not text, aliases that expand."""
    lines.setdefault(place, node.start_mark.line + 1)
    if id(node) in above:
        raise ConfigError(f"line {node.start_mark.line + 1}: a YAML alias refers to itself")
    for key, child in _children(node, problems):
        if (*place, key) in lines:
            problems.append(
                f"line {child.start_mark.line + 1}: repeated key {key!r} (first on line {lines[(*place, key)]})"
            )
            continue
        _walk(child, (*place, key), lines, problems, above | {id(node)})
        if len(lines) > 200_000:
            raise ConfigError("more than 200,000 entries: aliases that expand without end are refused")


def _children(node: yaml.Node, problems: list[str]) -> Iterator[tuple[str | int, yaml.Node]]:
    if isinstance(node, yaml.SequenceNode):
        yield from enumerate(node.value)
    elif isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in ("tag:yaml.org,2002:str",):
                shown = getattr(key, "value", "a list or mapping")
                problems.append(f"line {key.start_mark.line + 1}: key {shown!r} is not text (quote it)")
            else:
                yield key.value, child


def _problem(detail: Any, plain: Any, kind: type[Value], lines: Mapping[Place, int]) -> str:
    place: Place = tuple(detail["loc"])
    line = next((lines[place[:n]] for n in range(len(place), -1, -1) if place[:n] in lines), None)
    prefix = f"line {line}: " if line else ""
    name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".") or "the file"
    return prefix + _words(detail, name, place, kind)


def _words(detail: Any, name: str, place: Place, kind: type[Value]) -> str:
    got = "[redacted]" if _SECRET.search(str(place[-1:])) else detail.get("input")
    match detail["type"]:
        case "extra_forbidden":
            known = _fields_at(kind, place[:-1])
            return f"unknown key {place[-1]!r}." + did_you_mean(str(place[-1]), known)
        case "missing":
            return f"{name} is missing"
        case "string_type":
            hint = " (quote it)" if isinstance(got, bool | int | float) else ""
            return f"{name} must be text, got {_shown(got)}{hint}"
        case "int_type" | "int_from_float" | "int_parsing":
            return f"{name} must be an integer, got {_shown(got)}"
        case "float_type" | "float_parsing":
            return f"{name} must be a number, got {_shown(got)}"
        case "bool_type":
            return f"{name} must be true or false, got {_shown(got)}"
        case "value_error":
            return f"{name}: " + str(detail["msg"]).removeprefix("Value error, ")
        case _:
            return f"{name}: {detail['msg']}, got {_shown(got)}"


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(kind: type[Value], place: Place) -> list[str]:
    """The field names known at a place inside a value's type."""
    found: Any = kind
    for step in place:
        field = getattr(found, "model_fields", {}).get(step) if isinstance(step, str) else None
        if field is not None:
            found = _value_type(field.annotation)
    return list(getattr(found, "model_fields", {}))


def _value_type(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _value_type(inner)
        if found is not None:
            return found
    return None
