"""A file on a server, as the dataset catalogue states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Remote(NamedTuple):
    """A file on a server. sha256 and size are None where the source states none.

    members: for an archive, member path -> file name to unpack it to; empty for a file that is used as it is.
    """

    url: str
    file: str
    sha256: str | None = None
    size: int | None = None
    members: Mapping[str, str] = {}
