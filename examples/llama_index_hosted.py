"""A hosted LLM, played by a script: it cannot be guarded, so what it says is verified before anybody sees it."""

import asyncio

from llama_index.core.agent.workflow import AgentStream, FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.nco_guard import VerifiedLLM, verified_tool
from llama_index.llms.nco_guard.testing import ScriptedLLM

from nco_guard import Policy
from nco_guard.errors import ViolationError

policy = Policy.from_presets("pii")
answer = "Write to daniel.cohen@example.com, or come to the shop in Oslo. It is open until six."

llm = VerifiedLLM(ScriptedLLM(script=[answer], size=4), guard=policy, action="redact")
print("redact:", "|".join(chunk.delta or "" for chunk in llm.stream_complete("How can I reach him?")))

try:
    VerifiedLLM(ScriptedLLM(script=[answer]), guard=policy).complete("How can I reach him?")
except ViolationError as error:
    print("raise: ", error)


def lookup_customer(name: str) -> str:
    """Look up a customer."""
    return f'{{"name": "{name}", "email": "daniel.cohen@example.com"}}'


async def ask() -> None:
    call = ToolCallBlock(tool_call_id="1", tool_name="lookup_customer", tool_kwargs={"name": "Daniel Cohen"})
    hosted = ScriptedLLM(script=[ChatMessage(blocks=[call]), answer], size=4)
    tool = verified_tool(FunctionTool.from_defaults(lookup_customer), policy)
    agent = FunctionAgent(tools=[tool], llm=VerifiedLLM(hosted, guard=policy, action="redact"))
    handler = agent.run("How can I reach Daniel Cohen?")
    print("agent: ", end="")
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            print(event.tool_output.content, end=" -> ")
        if isinstance(event, AgentStream):
            print(event.delta, end="")
    await handler
    print()


asyncio.run(ask())
