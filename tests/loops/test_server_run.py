"""Whole runs against a loopback OpenAI-compatible server, with figures."""

import json
from pathlib import Path

import pytest

from evidence.errors import BudgetError
from interpreters.fake_server import FakeServer, Served, chat, failure
from loops.archive import read_calls
from loops.config import load_config
from loops.runner import run

pytestmark = [pytest.mark.loopback, pytest.mark.allow_hosts(["127.0.0.1"])]
SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")
SECRETS = ("sk-FAKE-000", "sk-FAKE-111", "pw-FAKE-1")


def good(request: dict) -> Served:
    answers = {g: {"label": "up", "value": 0.5, "confidence": 0.6} for g in GENES}
    return chat(json.dumps({"answers": answers, "explanation": "x", "measurement": "HSP70"}))


def config_for(make_config, server: FakeServer, **options):
    base = {"model": "fake", "base_url": server.base_url, **options}
    return make_config(interpreter={"name": "openai", "options": base}, concurrency=4)


@pytest.mark.usefixtures("socket_enabled")
def test_a_run_with_images(make_config, tmp_path: Path) -> None:
    with FakeServer(good) as server:
        loaded = load_config(str(config_for(make_config, server)), shipped=SHIPPED)
        outcome = run(loaded, tmp_path / "run")
    assert outcome.record.status == "finished"
    assert outcome.summary["calls"] == {
        "n": 12,
        "n_attempts": 12,
        "attempts_by_status": {"ok": 12},
        "calls_by_status": {"ok": 12},
        "repaired": 0,
        "refused_selections": 0,
        "prompt_tokens": 144,
        "completion_tokens": 60,
        "unmetered": 0,
        "cost": None,
        "currency": None,
        "in_open_cells": None,
    }
    bodies = [call.body for call in server.received]
    images = [p for b in bodies for m in b["messages"] if isinstance(m["content"], list) for p in m["content"]]
    urls = [p["image_url"]["url"] for p in images if p["type"] == "image_url"]
    assert len(urls) >= 12
    assert all(u.startswith("data:image/png;base64,iVBOR") for u in urls)
    texts = [p["text"] for p in images if p["type"] == "text"]
    assert any("| readout |" in t for t in texts)


@pytest.mark.usefixtures("socket_enabled")
def test_a09_no_key_in_any_file_or_message(make_config, tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-FAKE-111")

    def leaky(request: dict) -> Served:
        return chat("my key is sk-FAKE-000, or sk-FAKE-111 and pw-FAKE-1")

    with FakeServer(leaky) as server:
        url = server.base_url.replace("http://", "http://user:pw-FAKE-1@")
        path = make_config(
            interpreter={"name": "openai", "options": {"model": "m", "base_url": url, "api_key": "sk-FAKE-000"}}
        )
        run(load_config(str(path), shipped=SHIPPED), tmp_path / "run")
        assert server.received
    with FakeServer([failure(401, "bad key sk-FAKE-000 for user:pw-FAKE-1")]) as server:
        path.write_text(path.read_text().replace(url, server.base_url.replace("http://", "http://user:pw-FAKE-1@")))
        from evidence.errors import ReplyError

        with pytest.raises(ReplyError) as caught:
            run(load_config(str(path), shipped=SHIPPED), tmp_path / "crash")
    written = b"".join(p.read_bytes() for f in ("run", "crash") for p in (tmp_path / f).rglob("*") if p.is_file())
    console = "".join(capfd.readouterr()) + str(caught.value)
    for secret in SECRETS:
        assert secret.encode() not in written
        assert secret not in console
    assert b"[redacted]" in written


@pytest.mark.usefixtures("socket_enabled")
def test_a06_four_kinds_of_waiting(make_config, tmp_path: Path) -> None:
    """Case 4: three requests reach a server that never answers, and the status is timeout."""
    with FakeServer(lambda request: Served(action="hang")) as server:
        path = config_for(make_config, server, timeout_s=1.0)
        file = tmp_path / "heat.json"
        data = json.loads(file.read_text())
        data["cases"] = data["cases"][:1]
        file.write_text(json.dumps(data))
        outcome = run(load_config(str(path), shipped=SHIPPED), tmp_path / "run")
        assert len(server.received) == 3
    assert [c.reply.status for c in read_calls(tmp_path / "run").records] == ["timeout"] * 3
    assert outcome.record.status == "incomplete"
    assert "timeout" in outcome.record.reason


@pytest.mark.usefixtures("socket_enabled")
def test_a06_retry_after_is_waited_for_and_quota_stops(make_config, tmp_path: Path) -> None:
    script = [failure(429, "slow down", headers={"Retry-After": "0.2"})]

    def serve(request: dict) -> Served:
        return script.pop() if script else good(request)

    with FakeServer(serve) as server:
        path = config_for(make_config, server)
        outcome = run(load_config(str(path), shipped=SHIPPED), tmp_path / "run")
    assert outcome.record.status == "finished"
    assert outcome.summary["calls"]["attempts_by_status"] == {"ok": 12, "rate_limited": 1}
    with FakeServer(lambda r: failure(429, "You exceeded your quota", code="insufficient_quota")) as server:
        path.write_text(path.read_text().replace("concurrency: 4", "concurrency: 1"))
        text = path.read_text()
        start = text.index("base_url: ") + len("base_url: ")
        path.write_text(text[:start] + server.base_url + text[text.index("\n", start) :])
        with pytest.raises(BudgetError, match="You exceeded your quota"):
            run(load_config(str(path), shipped=SHIPPED), tmp_path / "quota")
        assert len(server.received) == 1


@pytest.mark.usefixtures("socket_enabled")
def test_e05_replay_gives_the_replies_again_and_any_change_is_a_miss(make_config, tmp_path: Path) -> None:
    numbers = iter(range(1000))

    def counted(request: dict) -> Served:
        body = json.loads(good(request).body["choices"][0]["message"]["content"])
        return chat(json.dumps({**body, "explanation": f"r{next(numbers)}"}))

    with FakeServer(counted) as server:
        path = config_for(make_config, server)
        path.write_text(path.read_text() + "repeats: 3\n")
        run(load_config(str(path), shipped=SHIPPED), tmp_path / "first")
    config = path.read_text()
    start = config.index("interpreter:")
    end = config.index("name: heat", start)
    replay = f"interpreter: {{name: replay, options: {{run: '{tmp_path / 'first'}'}}}}\n"
    path.write_text(config[:start] + replay + config[end:])
    run(load_config(str(path), shipped=SHIPPED), tmp_path / "again")

    def replies(name: str) -> dict:
        return {(c.case, c.repeat, c.step): c.reply.text for c in read_calls(tmp_path / name).records}

    assert replies("again") == replies("first")
    assert len(set(replies("first").values())) == 36
    assert all(c.reply.sent["replayed_from"] == "first" for c in read_calls(tmp_path / "again").records)
    assert (tmp_path / "again/scores/readouts.jsonl").read_bytes() == (
        tmp_path / "first/scores/readouts.jsonl"
    ).read_bytes()
    from evidence.errors import ReplyError

    path.write_text(path.read_text().replace("adapter: affine", "adapter: local"))
    with pytest.raises(ReplyError, match="no whole reply to this request"):
        run(load_config(str(path), shipped=SHIPPED), tmp_path / "changed")


@pytest.mark.usefixtures("socket_enabled")
def test_a_server_that_is_not_there_stops_the_run_at_the_first_case(make_config, tmp_path: Path) -> None:
    with FakeServer(good) as server:
        options = {"model": "fake", "base_url": server.base_url}
    path = make_config(
        interpreter={"name": "openai", "options": options}, attempts={"max_attempts": 2, "backoff_s": 0.01}
    )
    outcome = run(load_config(str(path), shipped=SHIPPED), tmp_path / "run")
    assert [c.reply.status for c in read_calls(tmp_path / "run").records] == ["connection"] * 2
    assert outcome.record.status == "incomplete"
    assert f"no answer from {options['base_url']}" in outcome.record.reason
    assert "is the server up, and its address right?" in outcome.record.reason
