"""Several processes for one run: the same scores, limits that hold for all, and clean ends whatever happens to one."""

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from evidence.contracts import Reply, Usage
from evidence.errors import BudgetError, ConfigError, ContractError, ReplyError, VcloopError
from interpreters.fake_server import FakeServer, Served, chat, failure
from interpreters.rules import RulesInterpreter
from interpreters.scripted import ScriptedInterpreter
from loops import processes
from loops.archive import read_calls
from loops.config import Limits, Prices, load_config
from loops.ledger import SharedMeter
from loops.limits import LimitReached
from loops.runner import Job, run, run_all, works_of
from loops.work import Progress

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "cases"
GENES = ("HSP70", "HSP90", "CDC6")
loopback = [
    pytest.mark.loopback,
    pytest.mark.allow_hosts(["127.0.0.1"]),
    pytest.mark.usefixtures("socket_enabled"),
]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone"),
    # JAX, which other tests of this process may have imported, warns of every fork; the children do nothing with it.
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def _whatever_other_tests_have_imported(monkeypatch):
    monkeypatch.setattr(processes, "UNSAFE", ())


@pytest.fixture
def ctrl_c():
    """SIGINT as in a terminal: in a shell's background it is ignored, and Python leaves that as it is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def load(make_config):
    """Load the small config, for two processes unless it is said otherwise: four cases, three repeats, 36 calls."""

    def loaded(**changes):
        config = {"processes": 2, "concurrency": 4, "repeats": 3, "modalities": ["table"], **changes}
        return load_config(str(make_config(**config)), shipped=SHIPPED)

    return loaded


def scores(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "scores").iterdir())}


def asking(server: FakeServer, **options):
    return {"name": "openai", "options": {"model": "fake", "base_url": server.base_url, **options}}


def good(request: dict) -> Served:
    answers = {g: {"label": "up", "value": 0.5, "confidence": 0.6} for g in GENES}
    return chat(json.dumps({"answers": answers, "explanation": "x", "measurement": "HSP70"}))


class Where(RulesInterpreter):
    """Notes in the reply which process asked."""

    async def ask(self, request, blobs, *, repeat):
        reply = await super().ask(request, blobs, repeat=repeat)
        return reply.model_copy(update={"reasoning": f"process {os.getpid()}"})


def test_two_processes_give_the_scores_of_one(load, tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    progress = Progress(
        prepared=lambda n: counted.update(prepared=n),
        cell=lambda: counted.update(cell=1),
        call=lambda live: counted.update({"live" if live else "archived": 1}),
    )
    one = run(load(processes=1), tmp_path / "one")
    loaded = load()
    two = run(loaded._replace(interpreter=Where(loaded.interpreter.options)), tmp_path / "two", progress=progress)
    assert two.record.status == one.record.status == "finished"
    assert scores(tmp_path / "two") == scores(tmp_path / "one")
    records = read_calls(tmp_path / "two").records
    asked = Counter(record.reply.reasoning for record in records)
    assert sorted(asked.values()) == [18, 18]
    assert f"process {os.getpid()}" not in asked
    assert counted == {"prepared": 12, "cell": 12, "live": 36}
    again = run(load(), tmp_path / "two", resume=True, progress=progress)
    assert again.record.status == "finished"
    assert len(read_calls(tmp_path / "two").records) == 36


def test_a_benchmark_too(tmp_path: Path) -> None:
    outcomes = {}
    for n in (1, 2):
        config = tmp_path / f"bench{n}.yaml"
        text = (SHIPPED / "bench" / "synthetic-rules.yaml").read_text()
        config.write_text(text + f"processes: {n}\nconcurrency: 2\n")
        for other in (SHIPPED / "bench").iterdir():
            if other.suffix != ".yaml" and not (tmp_path / other.name).exists():
                (tmp_path / other.name).symlink_to(other)
        command = [sys.executable, "-m", "loops.cli", "bench", "run", str(config), "--results", str(tmp_path / str(n))]
        made = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        outcomes[n] = made.stdout
    assert outcomes[1] == outcomes[2]


class TestServers:
    pytestmark = loopback

    def test_what_one_process_learns_of_a_server_the_others_know(self, load, tmp_path: Path) -> None:
        def strict(request: dict) -> Served:
            asked = (request.get("response_format") or {}).get("type")
            refused = asked == "json_schema"
            return failure(400, "not here", param="response_format.type") if refused else good(request)

        with FakeServer(strict) as server:
            outcome = run(load(interpreter=asking(server, output="schema")), tmp_path / "run")
        assert outcome.record.status == "finished"
        assert len(server.received) == 36 + 1
        adapted = [record.reply.sent["adapted"] for record in read_calls(tmp_path / "run").records]
        assert len([changes for changes in adapted if changes]) == 1

    def test_a_limit_of_calls_is_exact_for_all(self, load, tmp_path: Path) -> None:
        with FakeServer(good) as server:
            outcome = run(load(interpreter=asking(server), limits={"calls": 11}), tmp_path / "run")
            assert outcome.record.status == "incomplete"
            assert "limits.calls: 11 of 11" in outcome.record.reason
            assert len(server.received) == len(read_calls(tmp_path / "run").records) == 11
            more, counted = load(interpreter=asking(server), limits={"calls": 36}), Counter()
            progress = Progress(call=lambda live: counted.update({"live" if live else "archived": 1}))
            assert run(more, tmp_path / "run", resume=True, progress=progress).record.status == "finished"
            assert counted["live"] == 25
            assert 0 < counted["archived"] <= 11
            assert len(server.received) == 36
            run(load(interpreter=asking(server), processes=1), tmp_path / "one")
        assert scores(tmp_path / "run") == scores(tmp_path / "one")

    def test_a_quota_that_one_meets_stops_all(self, load, tmp_path: Path) -> None:
        numbers = iter(range(1000))

        def serve(request: dict) -> Served:
            if next(numbers) == 9:
                return failure(429, "no more", code="insufficient_quota")
            return good(request)._replace(delay_s=0.1)

        with FakeServer(serve) as server:
            with pytest.raises(BudgetError, match="no more"):
                run(load(interpreter=asking(server)), tmp_path / "run")
            assert len(server.received) <= 9 + 1 + 4
            assert len(read_calls(tmp_path / "run").records) == len(server.received)

    @pytest.mark.usefixtures("ctrl_c")
    @pytest.mark.parametrize("n", [1, 2])
    def test_ctrl_c_does_not_wait_for_a_time_that_the_server_named(self, load, tmp_path: Path, n: int) -> None:
        def serve(request: dict) -> Served:
            return failure(429, "slow", headers={"Retry-After": "20"})

        began = time.monotonic()
        with FakeServer(serve) as server:

            def interrupt() -> None:
                while not server.received:
                    time.sleep(0.01)
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGINT)

            interrupter = threading.Thread(target=interrupt)
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                run(load(interpreter=asking(server), processes=n), tmp_path / "run")
            interrupter.join()
            assert len(server.received) == len(read_calls(tmp_path / "run").records) <= 4
        assert time.monotonic() - began < 15

    def test_a_server_that_one_process_reached_is_there(self, load, tmp_path: Path) -> None:
        """Resets that all but one call meets are no sign of a wrong address."""
        numbers = iter(range(1000))

        def serve(request: dict) -> Served:
            return good(request) if next(numbers) % 12 == 0 else Served(action="reset")

        with FakeServer(serve) as server:
            outcome = run(load(interpreter=asking(server, adapt=False)), tmp_path / "run")
        assert "had no reply within" in outcome.record.reason

    def test_a_server_that_is_not_there_ends_the_run(self, load, tmp_path: Path) -> None:
        with FakeServer(good) as server:
            gone = asking(server)
        outcome = run(load(interpreter=gone), tmp_path / "run")
        assert outcome.record.status == "incomplete"
        assert "no connection was made at all" in outcome.record.reason

    def test_the_wall_time_holds_for_all(self, load, tmp_path: Path) -> None:
        with FakeServer(lambda r: failure(429, "slow", headers={"Retry-After": "30"})) as server:
            outcome = run(load(interpreter=asking(server), limits={"wall_time_s": 0.5}), tmp_path / "run")
        assert "limits.wall_time_s" in outcome.record.reason

    @pytest.mark.usefixtures("ctrl_c")
    def test_ctrl_c_lets_calls_under_way_end(self, load, tmp_path: Path) -> None:
        def serve(request: dict) -> Served:
            return good(request)._replace(delay_s=0.3)

        with FakeServer(serve) as server:

            def interrupt() -> None:
                while len(server.received) < 8:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)

            interrupter = threading.Thread(target=interrupt)
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                run(load(interpreter=asking(server), repeats=20), tmp_path / "run")
            interrupter.join()
            assert 8 <= len(server.received) <= 16
            assert len(read_calls(tmp_path / "run").records) == len(server.received)
        record = json.loads((tmp_path / "run" / "run.json").read_text())
        assert (record["status"], record["reason"]) == ("incomplete", "interrupted")


class Learning(RulesInterpreter):
    """Finds out something with its first reply, and notes for every call what it then knows."""

    found: object = "what the server wants"

    def __init__(self, options):
        super().__init__(options)
        self.findings = None

    async def ask(self, request, blobs, *, repeat):
        reply = await super().ask(request, blobs, repeat=repeat)
        known, self.findings = self.findings, self.findings or self.found
        return reply.model_copy(update={"reasoning": f"{os.getpid()} {type(known).__name__}"})


class Finding:
    """Findings that say nothing of themselves but where they are in memory."""


@pytest.mark.parametrize("found", ["words", Finding()])
def test_findings_of_any_kind_reach_the_others(load, tmp_path: Path, found: object) -> None:
    loaded, interpreter = load(concurrency=2), Learning(load().interpreter.options)
    interpreter.found = found
    run(loaded._replace(interpreter=interpreter), tmp_path / "run")
    notes = Counter(record.reply.reasoning.split()[1] for record in read_calls(tmp_path / "run").records)
    assert notes == {"NoneType": 1, type(found).__name__: 35}


def test_findings_that_cannot_be_handed_on_end_the_run(load, tmp_path: Path) -> None:
    loaded, interpreter = load(), Learning(load().interpreter.options)
    interpreter.found = lambda: 1
    with pytest.raises(ContractError, match="interpreter 'rules': its findings cannot be pickled"):
        run(loaded._replace(interpreter=interpreter), tmp_path / "run")


def test_a_sweep_goes_on_where_one_run_of_it_is_refused(load, tmp_path: Path) -> None:
    """No process waits for what the first one was to find out about a server that the run no longer asks."""

    class Refused(Learning):
        async def ask(self, request, blobs, *, repeat):
            await asyncio.sleep(0.3)  # until the other process waits
            raise ReplyError("no such model")

    class Slow(Where):
        async def ask(self, request, blobs, *, repeat):
            await asyncio.sleep(0.02)
            return await super().ask(request, blobs, repeat=repeat)

    options = load().interpreter.options
    jobs = [
        Job(load(name=name)._replace(interpreter=kind(options)), tmp_path / name)
        for name, kind in (("refused", Refused), ("good", Slow))
    ]
    refused, good = run_all(jobs, limits=Limits(), concurrency=2, processes=2)
    assert (refused.record.status, type(refused.error)) == ("incomplete", ReplyError)
    assert good.record.status == "finished"
    asked = [record.reply.reasoning for record in read_calls(tmp_path / "good").records]
    assert sorted(Counter(asked).values()) == [18, 18]
    assert len(set(asked[:18])) == 2, "the second process waited for the end of the first"
    run(load(name="good", processes=1), tmp_path / "one")
    assert scores(tmp_path / "good") == scores(tmp_path / "one")


def test_a_process_that_is_killed_leaves_a_run_to_resume(load, tmp_path: Path) -> None:
    class Deadly(RulesInterpreter):
        n = 0

        async def ask(self, request, blobs, *, repeat):
            Deadly.n += 1
            if Deadly.n == 7:
                os.kill(os.getpid(), signal.SIGKILL)
            return await super().ask(request, blobs, repeat=repeat)

    loaded = load()
    with pytest.raises(VcloopError, match=r"a process of the run was killed \(exit code -9\); resume"):
        run(loaded._replace(interpreter=Deadly(loaded.interpreter.options)), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "incomplete"
    assert run(load(processes=1), tmp_path / "run", resume=True).record.status == "finished"
    run(load(processes=1), tmp_path / "one")
    assert scores(tmp_path / "run") == scores(tmp_path / "one")


def test_a_torn_line_takes_the_next_one_with_it_and_both_calls_are_made_again(load, tmp_path: Path) -> None:
    """One process is killed in the middle of a line, another one appends to it."""
    run(load(), tmp_path / "run")
    whole = scores(tmp_path / "run")
    path = tmp_path / "run" / "calls.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:20], lines[20][:100], *lines[21:]]))
    (tmp_path / "run" / "events.jsonl").unlink()
    counted: Counter[bool] = Counter()
    progress = Progress(call=lambda live: counted.update([live]))
    again = run(load(), tmp_path / "run", resume=True, progress=progress)
    assert again.damaged == ["calls.jsonl line 21"]
    assert counted == {True: 2, False: 34}
    assert scores(tmp_path / "run") == whole


class Odd(ContractError):
    """An error that cannot be pickled, of a plugin that makes its errors in another way."""

    def __init__(self, a: str, b: str):
        super().__init__(f"{a} {b}")
        self.why = lambda: 1


ERRORS = {
    "ours": (ContractError("not so", case="c", step="predict"), ContractError, "not so"),
    "a plugin's": (Odd("not", "so"), ContractError, "not so"),
    "a bug": (ValueError("oh"), ValueError, "oh"),
    "no Exception": (BaseException("oh"), BaseException, "oh"),
    "an exit": (SystemExit(3), SystemExit, "3"),
}


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_in_one_process_is_that_of_the_run(load, tmp_path: Path, name: str, n: int) -> None:
    error, kind, words = ERRORS[name]

    class Broken(RulesInterpreter):
        async def ask(self, request, blobs, *, repeat):
            if repeat == 1:
                raise error
            return await super().ask(request, blobs, repeat=repeat)

    loaded = load(processes=n)
    with pytest.raises(kind, match=words) as caught:
        run(loaded._replace(interpreter=Broken(loaded.interpreter.options)), tmp_path / "run")
    notes = getattr(caught.value, "__notes__", ())
    assert any("in ask" in note for note in notes) is (n == 2 and not issubclass(kind, VcloopError))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "incomplete"
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("n", [1, 2])
def test_an_interpreter_that_cancels_itself_ends_the_run(load, tmp_path: Path, n: int) -> None:
    class Cancelling(RulesInterpreter):
        async def ask(self, request, blobs, *, repeat):
            raise asyncio.CancelledError

    loaded = load(processes=n)
    with pytest.raises(BaseException, match="CancelledError"):
        run(loaded._replace(interpreter=Cancelling(loaded.interpreter.options)), tmp_path / "run")


def test_errors_in_all_processes_lose_no_call_under_way(load, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    class Slow(RulesInterpreter):
        async def ask(self, request, blobs, *, repeat):
            if repeat == 1:
                raise ContractError("both")
            with begun.open("a") as file:
                file.write("x")
            await asyncio.sleep(0.4)
            return await super().ask(request, blobs, repeat=repeat)

    loaded = load()
    with pytest.raises(ContractError, match="both"):
        run(loaded._replace(interpreter=Slow(loaded.interpreter.options)), tmp_path / "run")
    assert 0 < len(read_calls(tmp_path / "run").records) == len(begun.read_text())


def test_processes_die_with_the_one_that_forked_them(load, tmp_path: Path) -> None:
    """SIGKILL to the first process alone: the others make no more calls, and the folder is free."""
    asked = tmp_path / "asked"

    class Slow(RulesInterpreter):
        async def ask(self, request, blobs, *, repeat):
            with asked.open("a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(0.05)
            return await super().ask(request, blobs, repeat=repeat)

    loaded = load(repeats=50)
    child = os.fork()
    if child == 0:
        try:
            run(loaded._replace(interpreter=Slow(loaded.interpreter.options)), tmp_path / "run")
        finally:
            os._exit(1)
    while not asked.exists() or len(set(asked.read_text().splitlines())) < 2:
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    time.sleep(0.2)
    n_asked = asked.read_text().count("\n")
    time.sleep(0.3)
    assert asked.read_text().count("\n") == n_asked < 600
    assert run(load(repeats=50), tmp_path / "run", resume=True).record.status == "finished"


class TestHowMany:
    def test_one_for_32_calls_at_once_and_no_more_than_processors(self, monkeypatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
        how_many = processes.how_many
        assert [how_many(None, [], 10_000, places) for places in (1, 63, 64, 100, 1000)] == [1, 1, 2, 3, 4]
        assert how_many(None, [], 150, 100) == 1, "all cells are open at once anyway"
        assert how_many(3, [], 10_000, 1) == 1
        assert how_many(3, [], 2, 100) == 2
        assert how_many(3, [], 0, 100) == 1

    def test_replies_in_the_order_of_requests_are_never_shared_out(self, load, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
        loaded, counts = load(), []
        for interpreter in (loaded.interpreter, ScriptedInterpreter(replies=["same"])):
            works = works_of([Job(loaded._replace(interpreter=interpreter), tmp_path / "run")])
            counts.append(processes.how_many(None, works, 10_000, 100))
        assert counts == [3, 1]

    def test_what_cannot_be_forked_is_told_before_the_run(self, load, tmp_path: Path, monkeypatch) -> None:
        loaded = load()
        with pytest.raises(ConfigError, match="processes: 2 cannot be, .* in the order of its requests; set processes"):
            run(loaded._replace(interpreter=ScriptedInterpreter(replies=["same"])), tmp_path / "run")
        monkeypatch.setitem(multiprocessing.process.current_process()._config, "daemon", True)
        with pytest.raises(ConfigError, match="a daemon"):
            run(loaded, tmp_path / "run")
        monkeypatch.undo()
        monkeypatch.setattr(processes, "UNSAFE", ("json",))
        with pytest.raises(ConfigError, match="json is at work in this one"):
            run(loaded, tmp_path / "run")
        monkeypatch.setattr(sys, "platform", "darwin")
        with pytest.raises(ConfigError, match="safe on Linux alone"):
            run(loaded, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        assert run(load(processes=None), tmp_path / "run").record.status == "finished"

    def test_every_share_has_its_part(self) -> None:
        whole = list(range(7))
        for n in range(1, 9):
            parts = [processes._part(whole, number, n) for number in range(n)]
            assert [item for part in parts for item in part] == whole
            assert len(parts[0]) == max(map(len, parts)) > 0


def test_a_shared_meter_counts_for_all() -> None:
    reply = Reply(text="x", usage=Usage(prompt_tokens=3, completion_tokens=1))
    with SharedMeter(Limits(calls=2000, cost=1)) as meter:
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                for _ in range(500):
                    meter.admit()
                    meter.add(reply, Prices(prompt=0.1, completion=0.3), metered=True)
                os._exit(0)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
        assert meter.used == (2000, 6000, 2000, Decimal("0.0012"), 0)
        with pytest.raises(LimitReached, match=r"limits\.calls: 2000 of 2000"):
            meter.admit()
