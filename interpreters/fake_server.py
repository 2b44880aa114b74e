"""A scripted OpenAI-compatible server on this machine, for tests and dry runs.

    def script(request: dict) -> Served:
        return chat('{"answers": ...}') if len(request["messages"]) > 1 else failure(429, "slow down")

    with FakeServer(script) as server:
        ...  # point a client at server.base_url; server.received holds what came

The script is a function from the JSON of the request to what is served, or a list of `Served` in order. It can serve
any status, headers and body, wait, never answer, or break the connection. The server listens on 127.0.0.1 only.
A server in its own process that answers by itself is interpreters.dry_server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from evidence.errors import ConfigError
from interpreters.loopback_http import LoopbackServer, ReceivedCall, Served

__all__ = ["FakeServer", "ReceivedCall", "Served", "chat", "failure"]

Script = Callable[[dict[str, Any]], Served] | Sequence[Served]


def chat(content: object = None, *, finish_reason: str | None = "stop", **message: object) -> Served:
    """A chat completion with this content; `message` adds fields to the message, such as refusal or reasoning."""
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, **message},
    }
    usage = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    body = {
        "id": "fake-1",
        "object": "chat.completion",
        "created": 0,
        "model": "fake",
        "choices": [choice],
        "usage": usage,
    }
    return Served(body)


def failure(status: int, message: str = "", *, headers: Mapping[str, str] | None = None, **error: object) -> Served:
    """An error in OpenAI's form: `error` gives code, param or type."""
    return Served({"error": {"message": message, **error}}, status, headers or {})


class FakeServer:
    """The server as a context manager, in a thread of its own. `received` lists the calls in the order they came."""

    def __init__(self, script: Script):
        self.script = script
        self.received: list[ReceivedCall] = []
        self._url: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """Where a client has to point, such as http://127.0.0.1:40001/v1."""
        if self._url is None:
            raise ConfigError("the fake server is not running; use it as `with FakeServer(script) as server:`")
        return self._url

    def __enter__(self) -> Self:
        running = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(running)), name="fake-server", daemon=True)
        self._thread.start()
        running.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._closing is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._url = self._loop = self._closing = self._thread = None

    async def _run(self, running: threading.Event) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with LoopbackServer(self._serve) as server:
                self._url = server.url
                running.set()
                await self._closing.wait()
        finally:
            running.set()  # a server that cannot start must not keep its user waiting

    def _serve(self, call: ReceivedCall) -> Served:
        """Record a call and decide what is served. A script that fails or has run out serves a 500 that says so."""
        number = len(self.received)
        self.received.append(call)
        if callable(self.script):
            try:
                return self.script(call.body if isinstance(call.body, dict) else {})
            except Exception as error:
                return failure(500, f"the script of the fake server failed: {error!r}")
        if number < len(self.script):
            return self.script[number]
        return failure(500, f"the script of the fake server has {len(self.script)} entries; this is call {number + 1}")
