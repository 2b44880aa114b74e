"""Limits of a run, places at a server, and what a stop leaves behind."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from evidence.contracts import Reply, Usage
from evidence.errors import ConfigError
from interpreters.fake_server import FakeServer, Served, chat, failure
from loops.archive import read_calls
from loops.config import Limits, Prices, load_config
from loops.endpoints import Endpoint
from loops.limits import LimitReached, Meter, Stop, Stopped, cost_of
from loops.runner import run

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")
PRICES = Prices(prompt=2.0, completion=10.0)
loopback = [
    pytest.mark.loopback,
    pytest.mark.allow_hosts(["127.0.0.1"]),
    pytest.mark.usefixtures("socket_enabled"),
]


def good(request: dict) -> Served:
    answers = {g: {"label": "up", "value": 0.5, "confidence": 0.6} for g in GENES}
    return chat(json.dumps({"answers": answers, "explanation": "x", "measurement": "HSP70"}))


def reply(prompt: int | None = 100, completion: int | None = 50) -> Reply:
    return Reply(text="x", usage=Usage(prompt_tokens=prompt, completion_tokens=completion))


def test_cost_is_exact_and_unknown_where_prices_or_usage_are() -> None:
    assert str(cost_of(Usage(prompt_tokens=1, completion_tokens=3), PRICES)) == "0.000032"
    assert cost_of(Usage(prompt_tokens=1), PRICES) is None
    assert cost_of(Usage(prompt_tokens=1, completion_tokens=3), None) is None


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(calls=3), "limits.calls: 3 of 3"),
        (Limits(tokens=400), "limits.tokens: 450 of 400"),
        (Limits(cost=0.002), "limits.cost: 0.0021 of 0.002"),
    ],
)
def test_a_limit_forbids_the_next_call(limits: Limits, words: str) -> None:
    meter = Meter(limits)
    for _ in range(3):
        meter.admit()
        meter.add(reply(), PRICES, metered=True)
    with pytest.raises(LimitReached, match=words):
        meter.admit()


def test_what_an_archive_holds_counts() -> None:
    meter = Meter(Limits(calls=2))
    meter.past([reply(), Reply(status="timeout")], None)
    with pytest.raises(LimitReached):
        meter.admit()


def test_a_token_limit_needs_usage_and_says_so() -> None:
    meter = Meter(Limits(tokens=1000))
    meter.add(reply(None, None), None, metered=False)
    meter.add(Reply(status="rate_limited", error="slow down"), None, metered=True)
    meter.admit()
    meter.add(reply(None, None), None, metered=True)
    with pytest.raises(LimitReached, match="came without usage"):
        meter.admit()


async def hold(endpoint: Endpoint, stop: Stop, status: str, busy: list[int], retry_after: float | None = None) -> None:
    async def call() -> Reply:
        busy.append(endpoint.busy)
        await asyncio.sleep(0.01)
        return Reply(status=status, retry_after_s=retry_after)

    await endpoint.ask(call, stop)


def test_an_overload_halves_the_places_once_a_round_and_they_come_back() -> None:
    async def go() -> tuple[list[float], list[int]]:
        endpoint, stop = Endpoint(8), Stop()
        seen, busy = [], []
        await asyncio.gather(*(hold(endpoint, stop, "rate_limited", busy) for _ in range(8)))
        seen.append(endpoint.places)
        late: list[int] = []
        await asyncio.gather(*(hold(endpoint, stop, "ok", late) for _ in range(40)))
        seen.append(endpoint.places)
        return seen, late

    places, busy = asyncio.run(go())
    assert places[0] == 4.0
    assert places[1] == 8.0
    assert busy[0] <= 4
    assert max(busy) == 8


def test_a_server_that_names_a_time_is_not_asked_before_it() -> None:
    async def go() -> float:
        endpoint, stop, busy = Endpoint(4), Stop(), []
        await hold(endpoint, stop, "server_error", busy, retry_after=0.2)
        began = asyncio.get_running_loop().time()
        await hold(endpoint, stop, "ok", busy)
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(go()) >= 0.19


def test_a_stop_wakes_who_waits_and_given_up_places_are_passed_on() -> None:
    async def go() -> None:
        endpoint, stop, busy = Endpoint(1), Stop(), []
        first = asyncio.ensure_future(hold(endpoint, stop, "server_error", busy, retry_after=60.0))
        await first
        waiting = [asyncio.ensure_future(hold(endpoint, stop, "ok", busy)) for _ in range(3)]
        await asyncio.sleep(0.02)
        waiting[1].cancel()
        stop.set("enough")
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(d) for d in done] == [Stopped, asyncio.CancelledError, Stopped]
        await endpoint.finish()
        assert endpoint.busy == 0

    asyncio.run(go())


def test_a_call_that_has_begun_ends_though_nobody_waits_for_it() -> None:
    async def go() -> None:
        endpoint, stop, busy, ended = Endpoint(1), Stop(), [], []

        async def call() -> Reply:
            await asyncio.sleep(0.05)
            ended.append(True)
            return Reply(status="ok")

        begun = asyncio.ensure_future(endpoint.ask(call, stop))
        queued = asyncio.ensure_future(hold(endpoint, stop, "ok", busy))
        await asyncio.sleep(0.01)
        begun.cancel()
        queued.cancel()
        await asyncio.gather(begun, queued, return_exceptions=True)
        await endpoint.finish()
        assert ended == [True]
        assert busy == []

    asyncio.run(go())


class TestRuns:
    pytestmark = loopback

    def load(self, make_config, server: FakeServer, **changes):
        options = {"model": "fake", "base_url": server.base_url}
        model = {"name": "openai", "options": options, **changes.pop("model", {})}
        return load_config(str(make_config(interpreter=model, **changes)), shipped=SHIPPED)

    def test_a_limit_of_calls_stops_cleanly_and_a_higher_one_goes_on(self, make_config, tmp_path: Path) -> None:
        with FakeServer(good) as server:
            loaded = self.load(make_config, server, limits={"calls": 5}, concurrency=4)
            outcome = run(loaded, tmp_path / "run")
            assert outcome.record.status == "incomplete"
            assert "limits.calls: 5 of 5" in outcome.record.reason
            assert len(server.received) == len(read_calls(tmp_path / "run").records) == 5
            more = self.load(make_config, server, limits={"calls": 12}, concurrency=4)
            assert run(more, tmp_path / "run", resume=True).record.status == "finished"
            assert len(server.received) == 12
            run(self.load(make_config, server), tmp_path / "whole")
        for name in ("summary.json", "readouts.jsonl"):
            assert (tmp_path / "run/scores" / name).read_bytes() == (tmp_path / "whole/scores" / name).read_bytes()

    def test_cost_and_tokens_are_counted_and_limited(self, make_config, tmp_path: Path) -> None:
        prices = {"prices": {"prompt": 1_000_000, "completion": 2_000_000, "currency": "EUR"}}
        with FakeServer(good) as server:
            outcome = run(self.load(make_config, server, model=prices), tmp_path / "whole")
            rows = {row["name"]: row["usage"] for row in outcome.summary["rows"]}
            assert (rows["initial"]["cost"], rows["initial"]["currency"]) == (4 * (12 + 10), "EUR")
            assert rows["simulator alone"] is None
            assert outcome.summary["calls"]["cost"] == 12 * 22
            stopped = run(self.load(make_config, server, model=prices, limits={"cost": 60}), tmp_path / "run")
            assert "limits.cost: 66 of 60 is spent" in stopped.record.reason
            assert len(read_calls(tmp_path / "run").records) == 3

    def test_what_open_cells_used_is_told(self, make_config, tmp_path: Path) -> None:
        prices = {"prices": {"prompt": 1_000_000, "completion": 2_000_000}}
        with FakeServer(good) as server:
            outcome = run(self.load(make_config, server, model=prices, limits={"calls": 4}), tmp_path / "run")
            calls = outcome.summary["calls"]
            assert (calls["n"], calls["cost"]) == (3, 66.0)
            assert calls["in_open_cells"] == {
                "n_attempts": 1,
                "prompt_tokens": 12,
                "completion_tokens": 5,
                "cost": 22.0,
            }
            more = self.load(make_config, server, model=prices)
            assert run(more, tmp_path / "run", resume=True).summary["calls"]["in_open_cells"] is None

    def test_a_server_that_never_sends_a_completion_leaves_an_open_run(self, make_config, tmp_path: Path) -> None:
        with FakeServer(lambda request: Served(b"<html>login</html>")) as server:
            outcome = run(self.load(make_config, server), tmp_path / "run")
        assert outcome.record.status == "incomplete"
        assert "malformed" in outcome.record.reason
        assert outcome.summary["n_cells_open"] == 4
        assert outcome.summary["calls"]["in_open_cells"]["n_attempts"] == 12
        assert outcome.summary["calls"]["in_open_cells"]["cost"] is None

    def test_a_limit_of_cost_needs_prices(self, make_config, tmp_path: Path) -> None:
        with FakeServer(good) as server:
            loaded = self.load(make_config, server, limits={"cost": 1})
            with pytest.raises(ConfigError, match=r"limits.cost needs interpreter.prices"):
                run(loaded, tmp_path / "run")
            assert not server.received
        assert not (tmp_path / "run").exists()

    def test_wall_time_wakes_a_run_that_waits(self, make_config, tmp_path: Path) -> None:
        with FakeServer(lambda r: failure(429, "slow", headers={"Retry-After": "30"})) as server:
            loaded = self.load(make_config, server, limits={"wall_time_s": 0.5}, modalities=["table"])
            outcome = run(loaded, tmp_path / "run")
        assert "limits.wall_time_s" in outcome.record.reason
        assert Counter(c.reply.status for c in read_calls(tmp_path / "run").records) == {"rate_limited": 1}

    def test_calls_under_way_are_archived_when_the_quota_ends(self, make_config, tmp_path: Path) -> None:
        from evidence.errors import BudgetError

        numbers = iter(range(100))

        def serve(request: dict) -> Served:
            if next(numbers) == 1:
                return failure(429, "no more", code="insufficient_quota")
            return good(request)._replace(delay_s=0.2)

        with FakeServer(serve) as server:
            loaded = self.load(make_config, server, concurrency=4)
            with pytest.raises(BudgetError, match="no more"):
                run(loaded, tmp_path / "run")
            sent = len(server.received)
        records = read_calls(tmp_path / "run").records
        assert len(records) == sent
        assert Counter(r.reply.status for r in records)["quota"] == 1
