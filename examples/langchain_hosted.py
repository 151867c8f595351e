"""A hosted model, played by a script: it cannot be guarded, so what it says is verified before anybody sees it."""

from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from langchain_nco_guard import NCOGuardMiddleware
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy
from nco_guard.errors import ViolationError

guard = Guard(Policy.from_presets("pii"))
question = {"messages": [("human", "How can I reach Daniel Cohen?")]}


def hosted(*answers: str) -> ScriptedChatModel:
    return ScriptedChatModel(script=[AIMessage(answer) for answer in answers], size=4)


answer = "Write to daniel.cohen@example.com, or come to the shop in Oslo. It is open until six."
agent = create_agent(hosted(answer), middleware=[NCOGuardMiddleware(guard)])
print("redact:", "|".join(chunk.text for chunk, _ in agent.stream(question, stream_mode="messages")))

agent = create_agent(
    hosted(answer, "His address is on file."), middleware=[NCOGuardMiddleware(guard, action="retry")]
)
print("retry: ", agent.invoke(question)["messages"][-1].text)

agent = create_agent(hosted(answer), middleware=[NCOGuardMiddleware(guard, action="raise")])
try:
    agent.invoke(question)
except ViolationError as error:
    print("block: ", error)
