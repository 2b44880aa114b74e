"""The dry server: its HTTP, its answers in the form asked for, its faults by a hash, and the command."""

import http.client
import json
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from evidence.contracts import Case, Measurement, Perturbation, Readout, Reply
from evidence.errors import ConfigError
from interpreters import dry_server
from interpreters.completions import read_completion, read_failure
from interpreters.dry_answer import dry_answer
from interpreters.dry_server import DryServer, Logged
from interpreters.fake_server import FakeServer, Served, chat
from interpreters.faults import FAULTS, fault_in
from interpreters.prompts import predict_request, repair_request, review_request, revise_request, select_request
from interpreters.render import chat_messages
from interpreters.reply import parse_reply, reply_schema

MENU = (Measurement(id="m1", name="One (cost of living)"), Measurement(id="m 2", name="Two", description="Long."))
READOUTS = (
    Readout(id="erk", name="Erk: p42/44", threshold=0.1, unit="log2"),
    Readout(id="class", name="Mechanism", description="What it does", labels=("a b", "c: d", "e")),
    Readout(id="bare", name="Bare", labels=("no", "yes")),
)
CASE = Case(id="c", title="t", perturbation=Perturbation(id="p", name="p", targets=()), readouts=READOUTS, menu=MENU)
PREDICT = predict_request(CASE, ())
REQUESTS = {
    "predict": PREDICT,
    "review": review_request(PREDICT, "{}"),
    "revise": revise_request(PREDICT, "{}", (), ()),
    "revise with a menu": revise_request(PREDICT, "{}", (), MENU[1:]),
    "select": select_request(PREDICT, "{}", "Not that one.", MENU),
    "repair": repair_request(PREDICT, "sorry", ["the reply holds no JSON object"]),
}


def body_of(request, **settings):
    return {"messages": chat_messages(request, {}, max_figure_bytes=0), **settings}


def schema_of(request, how: str) -> dict:
    schema = reply_schema(request)
    if how == "json_schema":
        return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    return {"response_format": {"type": "json_object", **({"schema": schema} if how == "with schema" else {})}}


class TestAnswers:
    @pytest.mark.parametrize("how", ["words", "json_schema", "with schema"])
    @pytest.mark.parametrize("name", REQUESTS)
    def test_every_step_gets_a_whole_reply_in_its_form(self, name: str, how: str) -> None:
        request = REQUESTS[name]
        answer = dry_answer(body_of(request, **schema_of(request, how)))
        parsed = parse_reply(request, Reply(text=json.dumps(answer)))
        assert (parsed.status, parsed.problems) == ("ok", ())
        assert parsed.proposal_status == ("given" if request.menu else "missing")
        assert ("answers" in answer, "measurement" in answer) == (bool(request.readouts), bool(request.menu))

    def test_the_labels_differ_with_the_question_and_the_seed_alone(self) -> None:
        base = dry_answer(body_of(PREDICT))
        assert dry_answer(body_of(PREDICT, temperature=1, model="other")) == base
        assert dry_answer(body_of(REQUESTS["repair"])) == base
        others = [dry_answer(body_of(PREDICT, seed=n)) for n in range(20)]
        assert len({json.dumps(other["answers"]) for other in others}) == 20
        assert {other["measurement"] for other in others} == {"m1", "m 2"}

    @pytest.mark.parametrize("body", [{}, {"messages": None}, {"messages": [{"role": "user", "content": "Hello"}]}])
    def test_what_asks_for_no_form_gets_only_words(self, body: dict) -> None:
        assert set(dry_answer(body)) == {"explanation"}


class TestFaults:
    @pytest.mark.parametrize("name", FAULTS)
    def test_a_fault_is_known_by_its_mark_or_its_status(self, name: str) -> None:
        served = FAULTS[name].serve(dry_answer(body_of(PREDICT)))
        if served.action != "reply":
            reply = Reply(status={"hang": "timeout", "reset": "connection"}[served.action])
        else:
            text = served.body.decode() if isinstance(served.body, bytes) else json.dumps(served.body)
            reply = read_completion(text) if served.status == 200 else read_failure(served.status, {}, text)
        assert fault_in(reply) == name
        assert parse_reply(PREDICT, reply).status == FAULTS[name].status

    def test_shares_are_met_and_the_same_requests_meet_the_same_faults(self) -> None:
        def served(seed: int) -> list[Logged]:
            logged: list[Logged] = []
            server = DryServer(faults={"cut": 0.2, "reset": 0.1}, seed=seed, log=logged.append)
            for n in range(1000):
                server({"messages": [], "seed": n % 500})
            return logged

        names = [line.fault for line in served(0)]
        assert abs(names.count("cut") - 200) < 40
        assert abs(names.count("reset") - 100) < 30
        assert served(0) == served(0) != served(1)
        assert [line.attempt for line in served(0)] == [1] * 500 + [2] * 500
        assert names[:500] != names[500:]

    @pytest.mark.parametrize(
        ("faults", "words"),
        [({"cutt": 0.1}, "no fault named 'cutt'. Did you mean 'cut'"), ({"cut": 0.6, "reset": 0.6}, "at most 1")],
    )
    def test_unknown_faults_and_too_many_are_refused(self, faults: dict, words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            DryServer(faults=faults)

    def test_a_refused_setting_is_named_until_it_is_left_out(self) -> None:
        server = DryServer(refuses=["json_schema", "temperature"])
        both = body_of(PREDICT, temperature=0, **schema_of(PREDICT, "json_schema"))
        assert [server(both).body["error"]["param"], server(both).status] == ["response_format.type", 400]
        assert server({**both, "response_format": None}).body["error"]["param"] == "temperature"
        assert server(body_of(PREDICT)).status == 200


@pytest.mark.loopback
@pytest.mark.allow_hosts(["127.0.0.1"])
@pytest.mark.usefixtures("socket_enabled")
class TestHttp:
    @staticmethod
    def raw(server: FakeServer, *pieces: bytes) -> bytes:
        port = urlsplit(server.base_url).port
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            for piece in pieces:
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(65536), b""))

    def test_a_connection_carries_many_requests(self) -> None:
        with FakeServer(lambda request: chat(str(request["n"]))) as server:
            connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.base_url).port, timeout=5)
            connection.connect()
            first = connection.sock
            for n in range(5):
                connection.request("POST", "/v1/chat/completions", json.dumps({"n": n, "pad": "x" * 300_000}))
                answer = json.loads(connection.getresponse().read())
                assert answer["choices"][0]["message"]["content"] == str(n)
            assert connection.sock is first
            connection.close()
        assert [call.body["n"] for call in server.received] == list(range(5))

    def test_requests_in_pieces_and_two_at_once_are_served_in_order(self) -> None:
        def request(n: int) -> bytes:
            return b'POST /v1 HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 8\r\n\r\n{"n": %d}' % n

        with FakeServer(lambda body: Served(f"<{body['n']}>")) as server:
            answer = self.raw(server, request(1)[:30], request(1)[30:] + request(2))
        assert answer.index(b"<1>") < answer.index(b"<2>")

    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            (b"nonsense\r\n\r\n", 400),
            (b"POST /v1 HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            (b"POST /v1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
            (b"POST /v1 HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
            (b"x" * 70_000, 431),
        ],
    )
    def test_what_is_no_request_of_ours_is_refused(self, sent: bytes, status: int) -> None:
        with FakeServer(lambda request: chat("never")) as server:
            assert self.raw(server, sent).startswith(b"HTTP/1.1 %d " % status)
            assert server.received == []

    def test_the_command(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "interpreters.dry_server", "--fault", "server_error=1"]
        command += ["--log", str(tmp_path / "served.jsonl")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            port = urlsplit(server.stdout.readline().strip()).port
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("POST", "/v1/chat/completions", json.dumps(body_of(PREDICT)))
            assert connection.getresponse().status == 500
            connection.close()
            server.terminate()
        assert server.returncode == 0
        assert json.loads((tmp_path / "served.jsonl").read_text())["fault"] == "server_error"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fault", "cut"], "expected --fault NAME=SHARE"),
        (["--fault", "x=0.1"], "no fault named"),
        (["--log", "/"], "/"),
    ],
)
def test_mistakes_in_the_command_are_told(arguments: list[str], words: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        dry_server.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
