"""What a kill, a full disk, an editor or a second process can do to an archive: nothing is lost or made up silently."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from vcloop_heat_shock.setting import HeatShock

from evidence.contracts import Case, Reply, Truth
from evidence.errors import ArchiveError, ConfigError, ContractError, ReplyError
from evidence.journal import Journal, read_journal
from interpreters.scripted import ScriptedInterpreter
from loops import runner
from loops.archive import read_calls
from loops.config import load_config, rename
from loops.rescore import rescore
from loops.runner import run
from loops.shift import StoredBlobs

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")


def reply(label: str = "up", measurement: str | None = "HSP70") -> str:
    answers = {g: {"label": label, "value": 0.4, "confidence": 0.5} for g in GENES}
    return json.dumps({"answers": answers, "explanation": "x", "measurement": measurement})


def load(path: Path, **interpreter):
    loaded = load_config(str(path), shipped=SHIPPED)
    return loaded._replace(interpreter=ScriptedInterpreter(**interpreter)) if interpreter else loaded


def scores(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "scores").iterdir())}


def edit(folder: Path, event: str, change, nth: int = 0) -> None:
    """Change, or with None cut, the nth line of a kind in events.jsonl."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines()
    n = [i for i, line in enumerate(lines) if json.loads(line)["event"] == event][nth]
    if change is None:
        lines[n] = lines[n][: len(lines[n]) // 2]
    else:
        record = json.loads(lines[n])
        change(record)
        lines[n] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


class Flaky:
    """Every first send of a call fails; the review is down until `up`. Counts what was answered."""

    Options = ScriptedInterpreter.Options
    modalities = ScriptedInterpreter.modalities

    def __init__(self):
        self.up = False
        self.sent: set[str] = set()
        self.answered: list[str] = []

    def identity(self):
        return {"name": "flaky"}

    async def ask(self, request, blobs, *, repeat):
        key = request.model_dump_json()
        if request.step == "review" and not self.up:
            raise ReplyError("down")
        if key not in self.sent:
            self.sent.add(key)
            return Reply(status="server_error")
        self.answered.append(key)
        return Reply(text=reply(measurement="HSP70" if request.menu else None))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e["answers"][0].update(confidence=1.7), "the confidence of 'HSP70' is not from 0 to 1"),
        (
            lambda e: e["answers"][0].update(probabilities=[1.0, 0.0, 0.0, 0.0]),
            "probabilities of 'HSP70' are not one a",
        ),
        (
            lambda e: e["answers"][0].update(probabilities=[0.0, 0.0, 0.0]),
            "probabilities of 'HSP70' are not one a label",
        ),
        (lambda e: e["usage"].update(prompt_tokens=-5), "prompt_tokens"),
    ],
)
def test_an_edited_number_is_refused_with_its_place(make_config, tmp_path: Path, change, words: str) -> None:
    run(load(make_config()), tmp_path / "run")
    edit(tmp_path / "run", "stepped", change)
    with pytest.raises(ArchiveError, match=words) as caught:
        rescore(tmp_path / "run")
    assert "events.jsonl" in str(caught.value)


def test_what_a_kill_while_scores_were_written_left_is_removed(make_config, tmp_path: Path) -> None:
    run(load(make_config()), tmp_path / "run")
    before = scores(tmp_path / "run")
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / "run/scores" / f".readouts.jsonl.{int(ended.stdout)}.tmp").write_text("half")
    (tmp_path / "run/scores" / f".summary.json.{os.getppid()}.tmp").write_text("another process writes")
    rescore(tmp_path / "run")
    assert scores(tmp_path / "run") == {**before, f".summary.json.{os.getppid()}.tmp": b"another process writes"}


def test_a_reply_that_needed_a_retry_is_not_paid_twice(make_config, tmp_path: Path) -> None:
    path = make_config()
    loaded, flaky = load(path), Flaky()
    with pytest.raises(ReplyError, match="down"):
        run(loaded._replace(interpreter=flaky), tmp_path / "run")
    flaky.up = True
    outcome = run(loaded._replace(interpreter=flaky), tmp_path / "run", resume=True)
    assert outcome.record.status == "finished"
    assert len(flaky.answered) == len(set(flaky.answered)) == 12


@pytest.mark.parametrize(
    ("event", "nth"), [("stepped", 0), ("stepped", 2), ("selected", 1), ("observed", 3), ("closed", 2)]
)
@pytest.mark.parametrize("how", ["cut", "lost"])
def test_a_case_with_a_lost_line_counts_as_open_and_is_run_again(make_config, tmp_path, event, nth, how) -> None:
    path = make_config()
    run(load(path), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "hurt")
    if how == "cut":
        edit(tmp_path / "hurt", event, None, nth)
    else:
        file = tmp_path / "hurt/events.jsonl"
        lines = file.read_text().splitlines()
        del lines[[i for i, line in enumerate(lines) if json.loads(line)["event"] == event][nth]]
        file.write_text("\n".join(lines) + "\n")
    summary = rescore(tmp_path / "hurt")
    assert summary["n_cells_open"] == 1
    assert summary["outcomes"] == {"complete": 3}
    calls = (tmp_path / "hurt/calls.jsonl").read_bytes()
    run(load(path), tmp_path / "hurt", resume=True)
    assert (tmp_path / "hurt/calls.jsonl").read_bytes() == calls
    assert (tmp_path / "hurt/scores/readouts.jsonl").read_bytes() == (
        tmp_path / "whole/scores/readouts.jsonl"
    ).read_bytes()


def test_a_start_that_came_first_is_noticed_under_the_lock(make_config, tmp_path: Path, monkeypatch) -> None:
    path = make_config()
    first = load(path)
    second = first._replace(config=first.config.model_copy(update={"seed": 2}))
    real = runner.prepare

    def slow(loaded):
        ready = real(loaded)
        if not (tmp_path / "run/run.json").exists():
            monkeypatch.setattr(runner, "prepare", real)
            run(first, tmp_path / "run")
        return ready

    monkeypatch.setattr(runner, "prepare", slow)
    with pytest.raises(ArchiveError, match="exists: continue it with --resume"):
        run(second, tmp_path / "run")
    assert json.loads((tmp_path / "run/run.json").read_text())["config"]["seed"] == 0


@pytest.mark.parametrize("name", ["_x", "\u00f6", "a" * 120, "", "../x", ".x"])
def test_names_that_no_archive_can_have_are_refused_at_once(make_config, name: str) -> None:
    with pytest.raises(ConfigError, match="--name"):
        rename(load(make_config()).config, name)


@pytest.mark.parametrize("word", ["measured", "predict", "near zero", "finished", "425213", "wildtype"])
def test_an_ordinary_word_in_a_password_variable_spoils_nothing(make_config, tmp_path, monkeypatch, word) -> None:
    path = make_config()
    run(load(path), tmp_path / "plain")
    monkeypatch.setenv("DB_PASSWORD", word)
    run(load(path), tmp_path / "run")
    assert scores(tmp_path / "run") == scores(tmp_path / "plain")


def test_redaction_happens_before_a_reply_enters_the_conversation(make_config, tmp_path: Path) -> None:
    """A reply with URL credentials is archived as it goes on: a resume finds every request again."""
    leaky = reply()[:-1] + ', "note": "http://user:pass-word1@host/x and http://foo"}'
    script = {"predict": [leaky] * 4, "review": [reply()] * 4, "revise": [reply()] * 4}
    run(load(make_config(), replies=script), tmp_path / "run")
    calls = read_calls(tmp_path / "run").records
    assert all("pass-word1" not in c.model_dump_json() for c in calls)
    (tmp_path / "run/events.jsonl").unlink()
    run(load(tmp_path / "heat.yaml", replies=script), tmp_path / "run", resume=True)
    assert len(read_calls(tmp_path / "run").records) == len(calls)


def test_a_damaged_figure_is_made_again_and_never_sent(make_config, tmp_path: Path) -> None:
    script = {"predict": [reply()] * 4, "review": [reply()] * 4, "revise": [reply()] * 4}
    loaded = load(make_config(), replies=script)
    run(loaded, tmp_path / "run")
    blob = next(p for p in (tmp_path / "run/blobs").iterdir() if p.read_bytes().startswith(b"\x89PNG"))
    blob.write_bytes(b"damaged")
    with pytest.raises(ArchiveError, match="is damaged"):
        StoredBlobs(tmp_path / "run")[blob.name]
    (tmp_path / "run/events.jsonl").unlink()
    run(load(tmp_path / "heat.yaml", replies=script), tmp_path / "run", resume=True)
    assert blob.read_bytes().startswith(b"\x89PNG")


def test_reparse_says_which_calls_are_damaged_and_keeps_their_reading(make_config, tmp_path: Path) -> None:
    path = make_config()
    script = {"predict": ["sorry", reply()] * 4, "review": [reply()] * 4, "revise": [reply()] * 4}
    before = run(load(path, replies=script), tmp_path / "run").summary
    calls = tmp_path / "run/calls.jsonl"
    lines = calls.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:100] + b"\n"
    calls.write_bytes(b"".join(lines))
    after = rescore(tmp_path / "run", reparse=True)
    assert after["damaged_call_lines"] == [2]
    assert after["rows"] == before["rows"]


@pytest.mark.parametrize(
    ("event", "change", "words"),
    [
        ("opened", lambda e: e["truth"][0].update(label="up" if e["truth"][0]["label"] != "up" else "down"), "follow"),
        ("opened", lambda e: e["truth"].reverse(), "truth"),
        ("opened", lambda e: e["truth"][0].update(label="bogus"), "bogus"),
        ("opened", lambda e: e.update(adapter_inputs=""), "adapter inputs"),
        ("opened", lambda e: e["case"]["readouts"][0].update(threshold=None), "categorical"),
        ("opened", lambda e: e["sealed"].pop(), "sealed: expected observations of"),
        ("stepped", lambda e: e["answers"].reverse(), "answers to"),
        ("stepped", lambda e: e["answers"].pop(), "answers to"),
        ("stepped", lambda e: e["answers"][0].update(label="bogus"), "no option"),
        ("observed", lambda e: e["observation"].update(value=3.0), "sealed"),
        ("closed", lambda e: e.update(case="other"), "run.json does not have"),
    ],
)
def test_an_edited_archive_is_refused(make_config, tmp_path: Path, event, change, words) -> None:
    run(load(make_config()), tmp_path / "run")
    edit(tmp_path / "run", event, change)
    with pytest.raises(ArchiveError, match=words):
        rescore(tmp_path / "run")


def test_a_prediction_of_a_categorical_readout_is_refused_before_the_first_call(
    make_config, tmp_path: Path, monkeypatch
) -> None:
    def categorical(setting: HeatShock) -> tuple[Case, ...]:
        return tuple(
            case.model_copy(update={"readouts": tuple(r.model_copy(update={"threshold": None}) for r in case.readouts)})
            for case in setting.case_file.cases
        )

    def up(setting: HeatShock, case: Case) -> tuple[Truth, ...]:
        return tuple(Truth(readout=r.id, label="up") for r in case.readouts)

    monkeypatch.setattr(HeatShock, "cases", categorical)
    monkeypatch.setattr(HeatShock, "truth", up)
    with pytest.raises(ContractError, match="is categorical, and there is a prediction of its value"):
        run(load(make_config()), tmp_path / "run")
    assert not (tmp_path / "run/calls.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [("[" * 100_000, "not valid JSON"), ('{"format": 1, "interpreter": NaN}', "not valid JSON"), ("{}", "format None")],
)
def test_a_broken_run_json_is_refused(make_config, tmp_path: Path, content, words) -> None:
    run(load(make_config()), tmp_path / "run")
    (tmp_path / "run/run.json").write_text(content)
    with pytest.raises(ArchiveError, match=words):
        rescore(tmp_path / "run")


def test_a_folder_in_the_place_of_a_file(make_config, tmp_path: Path) -> None:
    run(load(make_config()), tmp_path / "run")
    (tmp_path / "run/events.jsonl").unlink()
    (tmp_path / "run/events.jsonl").mkdir()
    with pytest.raises(ArchiveError, match="cannot read"):
        rescore(tmp_path / "run")


def test_a_script_goes_on_where_a_resumed_run_stopped(make_config, tmp_path: Path) -> None:
    path = make_config(review=False)
    script = {"predict": [reply(x) for x in ("up", "down", "near zero", "up")], "revise": [reply()] * 4}
    run(load(path, replies=script), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    calls = (tmp_path / "cut/calls.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut/calls.jsonl").write_bytes(b"".join(calls[:2]))
    (tmp_path / "cut/events.jsonl").unlink()
    run(load(path, replies=script), tmp_path / "cut", resume=True)
    assert scores(tmp_path / "cut") == scores(tmp_path / "whole")


def test_a_line_that_was_written_in_part_takes_no_other_with_it(tmp_path: Path, monkeypatch) -> None:
    """The disk is full in the middle of a line, and has room again."""
    journal, write = Journal(tmp_path / "calls.jsonl"), os.write
    journal.append('{"n": 1}')
    room = iter([4, 0])

    def full(descriptor: int, line: bytes) -> int:
        left = next(room, len(line))
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, line[:left])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ArchiveError, match="No space left"):
        journal.append('{"n": 2}')
    monkeypatch.undo()
    journal.append('{"n": 3}')
    journal.close()
    lines = read_journal(tmp_path / "calls.jsonl")
    assert [record["n"] for _, record in lines.records] == [1, 3]
    assert lines.damaged == [2]
