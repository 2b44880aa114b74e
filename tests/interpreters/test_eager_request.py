"""What is written at once, what waits, and what happens to a writing that is given up."""

import asyncio

import pytest

from evidence.contracts import Message, Request, Text
from interpreters import eager_request
from interpreters.eager_request import begun
from interpreters.fake_server import FakeServer, chat
from interpreters.openai_client import OpenAIInterpreter, OpenAIOptions


def test_what_needs_no_waiting_is_done_at_once() -> None:
    done: list[int] = []

    async def write() -> None:
        done.append(1)

    async def go() -> None:
        rest = begun(write())
        assert done == [1]
        await asyncio.create_task(rest)

    asyncio.run(go())
    assert done == [1]


def test_the_rest_goes_on_where_it_waited() -> None:
    async def go() -> list[str]:
        told, room = list[str](), asyncio.Event()

        async def write() -> None:
            told.append("begun")
            await room.wait()
            await asyncio.sleep(0.01)
            told.append("ended")

        task = asyncio.create_task(begun(write()))
        assert told == ["begun"]
        await asyncio.sleep(0)
        room.set()
        await task
        return told

    assert asyncio.run(go()) == ["begun", "ended"]


@pytest.mark.parametrize("started", [True, False])
def test_one_that_is_given_up_cleans_up(started: bool) -> None:
    told: list[str] = []

    async def write() -> None:
        try:
            await asyncio.sleep(10)
        except BaseException as error:
            told.append(type(error).__name__)
            raise

    async def go() -> None:
        task = asyncio.create_task(begun(write()))
        if started:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert told == (["CancelledError"] if started else ["GeneratorExit"])


def test_an_error_is_that_of_the_writing() -> None:
    async def write(wait: bool) -> None:
        await asyncio.sleep(0.001 if wait else 0)
        raise OSError("broken pipe")

    async def go(wait: bool) -> None:
        await asyncio.create_task(begun(write(wait)))

    for wait in (True, False):
        with pytest.raises(OSError, match="broken pipe"):
            asyncio.run(go(wait))


@pytest.mark.loopback
@pytest.mark.allow_hosts(["127.0.0.1"])
@pytest.mark.usefixtures("socket_enabled")
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("n_characters", [10, 20_000_000])
def test_bodies_of_any_size_arrive_whole(n_characters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 MB are more than a connection takes at once: the writing has to wait."""
    written: list[eager_request.Writing] = []

    def noted(whole: eager_request.Writing) -> eager_request.Writing:
        written.append(whole)
        return begun(whole)

    monkeypatch.setattr(eager_request, "begun", noted)
    text = "0123456789" * (n_characters // 10)
    request = Request(step="predict", messages=(Message(role="user", parts=(Text(text=text),)),))

    async def go(url: str) -> list[str]:
        interpreter = OpenAIInterpreter(OpenAIOptions(model="m", base_url=url))
        try:
            replies = await asyncio.gather(*(interpreter.ask(request, {}, repeat=n) for n in range(3)))
            return [reply.status for reply in replies]
        finally:
            await interpreter.aclose()

    with FakeServer(lambda request: chat("fine")) as server:
        assert asyncio.run(go(server.base_url)) == ["ok"] * 3
        assert len(written) == 3, "aiohttp asks for the writing in another way now"
        assert [call.body["messages"][0]["content"] for call in server.received] == [text] * 3
