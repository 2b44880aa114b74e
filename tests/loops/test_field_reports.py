"""Field reports on loops and servers that need a whole run, or a whole graph (L01-L04, L08, A06, A09)."""

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from evidence.contracts import Reply
from evidence.errors import ArchiveError, ContractError, ReplyError
from interpreters.dry_server import DryServer
from interpreters.fake_server import FakeServer, failure
from interpreters.scripted import ScriptedInterpreter
from loops.archive import Observed, read_calls, read_events, read_run
from loops.config import load_config
from loops.graph import build_graph, checked, initial_state
from loops.runner import run

GENES = ("HSP70", "HSP90", "CDC6")
loopback = [pytest.mark.loopback, pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("socket_enabled")]


def on_server(test):
    """The marks of a test that talks to a server in this process."""
    for mark in loopback:
        test = mark(test)
    return test


def reply(measurement: str | None = "HSP70") -> str:
    answers = {gene: {"label": "up", "value": 0.4, "confidence": 0.5} for gene in GENES}
    return json.dumps({"answers": answers, "explanation": "x", "measurement": measurement})


def one_case(path: Path) -> Path:
    file = path.parent / "heat.json"
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "cases": data["cases"][:1]}))
    return path


@pytest.mark.parametrize(
    ("key", "value"), [("pearson", np.float32(0.41)), ("n_de", np.int64(12)), ("top", np.array([1.0]))]
)
def test_l01_a_node_that_returns_numpy_fails_at_once_with_the_key(key: str, value: object, monkeypatch) -> None:
    from loops.nodes import LoopState

    monkeypatch.setitem(LoopState.__annotations__, key, object)

    async def score(state):
        return {key: value}

    with pytest.raises(ContractError, match=f"'score' returned numpy.* under the state key '{key}'"):
        asyncio.run(checked(score)(initial_state("a", 0)))


def test_l02_twelve_rounds_run() -> None:
    """Three steps a round, twelve rounds: more than the 25 steps at which graphs are often stopped."""
    done = []

    class Rounds:
        def __getattr__(self, name: str):
            async def node(state):
                done.append(name)
                if name == "select":
                    return {"chosen": "HSP70"}
                return {"outcome": "complete"} if name == "revise" and done.count("revise") == 12 else {}

            node.__name__ = name
            return node

    graph = build_graph(Rounds(), review=True, measurements=12)
    asyncio.run(graph.ainvoke(initial_state("a", 0)))
    assert [done.count(name) for name in ("predict", "review", "select", "observe", "revise")] == [1, 1, 12, 12, 12]


def test_l03_three_observations_are_three_after_a_repair_and_a_resume(make_config, tmp_path: Path) -> None:
    path = one_case(make_config(budget={"measurements": 3}, modalities=["table"]))
    revisions = ["sorry, here it is", reply("HSP90"), reply("CDC6"), reply(None)]
    script = {"predict": [reply()], "review": [reply(None)], "revise": revisions}
    for resume in (False, True):
        loaded = load_config(str(path), shipped=path.parent)
        run(loaded._replace(interpreter=ScriptedInterpreter(replies=script)), tmp_path / "run", resume=resume)
        events, _ = read_events(tmp_path / "run")
        observed = [event.observation.measurement for event in events if isinstance(event, Observed)]
        assert observed == ["HSP70", "HSP90", "CDC6"]
        last = read_calls(tmp_path / "run").records[-1].request["messages"]
        tables = [p for m in last for p in m["parts"] if p["kind"] == "table" and p["name"] == "observation"]
        assert [table["rows"][0][0] for table in tables] == ["HSP70", "HSP90", "CDC6"]
        closed = (tmp_path / "run/events.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / "run/events.jsonl").write_text("".join(line for line in closed if '"closed"' not in line))


def test_l04_a_second_start_under_the_same_name_is_refused(make_config, tmp_path: Path) -> None:
    path = one_case(make_config(name="norman", budget={"measurements": 3}, modalities=["table"]))
    run(load_config(str(path), shipped=path.parent), tmp_path / "norman")
    before = (tmp_path / "norman/events.jsonl").read_bytes()
    with pytest.raises(ArchiveError, match="exists: continue it with --resume, or choose another --name"):
        run(load_config(str(path), shipped=path.parent), tmp_path / "norman")
    assert (tmp_path / "norman/events.jsonl").read_bytes() == before
    assert before.count(b'"observed"') == 3


def test_l08_replies_in_another_order_change_no_digit(make_config, tmp_path: Path) -> None:
    """Eight items at once, answered after 8, 7, ..., 1 ms."""

    class Late(ScriptedInterpreter):
        n = 0

        async def ask(self, request, blobs, *, repeat):
            type(self).n += 1
            await asyncio.sleep(0.001 * (8 - self.n % 8))
            return Reply(text=reply("HSP90" if request.menu else None))

    for concurrency in (1, 8):
        path = make_config(repeats=2, concurrency=concurrency, modalities=["table"])
        loaded = load_config(str(path), shipped=path.parent)
        run(loaded._replace(interpreter=Late(replies=["same"])), tmp_path / str(concurrency))
    one, eight = ((tmp_path / name / "scores/readouts.jsonl").read_bytes() for name in ("1", "8"))
    assert one == eight
    assert len(one.splitlines()) == 8 * len(GENES)


@on_server
def test_a06_one_wait_of_at_least_two_seconds_then_success(make_config, tmp_path: Path) -> None:
    came: list[float] = []
    dry = DryServer()

    def script(request):
        came.append(time.monotonic())
        return failure(429, "slow down", headers={"Retry-After": "2"}) if len(came) == 1 else dry(request)

    with FakeServer(script) as server:
        model = {"model": "dry", "base_url": server.base_url}
        path = one_case(make_config(interpreter={"name": "openai", "options": model}, modalities=["table"]))
        outcome = run(load_config(str(path), shipped=path.parent), tmp_path / "run")
    assert came[1] - came[0] >= 2
    assert outcome.summary["calls"]["attempts_by_status"] == {"ok": 3, "rate_limited": 1}


@on_server
def test_a09_a_saved_config_resumes_with_the_key_from_the_environment(make_config, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-FAKE-111")
    dry = DryServer()
    ready: list[bool] = []
    with FakeServer(lambda request: dry(request) if ready else failure(401, "bad key")) as server:
        model = {"model": "dry", "base_url": server.base_url, "api_key": "sk-FAKE-000"}
        path = one_case(make_config(interpreter={"name": "openai", "options": model}, modalities=["table"]))
        with pytest.raises(ReplyError, match="bad key"):
            run(load_config(str(path), shipped=path.parent), tmp_path / "run")
        saved = read_run(tmp_path / "run").config
        assert "sk-FAKE" not in json.dumps(saved)
        path.write_text(yaml.safe_dump(saved))
        ready.append(True)
        outcome = run(load_config(str(path), shipped=path.parent), tmp_path / "run", resume=True)
        assert server.received[-1].headers["authorization"] == "Bearer sk-FAKE-111"
    assert outcome.record.status == "finished"
