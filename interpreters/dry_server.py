"""An OpenAI-compatible server on this machine that answers the loop's prompts with made-up, well-formed replies.

    python -m interpreters.dry_server --delay-ms 200     # prints the URL to put into a config as base_url

For dry runs of a config, for benchmarks, and, with `--fault NAME=SHARE`, for seeing what a run makes of a bad server.
It costs nothing and its answers mean nothing. Standard library only; one process holds hundreds of connections.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence

from interpreters.dry_answer import dry_answer
from interpreters.fake_server import chat
from interpreters.loopback_http import LoopbackServer, ReceivedCall, Served


class DryServer:
    """Answers calls. `delay_s` is waited before each reply."""

    def __init__(self, *, delay_s: float = 0.0):
        self.delay_s = delay_s

    def __call__(self, call: ReceivedCall) -> Served:
        """What is served for one call."""
        request = call.body if isinstance(call.body, dict) else {}
        return chat(json.dumps(dry_answer(request)))._replace(delay_s=self.delay_s)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted; the first line printed is the URL."""
    parser = argparse.ArgumentParser(prog="python -m interpreters.dry_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="waited before each reply")
    options = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(DryServer(delay_s=options.delay_ms / 1000), options.port))


async def _serve(handler: DryServer, port: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with LoopbackServer(handler, port) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    main()
