"""An OpenAI-compatible server on this machine that answers the loop's prompts with made-up, well-formed replies.

    python -m interpreters.dry_server --delay-ms 200     # prints the URL to put into a config as base_url

For dry runs of a config, for benchmarks, and, with `--fault NAME=SHARE` (interpreters.faults), for seeing what a run
makes of a bad server. It costs nothing and its answers mean nothing. One process holds hundreds of connections.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

import uvloop

from evidence.errors import ConfigError, VcloopError
from evidence.values import sha256_of
from interpreters.dry_answer import dry_answer
from interpreters.fake_server import chat, failure
from interpreters.faults import FAULTS, Fault, fault_named
from interpreters.loopback_http import LoopbackServer, Served

Setting = Literal["json_schema", "temperature", "max_tokens"]
REFUSALS: Mapping[Setting, str] = {
    "json_schema": "response_format.type",
    "temperature": "temperature",
    "max_tokens": "max_tokens",
}
"""Settings that a server can refuse, and the parameter that its error names."""


class Logged(NamedTuple):
    """One request: its key, how often it has come, and the fault or the refused setting that it was served."""

    request: str
    attempt: int
    fault: str | None


def request_key(request: Mapping[str, Any]) -> str:
    """What makes two requests the same, whatever settings they are sent with: conversation and sampling seed."""
    return sha256_of({"messages": request.get("messages"), "seed": request.get("seed")})


class DryServer:
    """A script for a FakeServer: from the JSON of a request to what is served.

    `delay_s` is waited before each reply. `faults` are shares by name, drawn by a hash of `seed`, the request and how
    often it has come: the same requests meet the same faults. `refuses` are settings answered with HTTP 400. `log` is
    called once for every request. Raises ConfigError for unknown faults and for shares that sum to more than 1.
    """

    def __init__(
        self,
        *,
        delay_s: float = 0.0,
        faults: Mapping[str, float] | None = None,
        refuses: Sequence[Setting] = (),
        seed: int = 0,
        log: Callable[[Logged], None] | None = None,
    ):
        self.delay_s = delay_s
        self.faults = {fault_named(name): share for name, share in (faults or {}).items()}
        self.refuses = refuses
        self.seed = seed
        self.log = log
        self._times: Counter[str] = Counter()
        if any(share < 0 for share in self.faults.values()) or sum(self.faults.values()) > 1 + 1e-9:
            raise ConfigError(f"expected shares of faults from 0 to 1 that sum to at most 1, got {faults}")

    def __call__(self, request: dict[str, Any]) -> Served:
        """What is served for one request."""
        refused = next((setting for setting in self.refuses if _uses(request, setting)), None)
        if refused is not None:
            self._note(request_key(request), refused)
            return failure(400, f"{refused} is not supported", param=REFUSALS[refused])
        fault = self._draw(request_key(request)) if self.faults or self.log else None
        good = dry_answer(request)
        served = chat(json.dumps(good)) if fault is None else fault.serve(good)
        return served._replace(delay_s=self.delay_s)

    def _draw(self, key: str) -> Fault | None:
        """The fault that this request meets, if any; either is noted."""
        self._times[key] += 1
        drawn = int(sha256_of(f"{self.seed} {key} {self._times[key]}")[:8], 16) / 2**32
        edges = zip(self.faults, itertools.accumulate(self.faults.values()), strict=True)
        fault = next((fault for fault, edge in edges if drawn < edge), None)
        self._note(key, None if fault is None else fault.name)
        return fault

    def _note(self, key: str, served: str | None) -> None:
        if self.log is not None:
            self.log(Logged(key, self._times[key], served))


def _uses(request: Mapping[str, Any], setting: Setting) -> bool:
    if setting == "json_schema":
        return bool((request.get("response_format") or {}).get("type") == "json_schema")
    return setting in request


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted or terminated; the first line printed is the URL."""
    parser = argparse.ArgumentParser(
        prog="python -m interpreters.dry_server", description="Answer the loop's prompts with made-up replies."
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="waited before each reply")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=SHARE", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--refuse", action="append", default=[], choices=list(REFUSALS), help="answer it with HTTP 400")
    parser.add_argument("--seed", type=int, default=0, help="which requests meet the faults")
    parser.add_argument("--log", type=Path, help="append one JSON line per request to this file")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        try:
            script = DryServer(
                delay_s=options.delay_ms / 1000,
                faults=dict(map(_share, options.fault)),
                refuses=options.refuse,
                seed=options.seed,
                log=None if options.log is None else _log_to(stack.enter_context(options.log.open("a"))),
            )
        except (VcloopError, OSError) as error:
            parser.error(str(error))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(script, options.port))


def _share(text: str) -> tuple[str, float]:
    name, _, share = text.partition("=")
    try:
        return name, float(share)
    except ValueError as error:
        raise ConfigError(f"expected --fault NAME=SHARE, such as server_error=0.3, got {text!r}") from error


def _log_to(file: TextIO) -> Callable[[Logged], None]:
    def write(logged: Logged) -> None:
        file.write(json.dumps(logged._asdict()) + "\n")
        file.flush()

    return write


async def _serve(script: DryServer, port: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with LoopbackServer(lambda call: script(call.body if isinstance(call.body, dict) else {}), port) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    main()
