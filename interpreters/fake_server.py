"""A scripted OpenAI-compatible server on this machine, for tests and dry runs. Standard library only.

    def script(request: dict) -> Served:
        return chat('{"answers": ...}') if len(request["messages"]) > 1 else failure(429, "slow down")

    with FakeServer(script) as server:
        ...  # point a client at server.base_url; server.received holds what came

The script is a function from the JSON of the request to what is served, or a list of `Served` in order. It can serve
any status, headers and body, wait, never answer, or break the connection. The server listens on 127.0.0.1 only.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from evidence.errors import ConfigError


class Served(NamedTuple):
    """What the server does with one request.

    `body`: JSON data, or text or bytes as they are. `action`: "reply"; "hang" takes the request and never answers;
    "reset" breaks the connection without an answer. `delay_s` is waited before the action.
    """

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    delay_s: float = 0.0
    action: Literal["reply", "hang", "reset"] = "reply"


class ReceivedCall(NamedTuple):
    """One request as it came: method, path, headers (names in lower case), and the JSON body (None if it is none)."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


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
    """The server as a context manager. `received` lists the calls in the order they came."""

    def __init__(self, script: Script):
        self.script = script
        self.received: list[ReceivedCall] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server: _QuietServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """Where a client has to point, such as http://127.0.0.1:40001/v1."""
        if self._server is None:
            raise ConfigError("the fake server is not running; use it as `with FakeServer(script) as server:`")
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._closing.clear()
        self._server = _QuietServer(("127.0.0.1", 0), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, name="fake-server", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
        self._server = self._thread = None

    def wait_closing(self, seconds: float | None) -> bool:
        """Wait until the server closes, at most so long; whether it closes."""
        return self._closing.wait(seconds)

    def serve(self, call: ReceivedCall) -> Served:
        """Record a call and decide what is served. A script that fails or has run out serves a 500 that says so."""
        with self._lock:
            number = len(self.received)
            self.received.append(call)
            if callable(self.script):
                try:
                    return self.script(call.body if isinstance(call.body, dict) else {})
                except Exception as error:
                    return failure(500, f"the script of the fake server failed: {error!r}")
            if number < len(self.script):
                return self.script[number]
            return failure(
                500, f"the script of the fake server has {len(self.script)} entries; this is call {number + 1}"
            )


class _QuietServer(ThreadingHTTPServer):
    """Threads end with the process, and a client that goes away is no news."""

    daemon_threads = True
    fake: FakeServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A broken connection is what some scripts are for."""


class _Handler(BaseHTTPRequestHandler):
    """One connection carries one request (HTTP/1.0), so that nothing stays open when the server closes."""

    server: _QuietServer

    def do_POST(self) -> None:
        """Serve a call."""
        self._handle()

    def do_GET(self) -> None:
        """Serve a call without a body."""
        self._handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the base class's)
        """Print nothing."""

    def _handle(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        served = self.server.fake.serve(ReceivedCall(self.command, self.path, headers, _json(raw)))
        if served.delay_s and self.server.fake.wait_closing(served.delay_s):
            return
        if served.action == "hang":
            self.server.fake.wait_closing(None)
        elif served.action == "reset":
            self._reset()
        else:
            self._reply(served)

    def _reply(self, served: Served) -> None:
        body = served.body
        if not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")
        self.send_response_only(served.status)
        for name, value in {"Content-Type": "application/json", **served.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None
