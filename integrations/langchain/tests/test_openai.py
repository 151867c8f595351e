"""A provider's own client under verification: `ChatOpenAI` against a service on this machine, streaming by default."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from checks import check_everything, check_stream
from inner_models import LEAK, SAFE
from langchain.agents import create_agent
from langchain_core.tools import tool
from places import Everything
from pydantic import BaseModel

from langchain_nco_guard import NCOGuardMiddleware, VerifiedChatModel
from nco_guard import Policy
from nco_guard.errors import ViolationError

openai = pytest.importorskip("langchain_openai")
CALL = r'{"name": "maria\u0040example.com"}'


class Contact(BaseModel):
    """How to get in touch."""

    name: str


@tool
def lookup_customer(name: str) -> str:
    """Look up a customer."""
    return "maria@example.com"


class Service(http.server.BaseHTTPRequestHandler):
    """As much of the interface as a chat needs."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["messages"][-1]["content"] == "fail":
            self._send(400, json.dumps({"error": {"message": "bad", "failed_generation": LEAK}}).encode())
            return
        tool = asked["tools"][0]["function"]["name"] if asked.get("tools") else None
        calls = tool if asked["messages"][-1]["role"] != "tool" else None
        text = CALL if asked.get("response_format") else LEAK
        answer = self._stream if asked.get("stream") else self._answer
        self._send(200, answer(calls, text))

    def _answer(self, calls: str | None, text: str) -> bytes:
        made = {"id": "1", "type": "function", "function": {"name": calls, "arguments": CALL}}
        message = {
            "role": "assistant",
            "content": None if calls else text,
            **({"tool_calls": [made]} if calls else {}),
        }
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        made = {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        }
        return json.dumps(made).encode()

    def _stream(self, calls: str | None, text: str) -> bytes:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        for start in range(0, len(CALL if calls else text), 4):
            if not calls:
                deltas.append({"content": text[start : start + 4]})
                continue
            function = {
                "arguments": CALL[start : start + 4],
                **({} if start else {"name": calls}),
            }
            deltas.append(
                {"tool_calls": [{"index": 0, "function": function, **({} if start else {"id": "1"})}]}
            )
        lines = [
            {
                "id": "chat-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
            }
            for delta in deltas
        ]
        lines[-1]["choices"][0]["finish_reason"] = "tool_calls" if calls else "stop"  # type: ignore[index]
        return "".join(f"data: {json.dumps(line)}\n\n" for line in lines).encode() + b"data: [DONE]\n\n"

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header(
            "content-type", "text/event-stream" if body.startswith(b"data:") else "application/json"
        )
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def client(address: str, *, streaming: bool) -> Any:
    return openai.ChatOpenAI(
        model="m",
        base_url=address,
        api_key="none",
        streaming=streaming,
        max_retries=0,
        tiktoken_model_name="m",
    )


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_streams_by_default_is_verified(
    policy: Policy, address: str, streaming: bool
) -> None:
    inner = client(address, streaming=streaming)
    seen = Everything()
    config: Any = {"callbacks": [seen]}
    model = VerifiedChatModel.over(inner, policy, action="redact")
    assert model.invoke("x", config).text == SAFE
    assert (await model.ainvoke("x", config)).text == SAFE
    assert check_stream(policy, [chunk.text for chunk in model.stream("x", config)]) == SAFE
    assert check_stream(policy, [chunk.text async for chunk in model.astream("x", config)]) == SAFE
    assert model.invoke("x").response_metadata["finish_reason"] == "stop"
    made = create_agent(inner, tools=[lookup_customer], middleware=[NCOGuardMiddleware(policy)])
    ask: Any = {"messages": [("human", "x")]}
    result = made.invoke(ask, config)
    assert result["messages"][1].tool_calls[0]["args"] == {"name": "[redacted]"}
    assert result["messages"][-1].text == SAFE
    shown = [*made.stream(ask, config, stream_mode="messages"), await made.ainvoke(ask, config)]
    check_everything(policy, [result, shown, seen.seen])
    for route in (lambda: model.invoke("fail", config), lambda: list(model.stream("fail", config))):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            route()
        assert "john.doe" not in repr((caught.value, vars(caught.value), caught.value.__context__))
    assert "john.doe" not in repr(seen.seen)


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # the client's own
@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_structured_output_is_asked_for_and_parsed_as_the_client_does(
    policy: Policy, address: str, streaming: bool, method: Any
) -> None:
    inner = client(address, streaming=streaming)
    assert inner.with_structured_output(Contact, method=method).invoke("x").name == "maria@example.com"
    seen = Everything()
    config: Any = {"callbacks": [seen]}
    model = VerifiedChatModel.over(inner, policy, action="redact")
    made = model.with_structured_output(Contact, method=method)
    shown = [made.invoke("x", config), await made.ainvoke("x", config), *made.stream("x", config)]
    assert shown == [Contact(name="[redacted]")] * 3
    raw = model.with_structured_output(Contact, method=method, include_raw=True).invoke("x", config)
    assert raw["parsed"] == Contact(name="[redacted]")
    check_everything(policy, [raw, seen.seen])
    assert "maria" not in repr((raw, seen.seen))
    with pytest.raises(ViolationError):
        VerifiedChatModel.over(inner, policy).with_structured_output(Contact, method=method).invoke("x")
