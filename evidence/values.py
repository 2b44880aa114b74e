"""The values that cross a border between parts of vcloop: closed, frozen, JSON-able.

Every value refuses unknown fields, wrong types, NaN and infinities, and survives a round trip through JSON.
Arrays and images are never inside a value: a figure is carried by the sha256 of its bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Held = TypeVar("Held")


class Value(BaseModel):
    """A closed, frozen, JSON-able value. Types are strict: `true` is not 1, and "3" is not 3."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class Same(Generic[Held]):
    """Equal only to itself: a key under which a cache holds what was made of one immutable object."""

    __slots__ = ("value",)

    def __init__(self, value: Held):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value


def _number_text(value: object) -> object:
    # YAML 1.1 reads 1e-3 as text; a number field takes it as the number it is.
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


Number = Annotated[float, BeforeValidator(_number_text)]
"""A finite float in a config; YAML's `1e-3`, which arrives as text, counts as a number."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: object) -> str:
    """One text for one value: sorted keys, no blanks, no NaN. Accepts values and plain JSON data."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return _CANONICAL.encode(plain)


def sha256_of(value: bytes | str | BaseModel | Mapping[str, Any]) -> str:
    """Hex sha256 of bytes, or of the canonical JSON of a value."""
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
    else:
        data = canonical_json(value).encode()
    return hashlib.sha256(data).hexdigest()


def derive_seed(seed: int, *names: str) -> int:
    """A 63-bit seed derived from a run seed and names (case, measurement, ...): order of use does not matter."""
    text = "\x1f".join((str(seed), *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
