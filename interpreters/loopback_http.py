"""The HTTP/1.1 part of the servers on this machine: one event loop, connections that stay open.

A handler is a function from a `ReceivedCall` to what is `Served`. It runs in the event loop and must not block: to wait
is part of what is served.
"""

from __future__ import annotations

import asyncio
import http
import json
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self, cast

import msgspec

HOST = "127.0.0.1"
_END_OF_HEAD = b"\r\n\r\n"
_MAX_HEAD = 65_536
_MAX_BODY = 64_000_000


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


Handler = Callable[[ReceivedCall], Served]


class LoopbackServer:
    """A server on 127.0.0.1, as an async context manager. `port` 0 takes a free one; `url` says which."""

    def __init__(self, handler: Handler, port: int = 0):
        self.handler = handler
        self.port = port
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()

    @property
    def url(self) -> str:
        """Where clients point, such as http://127.0.0.1:40001/v1."""
        return f"http://{HOST}:{self.port}/v1"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self.handler, self._open), HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._open):
                connection.abort()
            await self._server.wait_closed()
            await asyncio.sleep(0)  # lets the aborted connections end


class _Connection(asyncio.Protocol):
    """One connection: its requests are taken one after the other."""

    def __init__(self, handler: Handler, open_connections: set[_Connection]):
        self._handler = handler
        self._open = open_connections
        self._buffer = bytearray()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._open.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def abort(self) -> None:
        """Close at once, whatever is going on."""
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        """Serve the next whole request in the buffer, if there is one and no other is being served."""
        call = None if self._busy or self._transport is None else self._take()
        if call is None:
            return
        self._busy = True
        served = self._handler(call)
        if served.delay_s:
            self._timer = asyncio.get_running_loop().call_later(served.delay_s, self._act, served)
        else:
            self._act(served)

    def _take(self) -> ReceivedCall | None:
        head_end = self._buffer.find(_END_OF_HEAD)
        if head_end < 0:
            if len(self._buffer) > _MAX_HEAD:
                self._refuse(431)
            return None
        first, headers = _read_head(bytes(self._buffer[:head_end]))
        length = headers.get("content-length", "0")
        if len(first) != 3 or not length.isascii() or not length.isdigit():
            self._refuse(400)
            return None
        if "transfer-encoding" in headers:
            self._refuse(411)
            return None
        body_at = head_end + len(_END_OF_HEAD)
        end = body_at + int(length)
        if int(length) > _MAX_BODY:
            self._refuse(413)
            return None
        if len(self._buffer) < end:
            return None
        raw = bytes(self._buffer[body_at:end])
        del self._buffer[:end]
        return ReceivedCall(first[0], first[1], headers, _json(raw))

    def _act(self, served: Served) -> None:
        if self._transport is None or served.action == "hang":
            return
        if served.action == "reset":
            peer: socket.socket = self._transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
            return
        self._transport.write(_response(served))
        self._busy = False
        self._next()

    def _refuse(self, status: int) -> None:
        """Answer what is no request of ours, and close."""
        if self._transport is not None:
            self._busy = True
            self._transport.write(_response(Served({"error": {"message": "no request this server reads"}}, status)))
            self._transport.close()


def _read_head(head: bytes) -> tuple[list[str], dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first.split(" "), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _response(served: Served) -> bytes:
    body = served.body
    if not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")
    headers = {"Content-Type": "application/json", **served.headers, "Content-Length": str(len(body))}
    try:
        phrase = http.HTTPStatus(served.status).phrase
    except ValueError:
        phrase = ""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {served.status} {phrase}\r\n{lines}\r\n".encode("latin-1") + body


def _json(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        pass  # lone surrogates, for one, are JSON to Python
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
