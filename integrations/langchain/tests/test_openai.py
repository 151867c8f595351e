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

from langchain_nco_guard import NCOGuardMiddleware, VerifiedChatModel
from nco_guard import Policy

openai = pytest.importorskip("langchain_openai")
CALL = r'{"name": "maria\u0040example.com"}'


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
        calls = bool(asked.get("tools")) and asked["messages"][-1]["role"] != "tool"
        self._send(
            200, self._stream(calls) if asked.get("stream") else json.dumps(self._answer(calls)).encode()
        )

    def _answer(self, calls: bool) -> dict[str, Any]:
        made = {"id": "1", "type": "function", "function": {"name": "lookup_customer", "arguments": CALL}}
        message = {
            "role": "assistant",
            "content": None if calls else LEAK,
            **({"tool_calls": [made]} if calls else {}),
        }
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        }

    def _stream(self, calls: bool) -> bytes:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        for start in range(0, len(CALL if calls else LEAK), 4):
            if not calls:
                deltas.append({"content": LEAK[start : start + 4]})
                continue
            function = {
                "arguments": CALL[start : start + 4],
                **({} if start else {"name": "lookup_customer"}),
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


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_streams_by_default_is_verified(
    policy: Policy, address: str, streaming: bool
) -> None:
    inner = openai.ChatOpenAI(
        model="m",
        base_url=address,
        api_key="none",
        streaming=streaming,
        max_retries=0,
        tiktoken_model_name="m",
    )
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
