"""The canonical text of requests and call lines: quick to write, and the same as writing the whole value."""

import string

from hypothesis import given
from hypothesis import strategies as st

from evidence.contracts import Measurement, Message, Readout, Reply, Request, Table, Text, Usage
from evidence.journal import CallRecord, call_line
from evidence.values import canonical_json, sha256_of
from interpreters.canonical import RequestWriter

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=30)
names = st.text(alphabet=string.ascii_letters, min_size=1, max_size=8)
parts = st.one_of(
    st.builds(Text, text=texts),
    st.builds(
        lambda a, b: Table(name="t", columns=("a", "b"), rows=((a, b),)),
        texts,
        st.floats(allow_nan=False, allow_infinity=False),
    ),
)
messages = st.builds(Message, role=st.sampled_from(["system", "user"]), parts=st.lists(parts, max_size=3).map(tuple))
requests = st.builds(
    Request,
    step=st.just("predict"),
    messages=st.lists(messages, max_size=3).map(tuple),
    readouts=st.lists(names, max_size=2, unique=True).map(lambda n: tuple(Readout(id=i, name=i) for i in n)),
    menu=st.lists(names, max_size=2, unique=True).map(lambda n: tuple(Measurement(id=i, name=i) for i in n)),
)


@given(requests, st.dictionaries(names, texts, max_size=3))
def test_the_text_is_the_canonical_json_of_identity_and_request(request: Request, identity: dict[str, str]) -> None:
    written = RequestWriter(identity).write(request)
    assert written.text == canonical_json({"identity": identity, **request.model_dump(mode="json")})
    assert written.sha256 == sha256_of(written.text)


@given(requests, names, texts, st.floats(0, 1e6), st.booleans())
def test_a_call_line_is_the_canonical_json_of_its_record(
    request: Request, case: str, text: str, seconds: float, repair: bool
) -> None:
    written = RequestWriter({"name": "x"}).write(request)
    reply = Reply(text=text, usage=Usage(prompt_tokens=1))
    place = {"case": case, "repeat": 2, "step": "predict", "turn": 0, "attempt": 1, "repair": repair}
    line = call_line(**place, request=written.text, request_sha256=written.sha256, reply=reply, seconds=seconds)
    record = CallRecord.model_validate_json(line)
    assert canonical_json(record) == line
