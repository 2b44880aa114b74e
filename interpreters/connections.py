"""How requests get to one server: straight, or through a proxy of the environment. Redirects are never followed:
neither key nor prompt goes where nobody pointed. Time is limited by who waits for the answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import aiohttp
import httpx2

from interpreters.eager_request import EagerRequest


class Answer(NamedTuple):
    """What a server sent. `headers` are found by names in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str


class Connection(Protocol):
    """Open connections to one address."""

    async def post(self, content: bytes) -> Answer:
        """Send JSON. Raises aiohttp.ClientError, httpx2.HTTPError, OSError or ValueError where no answer comes."""
        ...

    async def aclose(self) -> None:
        """Close them."""
        ...


class Direct:
    """Straight to the server, by an aiohttp session. As many connections as are asked for: the loop limits calls."""

    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext):
        self._url = url
        self._headers = headers
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, request_class=EagerRequest)

    async def post(self, content: bytes) -> Answer:
        """Send JSON. Raises aiohttp.ClientError, OSError or ValueError where no answer comes."""
        async with self._session.post(
            self._url,
            data=content,
            headers=self._headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(),
        ) as answer:
            return Answer(answer.status, answer.headers, _text(await answer.read(), answer.charset))

    async def aclose(self) -> None:
        """Close the session."""
        await self._session.close()


class Proxied:
    """Through the proxies of the environment, by the openai package's HTTP client, which knows all their kinds.

    A request costs twice as much processor time as a direct one. Raises httpx2.InvalidURL or ValueError where a proxy
    is no address.
    """

    def __init__(self, url: httpx2.URL, headers: Mapping[str, str], tls: ssl.SSLContext):
        import openai

        self._url = url
        self._headers = headers
        self._client = openai.DefaultAioHttpClient(verify=tls, timeout=None, follow_redirects=False)

    async def post(self, content: bytes) -> Answer:
        """Send JSON. Raises httpx2.HTTPError, aiohttp.ClientError, OSError or ValueError where no answer comes."""
        headers = {**self._headers, "Content-Length": str(len(content))}
        answer = await self._client.send(httpx2.Request("POST", self._url, headers=headers, content=content))
        return Answer(answer.status_code, answer.headers, answer.text)

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.aclose()


def _text(body: bytes, charset: str | None) -> str:
    """A body as text; UTF-8 where its charset is none that Python knows."""
    try:
        return body.decode(charset or "utf-8", "replace")
    except (LookupError, UnicodeError):
        return body.decode("utf-8", "replace")
