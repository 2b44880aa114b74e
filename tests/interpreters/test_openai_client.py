"""Reports A03, A04, A05, A06, A09 against a scripted server on this machine."""

import asyncio
import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from evidence.contracts import Figure, Interpreter, Measurement, Message, Readout, Reply, Request, Table, Text
from evidence.errors import ConfigError, ContractError, ReplyError
from evidence.values import sha256_of
from interpreters.fake_server import FakeServer, Served, chat, failure
from interpreters.openai_client import OpenAIInterpreter, OpenAIOptions
from interpreters.render import render_table
from interpreters.reply import parse_reply, reply_schema
from interpreters.scripted import ScriptedInterpreter, ScriptedOptions
from interpreters.secrets import MARKER, collect_secrets, redact, redact_config

loopback = [pytest.mark.loopback, pytest.mark.allow_hosts(["127.0.0.1"])]
ASKED = Request(
    step="predict",
    messages=(
        Message(role="system", parts=(Text(text="Be brief."),)),
        Message(role="user", parts=(Text(text="JSON?"),)),
    ),
    readouts=(Readout(id="p1", name="Program 1", threshold=0.2),),
    menu=(Measurement(id="m1", name="m1"),),
)
OK = chat('{"answers": {"p1": {"label": "up"}}}')


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def ask(script, *, times=1, request=ASKED, blobs=None, repeat=0, base_url=None, **options):
    """The replies of one interpreter to a request asked `times` times, and the calls the server received."""

    async def talk(url):
        interpreter = OpenAIInterpreter(OpenAIOptions(model="m", base_url=base_url or url, **options))
        try:
            return [await interpreter.ask(request, blobs or {}, repeat=repeat) for _ in range(times)]
        finally:
            await interpreter.aclose()

    with FakeServer(script) as server:
        replies = asyncio.run(talk(server.base_url))
        return replies, server.received


def ask_one(served, **options):
    (reply,), calls = ask([served], **options)
    assert len(calls) == 1, "one ask is one request where nothing is adapted"
    return reply


class TestReplies:
    """A03: every kind of non-answer has its own status."""

    pytestmark = loopback

    @pytest.mark.parametrize(
        ("served", "status"),
        [
            (chat(None, finish_reason="length", reasoning="So CEBPE up... maybe HBG1"), "truncated_in_reasoning"),
            (chat("", finish_reason="stop"), "empty"),
            (failure(400, "filtered", code="content_filter"), "filtered"),
            (chat(None, refusal="I can't help with that"), "refused"),
            (Served({"choices": []}), "malformed"),
        ],
    )
    def test_a03(self, served, status):
        assert ask_one(served).status == status

    def test_a03_reasoning_is_kept_apart_and_refusals_in_the_models_words(self):
        reply = ask_one(chat(None, finish_reason="length", reasoning='{"answers": {"p1": {"label": "up"}}}'))
        assert (reply.text, reply.finish_reason) == ("", "length")
        assert reply.reasoning.startswith('{"answers"')
        assert parse_reply(ASKED, reply).answers[0].status == "missing"
        assert "I can't help" in ask_one(chat(None, refusal="I can't help with that")).error

    @pytest.mark.parametrize(
        ("served", "status"),
        [
            (chat('{"answers": {"p1"', finish_reason="length"), "truncated"),
            (chat("<think>so", finish_reason="length"), "truncated_in_reasoning"),
            (chat(None, finish_reason="length"), "truncated"),
            (chat("x", finish_reason="content_filter"), "filtered"),
            (chat([{"type": "text", "text": "ok"}]), "ok"),
            (chat(7), "malformed"),
            (Served("<html>"), "malformed"),
            (Served(b"\xff\xfe"), "malformed"),
            (Served("[" * 100_000), "malformed"),
            (Served({"choices": [{"message": None}]}), "malformed"),
            (Served({"choices": "x"}), "malformed"),
            (Served({"error": {"code": 429, "message": "upstream"}}), "rate_limited"),
            (Served({"error": "upstream"}), "server_error"),
            (Served({"message": "no"}, 404), "bad_request"),
            (Served("bad gateway", 502), "server_error"),
            (Served("no", 401), "bad_request"),
            (Served("", 402), "quota"),
            (Served(action="reset"), "connection"),
        ],
    )
    def test_everything_else_has_a_status_too(self, served, status):
        assert ask_one(served).status == status

    @staticmethod
    def told(said: bytes, **options) -> Reply:
        """The reply of a server that says these very bytes and closes."""

        async def talk() -> Reply:
            async def answer(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(said)
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            interpreter = OpenAIInterpreter(OpenAIOptions(model="m", base_url=url, **options))
            async with server:
                reply = await interpreter.ask(ASKED, {}, repeat=0)
                await interpreter.aclose()
                return reply

        return asyncio.run(talk())

    @pytest.mark.parametrize(
        "said",
        [
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"HTTP/1.1 999999 x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
        ],
    )
    def test_a_server_that_speaks_no_http_or_breaks_off_has_given_no_answer(self, said):
        assert self.told(said).status == "connection"

    def test_a_reason_in_another_charset_is_no_matter(self):
        said = b"HTTP/1.1 503 indispon\xedvel\r\nContent-Length: 2\r\n\r\n{}"
        assert self.told(said).status == "server_error"

    def test_the_charset_of_an_answer_counts(self):
        body = '{"choices": [{"message": {"content": "\u00e9"}, "finish_reason": "stop"}]}'.encode("latin-1")
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=latin-1\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        assert self.told(head.encode() + body).text == "\u00e9"

    @pytest.mark.parametrize("options", [{}, {"api_version": "2024-10-21"}])
    @pytest.mark.parametrize("status", [302, 307])
    def test_neither_key_nor_prompt_goes_where_a_server_sends_them(self, status, options):
        with FakeServer([OK]) as elsewhere:
            address = f"{elsewhere.base_url}/x"
            head = f"HTTP/1.1 {status} Go\r\nLocation: {address}\r\nContent-Length: 0\r\n\r\n"
            reply = self.told(head.encode(), api_key="sk-FAKE-000", **options)
            assert not elsewhere.received
        assert reply.status == "bad_request"
        assert f"the server sends elsewhere, to {address}; set base_url to it" in reply.error

    def test_a_key_that_an_error_repeats_at_its_end_is_not_cut_but_removed(self):
        body = json.dumps({"error": {"message": "a" * 1975 + "sk-FAKE-0123456789abcdef0123456789"}}).encode()
        head = f"HTTP/1.1 400 Bad\r\nContent-Length: {len(body)}\r\n\r\n"
        reply = self.told(head.encode() + body, api_key="sk-FAKE-0123456789abcdef0123456789")
        assert "sk-FAKE" not in reply.error

    def test_an_answer(self):
        reply = ask_one(OK)
        assert (reply.status, reply.finish_reason, reply.usage.prompt_tokens) == ("ok", "stop", 12)
        assert parse_reply(ASKED, reply).answers[0].label == "up"
        assert reply.sent == {"max_tokens": 2048, "temperature": 0.0, "output": "object", "adapted": []}

    def test_lone_surrogates_are_replaced_and_the_reply_can_be_archived(self):
        reply = ask_one(Served('{"choices": [{"message": {"content": "a\\ud800\\u0000"}, "finish_reason": "stop"}]}'))
        assert reply.text == "a\ufffd\x00"
        assert Reply.model_validate_json(reply.model_dump_json()) == reply


class TestRefusedSettings:
    """A04, A05: adapt once for the endpoint, visibly; any other 400 is not sent again."""

    pytestmark = loopback

    A04 = (
        failure(400, "Unsupported parameter", code="unsupported_parameter", param="max_tokens"),
        failure(400, "Unsupported value", code="unsupported_value", param="temperature"),
    )

    def test_a04(self):
        (first, second), calls = ask([*self.A04, OK, OK], times=2)
        assert [call.body.get("max_tokens") for call in calls] == [2048, None, None, None]
        assert [call.body.get("max_completion_tokens") for call in calls] == [None, 2048, 2048, 2048]
        assert ["temperature" in call.body for call in calls] == [True, True, False, False]
        assert first.status == second.status == "ok"
        assert first.sent["temperature"] == second.sent["temperature"] == "omitted"
        assert [entry["change"] for entry in first.sent["adapted"]] == [
            "max_tokens -> max_completion_tokens",
            "0 -> omitted",
        ]
        assert second.sent["adapted"] == []

    def test_a04_configured(self):
        (reply,), calls = ask([OK], token_parameter="max_completion_tokens", temperature=None)
        assert calls[0].body["max_completion_tokens"] == 2048
        assert not {"max_tokens", "temperature"} & set(calls[0].body)
        assert reply.sent == {"max_completion_tokens": 2048, "output": "object", "adapted": []}

    def test_a04_without_adapting(self):
        reply = ask_one(self.A04[0], adapt=False)
        assert reply.status == "bad_request"
        assert "Unsupported parameter" in reply.error
        assert "'token_parameter'" in reply.error

    @pytest.mark.parametrize(
        "served",
        [
            failure(
                400, "max_tokens is too large: this model supports at most 16 completion tokens", param="max_tokens"
            ),
            failure(400, "image too large"),
            failure(400, "Unsupported image format"),
            failure(404, "max_tokens unsupported"),
        ],
    )
    def test_any_other_400_is_not_sent_again(self, served):
        reply = ask_one(served, output="none")
        assert reply.status == "bad_request"
        assert served.body["error"]["message"] in reply.error

    def test_an_endless_refusal_ends(self):
        def script(request):
            return failure(400, "max_tokens, max_completion_tokens, temperature, response_format: not supported")

        (reply,), calls = ask(script, output="schema")
        assert (reply.status, len(calls)) == ("bad_request", 5)
        assert len(reply.sent["adapted"]) == 4

    @pytest.mark.parametrize(
        ("words", "output"),
        [
            ("'response_format.type' must be 'json_schema' or 'text'", "object"),
            ("... minItems is not supported", "schema"),
        ],
    )
    def test_a05_servers_a_and_b(self, words, output):
        (reply,), calls = ask([Served({"error": words}, 400), OK], output=output)
        assert reply.status == "ok"
        assert len(calls) == 2
        lower = {"object": "none", "schema": "object"}[output]
        assert reply.sent["output"] == lower
        assert reply.sent["adapted"] == [
            {"setting": "output", "change": f"{output} -> {lower}", "refused": f"HTTP 400: {words}"}
        ]
        assert "'output'" in ask_one(Served({"error": words}, 400), output=output, adapt=False).error

    def test_a05_server_c_prose_is_a_format_failure(self):
        reply = ask_one(chat("It goes up, I think."))
        assert (reply.status, parse_reply(ASKED, reply).status) == ("ok", "invalid")

    @pytest.mark.parametrize("output", ["schema", "object", "none"])
    def test_a05_output_mode_is_a_choice(self, output):
        _, calls = ask([OK], output=output)
        expected = {"schema": "json_schema", "object": "json_object", "none": None}[output]
        assert calls[0].body.get("response_format", {}).get("type") == expected
        if output == "schema":
            assert calls[0].body["response_format"]["json_schema"]["schema"] == reply_schema(ASKED)

    def test_requests_for_free_text_have_no_response_format(self):
        (reply,), calls = ask(
            [chat("B")], request=ASKED.model_copy(update={"readouts": (), "menu": ()}), output="schema"
        )
        assert "response_format" not in calls[0].body
        assert reply.sent["output"] == "none"


class TestLearnedOnce:
    pytestmark = loopback

    @staticmethod
    def refuse_max_tokens(body: dict) -> Served:
        if "max_tokens" in body:
            return failure(400, "Unsupported parameter", code="unsupported_parameter", param="max_tokens")
        return OK._replace(delay_s=0.02)

    @staticmethod
    def together(server: FakeServer, interpreter: OpenAIInterpreter, n: int) -> list[Reply]:
        async def go() -> list[Reply]:
            try:
                return await asyncio.gather(*(interpreter.ask(ASKED, {}, repeat=k) for k in range(n)))
            finally:
                await interpreter.aclose()

        return asyncio.run(go())

    def test_the_first_call_goes_alone_so_that_a_refusal_is_met_once(self):
        with FakeServer(self.refuse_max_tokens) as server:
            interpreter = OpenAIInterpreter(OpenAIOptions(model="m", base_url=server.base_url))
            replies = self.together(server, interpreter, 20)
            assert len(server.received) == 21
        assert sum(len(r.sent["adapted"]) for r in replies) == 1
        assert {r.status for r in replies} == {"ok"}

    def test_only_the_first_call_goes_alone(self):
        under_way, most = [0], [0]

        def serve(body: dict) -> Served:
            return OK._replace(delay_s=0.1)

        with FakeServer(serve) as server:
            interpreter = OpenAIInterpreter(OpenAIOptions(model="m", base_url=server.base_url))
            sent = interpreter._send

            async def counted(*args):
                under_way[0] += 1
                most[0] = max(most[0], under_way[0])
                try:
                    return await sent(*args)
                finally:
                    under_way[0] -= 1

            interpreter._send = counted
            self.together(server, interpreter, 20)
        assert most[0] == 19

    def test_a_resumed_run_remembers_what_its_archive_says(self):
        with FakeServer(self.refuse_max_tokens) as server:
            first = OpenAIInterpreter(OpenAIOptions(model="m", base_url=server.base_url))
            archived = self.together(server, first, 1)[0]
            resumed = OpenAIInterpreter(OpenAIOptions(model="m", base_url=server.base_url))
            resumed.taken_up(ASKED, archived)
            (reply,) = self.together(server, resumed, 1)
            assert len(server.received) == 3
        assert reply.sent == {"max_completion_tokens": 2048, "temperature": 0.0, "output": "object", "adapted": []}

    def test_a_500_about_the_schema_steps_down_and_another_does_not(self):
        script = [failure(500, "Failed to parse grammar for response_format json_schema"), OK]
        (reply,), calls = ask(script, output="schema")
        assert [c.body["response_format"]["type"] for c in calls] == ["json_schema", "json_object"]
        assert reply.sent["adapted"][0]["change"] == "schema -> object"
        (reply,), calls = ask([failure(500, "CUDA out of memory")], output="schema")
        assert (reply.status, len(calls)) == ("server_error", 1)

    def test_azures_form(self):
        (reply,), (call,) = ask([OK], api_version="2024-10-21", api_key="key-000000")
        assert reply.status == "ok"
        assert call.path.endswith("/openai/deployments/m/chat/completions?api-version=2024-10-21")
        assert call.headers["api-key"] == "key-000000"
        assert "authorization" not in call.headers


class TestLimits:
    """A06, at the level of one attempt: the status, how long to wait, and one request."""

    pytestmark = loopback

    @pytest.mark.parametrize("seconds", ["2", "900"])
    def test_a06_retry_after(self, seconds):
        reply = ask_one(failure(429, "slow down", headers={"Retry-After": seconds}))
        assert (reply.status, reply.retry_after_s) == ("rate_limited", float(seconds))

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"Retry-After-Ms": "1500", "Retry-After": "9"}, 1.5),
            ({"Retry-After": "Wed, 21 Oct 2099 07:28:30 GMT", "Date": "Wed, 21 Oct 2099 07:28:00 GMT"}, 30.0),
            ({"Retry-After": "soon"}, None),
            ({"Retry-After": "nan"}, None),
            ({"Retry-After": "-3"}, 0.0),
            ({}, None),
        ],
    )
    def test_odd_retry_after(self, headers, seconds):
        reply = ask_one(failure(429, "slow down", headers=headers))
        assert (reply.status, reply.retry_after_s) == ("rate_limited", seconds)

    def test_a06_quota_in_the_providers_words(self):
        words = "You exceeded your current quota, please check your plan."
        reply = ask_one(failure(429, words, code="insufficient_quota"))
        assert (reply.status, reply.retry_after_s) == ("quota", None)
        assert words in reply.error

    def test_a06_a_server_that_never_answers(self):
        reply = ask_one(Served(action="hang"), timeout_s=1.0)
        assert (reply.status, reply.error) == ("timeout", "no whole answer within 1 s")

    @pytest.mark.parametrize("status", [500, 503])
    def test_server_errors_are_not_retried_here(self, status):
        reply = ask_one(failure(status, "overloaded", headers={"Retry-After": "1"}))
        assert (reply.status, reply.retry_after_s) == ("server_error", 1.0)

    def test_nobody_listens(self):
        with FakeServer([]) as server:
            url = server.base_url
        (reply,), calls = ask([], base_url=url)
        assert (reply.status, calls) == ("connection", [])


class TestWhatIsSent:
    pytestmark = loopback

    def test_tables_and_figures(self):
        png = b"\x89PNG fake"
        figure = Figure(name="dapi", sha256=sha256_of(png), caption="DNA")
        table = Table(name="predictions", columns=("id", "mean"), rows=(("a|b", 0.123456), ("c", None)))
        message = Message(role="user", parts=(Text(text="Look \ud800"), table, figure))
        asked = ASKED.model_copy(update={"messages": (message,)})
        _, calls = ask([OK], request=asked, blobs={figure.sha256: png})
        kinds = [part["type"] for part in calls[0].body["messages"][0]["content"]]
        assert kinds == ["text", "text", "text", "image_url"]
        content = calls[0].body["messages"][0]["content"]
        assert content[0]["text"] == "Look \ufffd"
        assert content[1]["text"] == render_table(table)
        assert content[2]["text"] == "Figure: dapi. DNA"
        assert content[3]["image_url"]["url"] == "data:image/png;base64,iVBORyBmYWtl"
        with pytest.raises(ContractError, match="not among the 0 blobs"):
            ask([OK], request=asked)
        with pytest.raises(ConfigError, match="max_figure_bytes"):
            ask([OK], request=asked, blobs={figure.sha256: png}, max_figure_bytes=5)

    def test_messages_without_figures_are_plain_texts(self):
        _, calls = ask([OK])
        assert [m["content"] for m in calls[0].body["messages"]] == ["Be brief.", "JSON?"]

    def test_optional_settings(self):
        (reply,), calls = ask([OK], repeat=2, seed=5, top_p=0.9, extra={"top_k": 3}, token_parameter="omit")
        assert {key: calls[0].body[key] for key in ("seed", "top_p", "top_k")} == {"seed": 7, "top_p": 0.9, "top_k": 3}
        assert reply.sent["seed"] == 7
        assert not {"max_tokens", "max_completion_tokens"} & set(calls[0].body)

    def test_concurrent_asks_adapt_once(self):
        def script(body):
            if "temperature" in body:
                return failure(400, "temperature is not supported", param="temperature")
            return OK

        async def talk(url):
            interpreter = OpenAIInterpreter(OpenAIOptions(model="m", base_url=url))
            replies = await asyncio.gather(*(interpreter.ask(ASKED, {}, repeat=i) for i in range(8)))
            await interpreter.aclose()
            return replies

        with FakeServer(script) as server:
            replies = asyncio.run(talk(server.base_url))
        assert {(r.status, r.sent["temperature"], r.sent["output"]) for r in replies} == {("ok", "omitted", "object")}

    def test_an_interpreter_outlives_an_event_loop(self):
        with FakeServer([OK, OK]) as server:
            interpreter = OpenAIInterpreter(OpenAIOptions(model="m", base_url=server.base_url))

            async def talk():
                reply = await interpreter.ask(ASKED, {}, repeat=0)
                await interpreter.aclose()
                return reply.status

            assert [asyncio.run(talk()), asyncio.run(talk())] == ["ok", "ok"]


class TestSecrets:
    """A09: no key or password in anything that is kept or shown."""

    FAKES = ("sk-FAKE-000", "sk-FAKE-111", "pw-FAKE-1")

    @pytest.fixture(autouse=True)
    def _key(self, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-FAKE-111")

    def assert_clean(self, text):
        assert not [fake for fake in self.FAKES if fake in text]

    @pytest.mark.loopback
    @pytest.mark.allow_hosts(["127.0.0.1"])
    @pytest.mark.parametrize("action", ["echo", "reset", "fail"])
    def test_a09_replies(self, action):
        with FakeServer([]) as server:

            def script(body):
                seen = json.dumps(dict(server.received[-1].headers)) + " ".join(self.FAKES)
                return {"echo": chat(seen), "reset": Served(action="reset"), "fail": failure(401, seen)}[action]

            server.script = script
            url = server.base_url.replace("http://", "http://user:pw-FAKE-1@")
            options = OpenAIOptions(model="m", base_url=url, api_key="sk-FAKE-000", extra={"user_token": "sk-FAKE-000"})
            interpreter = OpenAIInterpreter(options)

            async def talk():
                reply = await interpreter.ask(ASKED, {}, repeat=0)
                await interpreter.aclose()
                return reply

            reply = asyncio.run(talk())
            assert server.received[0].headers["authorization"].startswith("Basic ")
        self.assert_clean(reply.model_dump_json())
        assert "dXNlcjpwdy1GQUtFLTE" not in reply.model_dump_json()
        self.assert_clean(json.dumps(interpreter.identity()))

    @pytest.mark.loopback
    @pytest.mark.allow_hosts(["127.0.0.1"])
    def test_the_key_from_the_environment_is_sent(self):
        _, calls = ask([OK])
        assert calls[0].headers["authorization"] == "Bearer sk-FAKE-111"

    def test_a09_options_identity_and_tracebacks(self):
        options = OpenAIOptions(model="m", base_url="http://user:pw-FAKE-1@127.0.0.1:9/v1", api_key="sk-FAKE-000")
        self.assert_clean(repr(options) + options.model_dump_json() + json.dumps(OpenAIInterpreter(options).identity()))
        with pytest.raises(ValidationError) as caught:
            OpenAIOptions(model="m", api_key="sk-FAKE-000", base_url="http://user:pw-FAKE-1@h", temprature=0)
        self.assert_clean(str(caught.value))

    def test_a09_a_saved_config_has_markers_and_loads_again(self):
        config = {"base_url": "http://user:pw-FAKE-1@127.0.0.1:9/v1", "api_key": "sk-FAKE-000", "model": "m"}
        saved = redact_config(config, collect_secrets())
        assert saved == {"base_url": f"http://{MARKER}@127.0.0.1:9/v1", "api_key": MARKER, "model": "m"}
        interpreter = OpenAIInterpreter(OpenAIOptions(**saved))
        interpreter.check()
        assert interpreter.identity() == OpenAIInterpreter(OpenAIOptions(**config)).identity()
        assert interpreter._key() == "sk-FAKE-111"

    def test_redact_knows_the_environment_and_the_interpreter(self):
        options = OpenAIOptions(model="m", base_url="http://user:pw-FAKE-1@127.0.0.1:9/v1", api_key="sk-FAKE-000")
        secrets = collect_secrets(OpenAIInterpreter(options), {"HF_TOKEN": 'hf"FAKE-222', "SHORT_TOKEN": "on"})
        text = 'on sk-FAKE-000 sk-FAKE-111 pw-FAKE-1 hf"FAKE-222 hf\\"FAKE-222 https://a:b@c/'
        assert redact(text, secrets) == f"on {MARKER} {MARKER} {MARKER} {MARKER} {MARKER} https://{MARKER}@c/"

    def test_redacting_a_megabyte_of_letters(self):
        assert redact("a" * 1_000_000) == "a" * 1_000_000


class TestCheck:
    def check(self, **options):
        OpenAIInterpreter(OpenAIOptions(model="m", **options)).check()

    def test_a_missing_key_is_named(self):
        with pytest.raises(ConfigError, match=r"no key for api\.openai\.com: the environment variable OPENAI_API_KEY"):
            self.check()
        with pytest.raises(ConfigError, match="MY_KEY"):
            self.check(base_url="https://example.org/v1", api_key_env="MY_KEY")

    @pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:8000", "127.8.8.8"])
    def test_loopback_needs_no_key(self, host):
        self.check(base_url=f"http://{host}/v1")

    @pytest.mark.parametrize(
        "url",
        [
            "ftp://h",
            "127.0.0.1",
            "http://",
            "http://[1",
            "http://127.0.0.1:99999/",
            "http://127.0.0.1/v\x001",
            "http://127.0.0.1/?a=b",
        ],
    )
    def test_urls(self, url):
        with pytest.raises(ConfigError, match="base_url"):
            self.check(base_url=url)

    def test_a_key_that_no_header_can_carry_is_not_shown(self, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-\u00e9FAKE")
        with pytest.raises(ConfigError) as caught:
            self.check()
        assert "FAKE" not in str(caught.value)

    def test_extra_cannot_override(self):
        with pytest.raises(ValidationError, match="'model' cannot be set in extra"):
            OpenAIOptions(model="m", extra={"model": "x"})

    def test_identity_is_the_configured_settings(self):
        identity = OpenAIInterpreter(OpenAIOptions(model="m", temperature=0.7, api_key_env="K")).identity()
        assert identity["temperature"] == 0.7
        assert identity["base_url"] == "https://api.openai.com/v1"
        assert not {"api_key", "api_key_env", "timeout_s"} & set(identity)

    def test_openai_is_imported_on_the_first_call_only(self):
        code = (
            "import sys; from interpreters.openai_client import *; i = OpenAIInterpreter(OpenAIOptions(model='m'));"
            "i.identity(); assert 'openai' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


class TestScripted:
    def ask(self, interpreter, step="predict"):
        return asyncio.run(interpreter.ask(ASKED.model_copy(update={"step": step}), {}, repeat=0))

    def test_in_order_then_an_error(self):
        interpreter = ScriptedInterpreter(replies=["a", Reply(status="timeout")])
        assert isinstance(interpreter, Interpreter)
        assert [self.ask(interpreter).text, self.ask(interpreter).status] == ["a", "timeout"]
        with pytest.raises(ReplyError, match="step predict: the script has 2 replies"):
            self.ask(interpreter)
        assert len(interpreter.received) == 3

    def test_by_step_and_repeating(self):
        options = ScriptedOptions.model_validate_json(
            '{"replies": {"predict": ["a", "b"], "select": [{"text": "s"}]}, "at_end": "repeat_last"}'
        )
        interpreter = ScriptedInterpreter(options)
        steps = ["predict", "select", "predict", "predict", "select"]
        assert [self.ask(interpreter, step).text for step in steps] == ["a", "s", "b", "b", "s"]
        with pytest.raises(ReplyError):
            self.ask(interpreter, "review")

    def test_identity_follows_the_script(self):
        first, same, other = (ScriptedInterpreter(replies=[text]).identity() for text in "aab")
        assert first == same != other


def test_tables_as_markdown():
    table = Table(name="t", columns=("a", "b"), rows=((1, 0.30000000000000004), ("x\ny|", -0.0), (None, 123456.7)))
    assert render_table(table).splitlines() == [
        "Table: t",
        "",
        "| a | b |",
        "| --- | --- |",
        "| 1 | 0.3 |",
        "| x y\\| | 0 |",
        "| missing | 123500 |",
    ]


@pytest.mark.loopback
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_script_that_fails_or_runs_out_says_so():
    def broken(request):
        raise KeyError("x")

    assert "KeyError" in ask_one_of(broken).error
    assert "0 entries; this is call 1" in ask_one_of([]).error


def ask_one_of(script):
    (reply,), _ = ask(script)
    assert reply.status == "server_error"
    return reply


class TestProxies:
    """A proxy of the environment stands between us and a server elsewhere, and never between us and this machine."""

    pytestmark = loopback

    def asked_through_a_proxy(self, monkeypatch, script, base_url=None):
        with FakeServer(script) as proxy:
            monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
            monkeypatch.setenv("OPENAI_API_KEY", "sk-FAKE-1")

            async def talk():
                interpreter = OpenAIInterpreter(OpenAIOptions(model="m", base_url=base_url or "http://model.test/v1"))
                try:
                    return await interpreter.ask(ASKED, {}, repeat=0)
                finally:
                    await interpreter.aclose()

            return asyncio.run(talk()), proxy.received

    def test_a_server_elsewhere_is_asked_through_it(self, monkeypatch) -> None:
        reply, received = self.asked_through_a_proxy(monkeypatch, [OK])
        assert reply.status == "ok"
        assert [call.path for call in received] == ["http://model.test/v1/chat/completions"]
        assert received[0].headers["host"] == "model.test"
        assert received[0].body["model"] == "m"

    @pytest.mark.parametrize(
        ("served", "status"),
        [
            (failure(429, "slow", headers={"Retry-After": "7"}), "rate_limited"),
            (failure(500, "oh"), "server_error"),
            (Served("", 302, {"Location": "http://elsewhere.test/"}), "bad_request"),
            (Served("Grüße".encode("latin-1"), 200, {"Content-Type": "text/html; charset=latin-1"}), "malformed"),
            (Served(action="reset"), "connection"),
        ],
    )
    def test_what_comes_through_it_is_read_as_without_it(self, monkeypatch, served, status) -> None:
        through, _ = self.asked_through_a_proxy(monkeypatch, lambda request: served)
        (direct,), _ = ask(lambda request: served)
        assert through.status == direct.status == status
        assert through.retry_after_s == direct.retry_after_s
        if status != "connection":
            assert through.error == direct.error

    def test_this_machine_is_asked_directly(self, monkeypatch) -> None:
        with FakeServer([OK]) as server:
            reply, received = self.asked_through_a_proxy(monkeypatch, [], base_url=server.base_url)
        assert reply.status == "ok"
        assert received == []
