"""A LangChain agent over a model on this machine: tools, a policy, and an audit log without text."""

import json
import tempfile
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.tools import tool

from langchain_nco_guard import ChatNCOGuard, NCOGuardAuditHandler, NCOGuardMiddleware
from nco_guard import Guard, Policy
from nco_guard.audit import JsonLinesSink
from nco_guard.demo import SYSTEM_PROMPT, load


@tool
def lookup_customer(name: str) -> str:
    """Look up a customer."""
    return json.dumps({"name": name, "email": "maria@example.com", "phone": "312-555-0155", "city": "Oslo"})


model, tokenizer = load()
guard = Guard(Policy.from_presets("pii"))
chat = ChatNCOGuard(model=model, tokenizer=tokenizer, guard=guard, max_tokens=64, temperature=0)
agent = create_agent(
    chat,
    tools=[lookup_customer],
    system_prompt=SYSTEM_PROMPT,
    middleware=[NCOGuardMiddleware(guard)],  # the model is guarded already; this is for the tool's results
)

log = Path(tempfile.mkdtemp()) / "audit.jsonl"
with JsonLinesSink(log) as sink:
    result = agent.invoke(
        {"messages": [("human", "What is the phone number of Maria Lopez?")]},
        {"callbacks": [NCOGuardAuditHandler(guard, sink)]},
    )
for message in result["messages"]:
    print(f"{message.type:5}", message.text or [call["args"] for call in message.tool_calls])
kinds = [json.loads(line)["kind"] for line in log.read_text().splitlines()]
print("audit:", {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)})
