"""Requests whose body is on its way at once, and not a turn of the event loop later.

aiohttp writes a body in a task of its own, which Python 3.12 and later begin at once. Before, it waits for all that is
ready in the loop: 3 to 5 ms where a hundred calls are under way.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Coroutine, Generator
from typing import Any

import aiohttp

Writing = Coroutine[Any, Any, None]


class EagerRequest(aiohttp.ClientRequest):
    """A request that writes its body, as far as the connection takes it, when it is asked for the writing."""

    def write_bytes(self, *args: Any, **kwargs: Any) -> Writing:
        """Begin to write; what is given is the rest of the writing."""
        return begun(super().write_bytes(*args, **kwargs))


def begun(whole: Writing) -> Writing:
    """Run a coroutine until it waits or ends, and give the rest of it."""
    try:
        waits_for = whole.send(None)
    except StopIteration:
        return _nothing()
    return _rest(whole, waits_for)


async def _nothing() -> None:
    """The rest of what has ended."""


@types.coroutine
def _rest(whole: Writing, waits_for: Any) -> Generator[Any, Any, None]:
    while True:
        try:
            sent = yield waits_for
        except GeneratorExit:
            whole.close()
            raise
        except BaseException as error:
            go_on = functools.partial(whole.throw, error)
        else:
            go_on = functools.partial(whole.send, sent)
        try:
            waits_for = go_on()
        except StopIteration:
            return
