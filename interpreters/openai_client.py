"""The client for OpenAI-compatible servers: one call of `ask` is one attempt, mapped to one Reply.

A request is written here and sent by interpreters.connections, which `check` imports. Waiting and retrying belong to
the loop, reading to interpreters.completions. Servers that refuse a setting are adapted to once (interpreters.wire);
every refused send is in `Reply.sent["adapted"]`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

import msgspec
from pydantic import ConfigDict, Field, field_serializer, field_validator

from evidence.contracts import Reply, Request
from evidence.errors import ConfigError
from evidence.values import Number, Positive, Value
from interpreters.completions import read_completion, read_error, read_failure
from interpreters.extract import clean
from interpreters.render import chat_messages
from interpreters.secrets import MARKER, basic_auth, known_secrets, redact, redact_config, split_userinfo
from interpreters.wire import Form, Refusal, adapted, body_of, form_of, sent_of

if TYPE_CHECKING:
    import ssl

    from interpreters.connections import Connection

DEFAULT_URL = "https://api.openai.com/v1"
_RESERVED = frozenset({"model", "messages", "stream", "n", "temperature", "top_p", "seed", "response_format"}) | {
    "max_tokens",
    "max_completion_tokens",
}
_MAX_SENDS = 5


class OpenAIOptions(Value):
    """Settings of one model on one server. The key comes from the environment variable named by `api_key_env`.

    `token_parameter`: under which name max_tokens goes out. `output`: whether the server is asked to hold the model to
    the reply's JSON schema, to a JSON object, or to nothing. `temperature: null` leaves it out. `adapt: false` turns
    every refusal of a setting into an error. `timeout_s` limits one send as a whole. `seed` goes out as seed + repeat.
    `api_version` makes it Azure's form: the deployment (`model`) in the path, the version in the query, the key in the
    header api-key; `base_url` is the resource's address. `extra` is sent as it is. An `api_key` given here works, but
    is never shown, dumped or archived.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    model: str = Field(min_length=1, max_length=200)
    base_url: str | None = Field(default=None, repr=False)
    api_version: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.-]{1,40}$")
    api_key_env: str = Field(default="OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")
    api_key: str | None = Field(default=None, repr=False, exclude=True)
    temperature: Number | None = Field(default=0.0, ge=0)
    max_tokens: int = Field(default=2048, ge=1)
    token_parameter: Literal["max_tokens", "max_completion_tokens", "omit"] = "max_tokens"  # noqa: S105 (no password)
    output: Literal["schema", "object", "none"] = "object"
    timeout_s: Number = Field(default=120.0, gt=0)
    adapt: bool = True
    seed: int | None = None
    top_p: Positive | None = Field(default=None, le=1)
    max_figure_bytes: int = Field(default=4_000_000, ge=1)
    extra: dict[str, Any] = {}

    @field_validator("extra")
    @classmethod
    def _extra_fits(cls, extra: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(_RESERVED & set(extra))
        if taken:
            raise ValueError(f"{taken[0]!r} cannot be set in extra; expected only keys without an option of their own")
        json.dumps(extra, allow_nan=False)  # raises ValueError for what is no JSON
        return extra

    @field_serializer("base_url")
    def _without_credentials(self, base_url: str | None) -> str | None:
        return None if base_url is None else redact(base_url)


class OpenAIInterpreter:
    """A model behind an OpenAI-compatible chat-completions endpoint."""

    Options: ClassVar[type[Value]] = OpenAIOptions
    modalities: ClassVar[frozenset[str]] = frozenset({"figure", "table", "text"})

    def __init__(self, options: OpenAIOptions):
        self.options = options
        self._form = Form(options.token_parameter, options.temperature, options.output)
        self._settled = False
        self._alone = asyncio.Lock()
        self._server: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls: ssl.SSLContext | None = None
        self._known: frozenset[str] = frozenset()

    def identity(self) -> dict[str, Any]:
        """The configured settings that decide the reply. What a server made us change is in Reply.sent."""
        o = self.options
        return {
            "name": "openai",
            "model": o.model,
            "base_url": self._url,
            **({} if o.api_version is None else {"api_version": o.api_version}),
            "temperature": o.temperature,
            "top_p": o.top_p,
            "seed": o.seed,
            "max_tokens": o.max_tokens,
            "token_parameter": o.token_parameter,
            "output": o.output,
            "adapt": o.adapt,
            "extra": redact_config(o.extra, self.secrets()),
        }

    def check(self) -> None:
        """Check before a run that the server can be asked at all. Raises ConfigError saying what to set."""
        import httpx2

        from interpreters import connections  # noqa: F401 - slow, as loading certificates is: not while calls wait

        if self._tls is None:
            self._tls = httpx2.create_ssl_context()
        host = self._host()
        try:
            httpx2.URL(self._url)
        except httpx2.InvalidURL as error:
            raise ConfigError(f"interpreter 'openai': base_url {self._url!r}: {error}") from error
        if self._proxied():
            import openai  # noqa: F401 - slow, too
        key = self._key()
        if key is None and self._userinfo is None and not _is_loopback(host):
            raise ConfigError(
                f"interpreter 'openai': no key for {host}: the environment variable {self.options.api_key_env} "
                f"is not set; set it, or name another one with api_key_env"
            )
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"interpreter 'openai': the key in {self.options.api_key_env} holds characters that no HTTP header can "
                f"carry; copy it again"
            )

    def secrets(self) -> frozenset[str]:
        """Every text this interpreter knows that must not be printed or archived."""
        values = (self.options.base_url or "", self.options.api_key or "", *_texts(self.options.extra))
        return known_secrets(os.environ, {self.options.api_key_env}, values)

    async def ask(self, request: Request, blobs: Mapping[str, bytes], *, repeat: int) -> Reply:
        """One attempt. Never raises for what a server does; raises ConfigError where `check` would.

        The first call to a server goes alone, unless `adapt` is off: what it refuses is learned once, not by every call
        under way.
        """
        server = self._connected()
        messages = chat_messages(request, blobs, max_figure_bytes=self.options.max_figure_bytes)
        if self.options.adapt and not self._settled:
            async with self._alone:
                if not self._settled:  # else another call went first while this one waited
                    try:
                        return await self._ask(server, messages, request, repeat)
                    finally:
                        self._settled = True
        return await self._ask(server, messages, request, repeat)

    def taken_up(self, request: Request, reply: Reply) -> None:
        """Learn from an archived reply in which form this server was asked before a resume."""
        if reply.sent:
            self._form = form_of(reply.sent, self._form, request)
            self._settled = True

    @property
    def findings(self) -> Form | None:
        """In which form this server is asked; None while its first reply is still to come."""
        return self._form if self._settled or not self.options.adapt else None

    @findings.setter
    def findings(self, found: Form) -> None:
        self._form, self._settled = found, True

    async def aclose(self) -> None:
        """Close the connections. The interpreter can be used again; it then opens new ones."""
        server, self._server = self._server, None
        if server is not None:
            await server.aclose()

    # --- settings ------------------------------------------------------------------------------------------------

    @property
    def _url(self) -> str:
        return split_userinfo(self.options.base_url or DEFAULT_URL)[0]

    @property
    def _userinfo(self) -> str | None:
        return split_userinfo(self.options.base_url or DEFAULT_URL)[1]

    def _key(self) -> str | None:
        given = self.options.api_key
        key = given if given and given != MARKER else os.environ.get(self.options.api_key_env, "")
        return key.strip() or None

    def _host(self) -> str:
        try:
            url = urlsplit(self._url)
            host = url.hostname if url.port is None or url.port else None
        except ValueError:
            host = None
        if host is None or url.scheme not in ("http", "https") or url.query or url.fragment:
            raise ConfigError(
                f"interpreter 'openai': expected base_url to be http(s)://host/path without query, got {self._url!r}"
            )
        return host

    def _fixed(self, repeat: int) -> dict[str, Any]:
        seed = None if self.options.seed is None else self.options.seed + repeat
        optional = {"seed": seed, "top_p": self.options.top_p}
        return {**self.options.extra, **{key: value for key, value in optional.items() if value is not None}}

    def _archivable(self, reply: Reply, sent: dict[str, Any]) -> Reply:
        return reply.with_texts(lambda text: redact(text, self._known), sent=redact_config(sent, self._known))

    # --- transport -----------------------------------------------------------------------------------------------

    async def _ask(self, server: Connection, messages: list[dict[str, Any]], request: Request, repeat: int) -> Reply:
        """Send until the server takes the form: each refusal of a setting changes it once, and is in Reply.sent."""
        refusals: list[dict[str, Any]] = []
        for _ in range(_MAX_SENDS):
            form = self._form
            body = body_of(form, request, self._fixed(repeat), self.options.max_tokens)
            reply, refusal = await self._send(server, {"model": self.options.model, "messages": messages, **body})
            change = adapted(form, refusal) if refusal is not None else None
            if change is None or not self.options.adapt:
                break
            self._form = change.form if self._form == form else self._form
            refusals.append({"setting": change.setting, "change": change.how, "refused": reply.error})
        if change is not None:
            hint = f" (set the interpreter's option {change.setting!r}; its change would be {change.how})"
            reply = reply.model_copy(update={"error": reply.error + hint})
        return self._archivable(reply, {**sent_of(form, self.options.temperature, body), "adapted": refusals})

    async def _send(self, server: Connection, body: dict[str, Any]) -> tuple[Reply, Refusal | None]:
        """Send once. Second: what the server says where it refuses the request itself, else None."""
        import aiohttp
        import httpx2

        content = _json(body)
        try:
            async with asyncio.timeout(self.options.timeout_s):
                answer = await server.post(content)
        except (httpx2.HTTPError, httpx2.InvalidURL, aiohttp.ClientError, OSError, ValueError) as error:
            causes = list(_causes(error))
            if any(isinstance(cause, TimeoutError) for cause in causes):
                return Reply(status="timeout", error=f"no whole answer within {self.options.timeout_s:g} s"), None
            first = causes[-1]  # the outer ones say only that there was one
            words = f"{type(first).__name__}: {first}" if str(first) else type(first).__name__
            return Reply(status="connection", error=clean(f"no answer from {self._url}: {words}")), None
        text = redact(answer.text, self._known)  # before anything is cut
        if 200 <= answer.status < 300:
            return read_completion(text), None
        if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
            where = redact(answer.headers["location"], self._known)
            words = f"HTTP {answer.status}: the server sends elsewhere, to {where[:200]}; set base_url to it"
            return Reply(status="bad_request", error=clean(words)), None
        reply = read_failure(answer.status, answer.headers, text)
        refused = reply.status == "bad_request" or answer.status == 500
        return reply, Refusal(answer.status, read_error(text)) if refused else None

    def _connected(self) -> Connection:
        """The connections of the running event loop: they cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        if self._server is None or self._loop is not loop:
            self.check()
            self._known = self.secrets()
            self._server, self._loop, self._alone = self._new_connection(), loop, asyncio.Lock()
        return self._server

    def _new_connection(self) -> Connection:
        import httpx2

        from interpreters import connections

        o, key = self.options, self._key() or "none"
        path = "/chat/completions"
        headers = {"Authorization": basic_auth(self._userinfo) if self._userinfo else f"Bearer {key}"}
        if o.api_version is not None:
            path = f"/openai/deployments/{quote(o.model, safe='')}{path}?api-version={o.api_version}"
            headers = {"api-key": key, **(headers if self._userinfo else {})}
        url = httpx2.URL(self._url.rstrip("/") + path)
        headers |= {
            "Host": url.netloc.decode("ascii"),
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "Content-Type": "application/json",
            "User-Agent": "vcloop",
        }
        tls = self._tls or httpx2.create_ssl_context()
        if self._proxied():
            try:
                return connections.Proxied(url, headers, tls)
            except (httpx2.InvalidURL, ValueError) as error:
                raise ConfigError(f"interpreter 'openai': a proxy in the environment is no address: {error}") from error
        return connections.Direct(str(url), headers, tls)

    def _proxied(self) -> bool:
        """Whether proxies of the environment may stand between; never between us and this machine."""
        from urllib.request import getproxies

        return not _is_loopback(self._host()) and bool(getproxies())


def _json(body: dict[str, Any]) -> bytes:
    """The JSON of a body; lone surrogates are escaped, which only the slower way can."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def _is_loopback(host: str) -> bool:
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _texts(value: object) -> list[str]:
    """Credentials may hide in extra: the texts under secret-named keys."""
    marked = redact_config(value)
    if not isinstance(value, dict):
        return []
    own = [v for key, v in value.items() if isinstance(v, str) and marked[key] == MARKER]
    return own + [text for inner in value.values() for text in _texts(inner)]
