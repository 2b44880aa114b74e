"""Answer from a finished run: the same requests get the same replies, and nothing is paid twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from evidence.contracts import Reply, Request
from evidence.errors import ConfigError, ReplyError
from evidence.journal import read_call_journal
from evidence.values import Value
from interpreters.canonical import RequestWriter


class ReplayOptions(Value):
    """`run` is the folder of the archived run."""

    run: Path


class ReplayInterpreter:
    """Serve archived replies by the sha256 of the request and the repeat.

    Only replies that came whole are served: failures, cut and empty replies are not.
    """

    Options: ClassVar[type[Value]] = ReplayOptions
    modalities: ClassVar[frozenset[str]] = frozenset({"table", "figure"})
    metered: ClassVar[bool] = False

    def __init__(self, options: ReplayOptions):
        self.options = options
        self._replies: dict[tuple[str, int], Reply] | None = None

    def check(self) -> None:
        """Read the archive. Raises ConfigError where it is not one, ArchiveError where it cannot be read."""
        self.identity()
        self._load()

    def identity(self) -> dict[str, Any]:
        """The identity of the interpreter that gave the replies, so that the requests match."""
        path = self.options.run / "run.json"
        try:
            return dict(json.loads(path.read_text())["interpreter"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(f"interpreter 'replay': {path} is not the run.json of an archived run") from error

    async def ask(self, request: Request, blobs: Mapping[str, bytes], *, repeat: int) -> Reply:
        """The archived reply. Raises ReplyError where this request was never answered in the archive."""
        sha256 = RequestWriter(self.identity()).write(request).sha256
        reply = self._load().get((sha256, repeat))
        if reply is None:
            raise ReplyError(
                f"the archive {self.options.run} has no whole reply to this request (sha256 {sha256[:12]}..., repeat "
                f"{repeat}): config, case file, data or prompts differ from the archived run",
                step=request.step,
            )
        return reply.model_copy(update={"sent": {**reply.sent, "replayed_from": self.options.run.name}})

    def _load(self) -> dict[tuple[str, int], Reply]:
        if self._replies is None:
            records = read_call_journal(self.options.run / "calls.jsonl").records
            self._replies = {(r.request_sha256, r.repeat): r.reply for r in records if r.reply.status == "ok"}
        return self._replies
