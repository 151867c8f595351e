"""An agent that calls tools for real, streamed: the tools return personal data, the agent cannot repeat it."""

import asyncio

from llama_index.core.agent.workflow import AgentStream, FunctionAgent, ToolCallResult
from llama_index.llms.nco_guard import NCOGuardLLM

from nco_guard import Policy, verify
from nco_guard.audit import MemorySink
from nco_guard.demo import SYSTEM_PROMPT, model_path


def lookup_order(order_id: str) -> str:
    """Look up an order."""
    return f'{{"order_id": "{order_id}", "status": "shipped", "phone": "503-555-0123", "email": "jo@example.com"}}'


async def main() -> None:
    policy = Policy.from_presets("pii")
    audit = MemorySink()
    llm = NCOGuardLLM(model_path(), guard=policy, audit=audit, max_new_tokens=96)
    agent = FunctionAgent(tools=[lookup_order], llm=llm, system_prompt=SYSTEM_PROMPT)

    run = agent.run("Where is order A-1042?")
    shown = ""
    async for event in run.stream_events():
        if isinstance(event, ToolCallResult):
            found = verify(policy, str(event.tool_output)).findings
            print(
                f"{event.tool_name}({event.tool_kwargs}) returned {len(found)} values that may not be shown"
            )
        elif isinstance(event, AgentStream):
            shown += event.delta
            print(event.delta, end="", flush=True)
    print()
    assert verify(policy, shown).ok
    assert verify(policy, str(await run)).ok
    masked = sorted(
        {rule for event in audit.events if event.kind == "intervention" for rule in event.rule_ids}
    )
    print("masked:", ", ".join(masked))


asyncio.run(main())
