"""The steps with scripted replies: repair, refusals, budgets, and what the state may hold (reports L01-L09)."""

import json
from pathlib import Path

import numpy as np
import pytest

from evidence.contracts import Reply
from evidence.errors import ContractError
from interpreters.scripted import ScriptedInterpreter
from loops.archive import Observed, Selected, Stepped, read_calls, read_events
from loops.config import load_config
from loops.graph import build_graph, check_plain, initial_state, step_limit
from loops.runner import run

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")


def reply(measurement: object = "HSP70", label: str = "near zero") -> str:
    answers = {g: {"label": label, "value": 0.0, "confidence": 0.5} for g in GENES}
    return json.dumps({"answers": answers, "explanation": "x", "measurement": measurement})


def choice(measurement: object) -> str:
    return json.dumps({"measurement": measurement, "explanation": "x"})


@pytest.fixture
def run_one(make_config, tmp_path: Path):
    """Run the first case with scripted replies; returns events, calls, summary and the interpreter."""

    def go(replies, **changes):
        path = make_config(**changes)
        file = path.parent / "heat.json"
        data = json.loads(file.read_text())
        data["cases"] = data["cases"][:1]
        file.write_text(json.dumps(data))
        loaded = load_config(str(path), shipped=SHIPPED)
        loaded = loaded._replace(interpreter=ScriptedInterpreter(replies=replies))
        outcome = run(loaded, tmp_path / "run")
        return (
            read_events(tmp_path / "run")[0],
            read_calls(tmp_path / "run").records,
            outcome.summary,
            loaded.interpreter,
        )

    return go


def of(events, kind):
    return [e for e in events if isinstance(e, kind)]


def test_l06_bad_reply_is_repaired(run_one) -> None:
    _, calls, summary, interpreter = run_one(
        {"predict": ["sorry, here it is", reply()], "review": [reply(None)], "revise": [reply(None)]}
    )
    assert [(c.step, c.attempt) for c in calls if c.step == "predict"] == [("predict", 1), ("predict", 2)]
    assert summary["calls"]["repaired"] == 1
    repair = interpreter.received[1].request
    assert repair.messages[-2].parts[0].text == "sorry, here it is"
    assert "could not be read" in repair.messages[-1].parts[0].text
    # The repair is no part of the conversation that goes on.
    assert "sorry, here it is" not in json.dumps([r.request.model_dump() for r in interpreter.received[2:]])


def test_l06_three_bad_replies_fail_the_step(run_one) -> None:
    events, calls, summary, _ = run_one({"predict": ["sorry", "here", "it is"]}, repairs=2)
    assert [(c.attempt, c.repair) for c in calls] == [(1, False), (2, True), (3, True)]
    assert [c.reply.text for c in calls] == ["sorry", "here", "it is"]
    (step,) = of(events, Stepped)
    assert step.status == "invalid"
    assert step.attempts == ("invalid", "invalid", "invalid")
    assert all(a.status == "missing" for a in step.answers)
    assert summary["outcomes"] == {"predict failed": 1}
    initial = next(row for row in summary["rows"] if row["name"] == "initial")
    assert initial["all"]["n_missing"] == 3
    assert initial["all"]["mae"]["value"] is None


def test_l09_illegal_proposals_cost_nothing_and_end_the_case(run_one) -> None:
    events, calls, summary, interpreter = run_one(
        {
            "predict": [reply("GATA1")],
            "review": [reply(None)],
            "select": [choice("hsp"), choice(" hsp70 "), choice("HSP70"), choice("HSP70")],
            "revise": [reply("HSP70")],
        },
        budget={"measurements": 2},
    )
    first, second = of(events, Selected)
    assert first.measurement == "HSP70"
    assert first.refused == ("GATA1", "hsp")
    assert second.measurement is None
    assert second.reason == "no valid selection"
    assert second.refused == ("HSP70",) * 3
    assert len([c for c in calls if c.step == "select" and c.turn == 1]) == 2
    asked = next(r.request for r in interpreter.received if r.request.step == "select")
    assert "'GATA1' cannot be measured now. Answer with one of: HSP70, HSP90, CDC6" in asked.messages[-1].parts[0].text
    assert summary["outcomes"] == {"no valid selection": 1}
    assert summary["calls"]["refused_selections"] == 5
    assert len(of(events, Observed)) == 1


def test_a_model_may_decline_to_measure(run_one) -> None:
    events, _, summary, _ = run_one({"predict": [reply(None)], "review": [reply(None)]})
    assert of(events, Selected)[0].reason == "no measurement"
    assert summary["outcomes"] == {"no measurement": 1}
    rows = {row["name"]: row["all"] for row in summary["rows"]}
    assert rows["revised"] == rows["initial"]


def test_l03_each_observation_stands_once_in_order(run_one) -> None:
    revised = [reply("HSP90"), reply("CDC6"), reply(None)]
    events, _, _, interpreter = run_one(
        {"predict": [reply()], "review": [reply(None)], "revise": revised}, budget={"measurements": 3}
    )
    assert [e.observation.measurement for e in of(events, Observed)] == ["HSP70", "HSP90", "CDC6"]
    last = [r.request for r in interpreter.received if r.request.step == "revise"][-1]
    shown = [p.rows[0][0] for m in last.messages for p in m.parts if p.kind == "table" and p.name == "observation"]
    assert shown == ["HSP70", "HSP90", "CDC6"]


def test_l02_many_rounds_pass_the_step_limit(run_one) -> None:
    """As many measurements as the menu has; the limit follows from the budget."""
    assert step_limit(12) >= 2 + 3 * 12
    events, _, summary, _ = run_one(
        {"predict": [reply()], "review": [reply(None)], "revise": [reply("HSP90"), reply("CDC6"), reply(None)]},
        budget={"measurements": 12},
    )
    assert len(of(events, Observed)) == 3
    assert summary["outcomes"] == {"complete": 1}


def test_cost_budget_limits_the_menu(run_one) -> None:
    events, _, _, interpreter = run_one(
        {"predict": [reply()], "review": [reply(None)], "revise": [reply("HSP90"), reply(None)]},
        budget={"measurements": 3, "cost": 2},
    )
    assert len(of(events, Observed)) == 2
    assert interpreter.received[-1].request.menu == ()


@pytest.mark.parametrize("policy", ["random", "max_variance"])
def test_policies_choose_without_the_proposal(run_one, policy: str) -> None:
    events, calls, _, _ = run_one(
        {"predict": [reply("GATA1")], "review": [reply(None)], "revise": [reply(None)]}, policy=policy
    )
    assert of(events, Selected)[0].measurement in GENES
    assert not [c for c in calls if c.step == "select"]


@pytest.mark.parametrize("status", ["refused", "filtered", "truncated"])
def test_replies_that_stand_are_not_asked_again(run_one, status: str) -> None:
    _, calls, summary, _ = run_one({"predict": [Reply(status=status)]})
    assert len(calls) == 1
    assert summary["calls"]["calls_by_status"] == {status: 1}
    assert summary["outcomes"] == {"predict failed": 1}


@pytest.mark.parametrize("status", ["empty", "malformed", "truncated_in_reasoning", "timeout", "server_error"])
def test_replies_that_may_come_better_are_asked_again(run_one, status: str) -> None:
    _, calls, summary, _ = run_one(
        {"predict": [Reply(status=status), reply()], "review": [reply(None)], "revise": [reply(None)]}
    )
    assert len(calls) == 4
    assert summary["calls"]["attempts_by_status"] == {"ok": 3, status: 1}


def test_failed_review_and_revision_are_missing_not_wrong(run_one) -> None:
    refused = Reply(status="refused")
    _, _, summary, _ = run_one({"predict": [reply()], "review": [refused], "revise": [refused]})
    rows = {row["name"]: row["all"] for row in summary["rows"]}
    assert rows["reviewed"]["n_missing"] == 3
    assert rows["revised"]["n_missing"] == 3
    assert rows["initial"]["n_missing"] == 0
    assert summary["outcomes"] == {"revise failed": 1}
    assert summary["changes"]["all"]["revised"]["n_both_answered"] == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("proposal", np.float32(0.41)), ("turn", np.int64(12)), ("measured", [np.str_("a")]), ("talk", {"a": 1})],
)
def test_l01_the_state_refuses_what_is_not_plain(key: str, value: object) -> None:
    with pytest.raises(ContractError, match=f"'{key}'"):
        check_plain("observe", key, value)


def test_l03_a_misspelled_state_key_is_refused() -> None:
    with pytest.raises(ContractError, match="unknown state key 'proposl'"):
        check_plain("predict", "proposl", "x")


def test_l04_nothing_is_shared_between_states() -> None:
    first, second = initial_state("a", 0), initial_state("b", 0)
    first["measured"].append("x")
    assert second["measured"] == []


def test_the_graph_is_the_drawn_one() -> None:
    """The golden Mermaid: review leads to score alone."""

    class Drawn:
        def __getattr__(self, name: str):
            async def node(state):
                return {}

            node.__name__ = name
            return node

    text = build_graph(Drawn(), review=True, measurements=1).get_graph().draw_mermaid()
    golden = Path(__file__).resolve().parents[1] / "golden" / "graph.mmd"
    if not golden.exists():
        golden.write_text(text)
    assert text == golden.read_text()
    assert [line.strip() for line in text.splitlines() if line.strip().startswith("review")][-1] == "review --> score;"
