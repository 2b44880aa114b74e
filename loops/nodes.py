"""The steps of the loop, in the order they happen: predict, review, select, observe, revise; then score.

A step takes the state and returns what it changes. The state holds ids, small numbers and content hashes; everything
a step gives is archived when it happens.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

from evidence.contracts import (
    Adapter,
    Evidence,
    EvidenceSetting,
    Measurement,
    Part,
    Prediction,
    Request,
    SelectionPolicy,
    SelectionView,
    Step,
)
from evidence.values import derive_seed, sha256_of
from interpreters.prompts import predict_request, review_request, revise_request, select_request
from interpreters.reply import Parsed
from loops.archive import TRANSPORT_FAULTS, Archive, CaseOutcome, Closed, Observed, Selected
from loops.caller import Asked, Caller, Place, stepped
from loops.config import RunConfig
from loops.exhibits import observation_exhibit, prediction_exhibit
from loops.information import expected_noise, joint_posterior
from loops.prepare import Prepared, affordable

RECENT = 512
"""For how many cases, or ways of measuring one, what was shown is kept."""


class LoopState(TypedDict, total=False):
    """The state of one case. `talk` is the hash of the conversation so far; the faults are transport faults."""

    case: str
    repeat: int
    turn: int
    measured: list[str]
    chosen: str | None
    proposal: str | None
    refused: str | None
    talk: str
    outcome: str
    fault: str
    review_fault: str


class Steps:
    """The steps, bound to one run. `left_open`: cells that a fault of the server left open, and the fault."""

    def __init__(
        self,
        *,
        config: RunConfig,
        setting: EvidenceSetting,
        cases: Mapping[str, Prepared],
        adapter: Adapter,
        policy: SelectionPolicy,
        caller: Caller,
        archive: Archive,
        modalities: Sequence[str],
    ):
        self.config = config
        self.setting = setting
        self.cases = cases
        self.adapter = adapter
        self.policy = policy
        self.caller = caller
        self.archive = archive
        self.modalities = modalities
        self.left_open: dict[tuple[str, int], str] = {}
        self._talks: dict[tuple[str, int], dict[str, tuple[Request, str]]] = {}
        # The repeats of a case follow each other and see the same: figures are drawn, adapters and noise computed once.
        self._first_request = functools.lru_cache(RECENT)(self._opening)
        self._parts_after = functools.lru_cache(RECENT)(self._observed)
        self._calibrated_after = functools.lru_cache(RECENT)(self._calibrate)
        self._noise = functools.lru_cache(RECENT)(self._expected_noise)
        self._menu_after = functools.lru_cache(RECENT)(self._affordable)

    async def predict(self, state: LoopState) -> LoopState:
        """Call 1: answer every readout from the initial evidence, and propose a measurement."""
        asked = await self._ask(state, "predict", self._first_request(state["case"]))
        return self._heard(state, asked, "predict failed")

    async def review(self, state: LoopState) -> LoopState:
        """Call 2: re-examine the same evidence. Nothing of it reaches another step."""
        asked = await self._ask(state, "review", review_request(*self._talk(state)))
        return {"review_fault": _fault(asked)} if _fault(asked) else {}

    async def select(self, state: LoopState) -> LoopState:
        """Choose one entry of the open menu by the policy; a proposal that is not on it is asked for again."""
        menu = self._open_menu(state)
        refused: list[str] = []
        proposal, reason = state.get("proposal"), ""
        if self.policy.uses_proposal and state.get("refused") is not None:
            asked = await self._ask_again(state, str(state["refused"]), menu, refused)
            if _fault(asked):
                return {"fault": _fault(asked)}
            proposal = asked.parsed.proposal
            reason = "" if _usable(asked.parsed) else "no valid selection"
        view = self._view(state, menu, proposal)
        seed = derive_seed(self.config.seed, "select", state["case"], str(state["repeat"]), str(state["turn"]))
        chosen = None if reason else self.policy.select(view, seed=seed)
        reason = reason or ("" if chosen else "no measurement")
        self.archive.add_event(Selected(**_where(state), measurement=chosen, refused=tuple(refused), reason=reason))
        return {"chosen": chosen, "outcome": reason}

    async def observe(self, state: LoopState) -> LoopState:
        """Measure what was chosen, sealed since the case was opened, and carry all observations so far over to every
        readout."""
        measured = [*state["measured"], str(state["chosen"])]
        observation = self.cases[state["case"]].sealed[measured[-1]].observation
        calibrated = self._calibrated_after(state["case"], tuple(measured))
        self.archive.add_event(Observed(**_where(state), observation=observation, calibrated=calibrated))
        return {"measured": measured}

    async def revise(self, state: LoopState) -> LoopState:
        """Call 3: answer again with the observation and the calibrated predictions."""
        shown = self._parts_after(state["case"], tuple(state["measured"]))
        menu = self._open_menu(state) if len(state["measured"]) < self.config.budget.measurements else ()
        request = revise_request(*self._talk(state), shown, menu)
        asked = await self._ask(state, "revise", request)
        done: LoopState = {"turn": state["turn"] + 1, "outcome": "complete"}
        heard = self._heard(state, asked, "revise failed")
        more: LoopState = {} if menu or "outcome" in heard or "fault" in heard else done
        return {"turn": state["turn"] + 1, **heard, **more}

    async def score(self, state: LoopState) -> LoopState:
        """Close the case: its record is complete, and rescoring may read it. A transport fault leaves it open."""
        cell = state["case"], state["repeat"]
        self._talks.pop(cell, None)
        fault = state.get("fault") or state.get("review_fault")
        if fault:
            self.left_open[cell] = fault
        else:
            self.archive.add_event(
                Closed(
                    case=state["case"],
                    repeat=state["repeat"],
                    outcome=cast(CaseOutcome, state.get("outcome") or "complete"),
                    measured=tuple(state["measured"]),
                )
            )
        return {}

    def _opening(self, case_id: str) -> Request:
        """The first request of a case: what the setting shows, and what the simulator predicts."""
        prepared = self.cases[case_id]
        shown = self.setting.evidence(prepared.case, self.modalities)
        predicted = prediction_exhibit(prepared.case, _predictions(prepared), self.modalities)
        own = self._own_view(prepared)
        self._keep(shown, own, predicted)
        return predict_request(prepared.case, (*shown.parts, *own.parts, *predicted.parts))

    def _observed(self, case_id: str, measured: tuple[str, ...]) -> tuple[Part, ...]:
        """What is shown after the last of these measurements."""
        prepared = self.cases[case_id]
        seen = prepared.sealed[measured[-1]]
        exhibit = observation_exhibit(
            prepared.case,
            Evidence(seen.observation.parts, seen.blobs),
            [prepared.sealed[m].observation for m in measured],
            _predictions(prepared),
            self._calibrated_after(case_id, measured),
            self.modalities,
        )
        self._keep(exhibit)
        return exhibit.parts

    def _own_view(self, prepared: Prepared) -> Evidence:
        """What a setting itself has to say of the predictions, where it has an optional method `predicted`."""
        view = getattr(self.setting, "predicted", None)
        predictions = _predictions(prepared)
        if view is None or not predictions:
            return Evidence((), {})
        own: Evidence = view(prepared.case, predictions, self.modalities)
        return own

    async def _ask(self, state: LoopState, step: Step, request: Request) -> Asked:
        asked = await self.caller.ask(Place(state["case"], state["repeat"], step, state["turn"]), request)
        self._record(state, step, asked)
        return asked

    async def _ask_again(self, state: LoopState, first: str, menu: Sequence[Measurement], refused: list[str]) -> Asked:
        legal = ", ".join(m.id for m in menu)

        def objection(text: str | None) -> str:
            refused.append(text or "")
            return f"{(text or 'nothing')[:200]!r} cannot be measured now. Answer with one of: {legal}"

        def check(parsed: Parsed) -> str | None:
            return None if _usable(parsed) else objection(parsed.proposal_text)

        request = select_request(*self._talk(state), objection(first), menu)
        asked = await self.caller.ask(
            Place(state["case"], state["repeat"], "select", state["turn"]), request, check=check
        )
        self._record(state, "select", asked)
        return asked

    def _record(self, state: LoopState, step: Step, asked: Asked) -> None:
        self.archive.add_event(stepped(Place(**_where(state), step=step), asked))

    def _heard(self, state: LoopState, asked: Asked, failure: str) -> LoopState:
        """What a reply changes: the conversation, the next proposal, or how the case ends."""
        if _fault(asked):
            return {"fault": _fault(asked)}
        if not any(a.status == "answered" for a in asked.parsed.answers):
            return {"outcome": failure}
        talk = sha256_of(f"{asked.sha256}\n{asked.reply.text}")
        self._talks.setdefault((state["case"], state["repeat"]), {})[talk] = (asked.request, asked.reply.text)
        parsed = asked.parsed
        illegal = parsed.proposal_status in ("not_on_menu", "missing")
        refused = (parsed.proposal_text or "") if illegal else None
        return {"talk": talk, "proposal": parsed.proposal, "refused": refused}

    def _talk(self, state: LoopState) -> tuple[Request, str]:
        return self._talks[state["case"], state["repeat"]][state["talk"]]

    def _open_menu(self, state: LoopState) -> tuple[Measurement, ...]:
        return self._menu_after(state["case"], tuple(state["measured"]))

    def _affordable(self, case_id: str, measured: tuple[str, ...]) -> tuple[Measurement, ...]:
        case = self.cases[case_id].case
        return tuple(case.measurement(m) for m in affordable(measured, case.menu, self.config.budget.cost))

    def _view(self, state: LoopState, menu: Sequence[Measurement], proposal: str | None) -> SelectionView:
        """What the policy may look at: of what was sealed, only what has been measured."""
        prepared = self.cases[state["case"]]
        seen = [prepared.sealed[m].observation for m in state["measured"]]
        return SelectionView(
            case=state["case"],
            open_menu=tuple(menu),
            predictions=self._calibrated(state),
            proposal=proposal,
            readouts=prepared.case.readouts,
            joint=joint_posterior(self.adapter, prepared.inputs, seen),
            noise=self._noise(state["case"]),
        )

    def _expected_noise(self, case: str) -> dict[str, float]:
        inputs = self.cases[case].inputs
        return {} if inputs is None else expected_noise(inputs)

    def _calibrated(self, state: LoopState) -> tuple[Prediction, ...]:
        return self._calibrated_after(state["case"], tuple(state["measured"]))

    def _calibrate(self, case_id: str, measured: tuple[str, ...]) -> tuple[Prediction, ...]:
        prepared = self.cases[case_id]
        if prepared.inputs is None:
            return ()
        return self.adapter.calibrate(prepared.inputs, [prepared.sealed[m].observation for m in measured])

    def _keep(self, *shown: Evidence) -> None:
        for evidence in shown:
            for data in evidence.blobs.values():
                self.archive.add_blob(data)


def _predictions(prepared: Prepared) -> tuple[Prediction, ...]:
    return () if prepared.inputs is None else prepared.inputs.predictions


def _where(state: LoopState) -> dict[str, Any]:
    return {"case": state["case"], "repeat": state["repeat"], "turn": state["turn"]}


def _fault(asked: Asked) -> str:
    reply = asked.reply
    return f"{reply.status}: {reply.error}".removesuffix(": ") if reply.status in TRANSPORT_FAULTS else ""


def _usable(parsed: Parsed) -> bool:
    return parsed.status == "ok" and parsed.proposal_status in ("given", "declined")
