"""One agent, streamed twice: under LangChain's own PIIMiddleware, and under NCOGuardMiddleware.

What is shown of the first is only whether it leaked: it does, since it redacts a message once it is complete.
"""

from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware

from langchain_nco_guard import ChatNCOGuard, NCOGuardMiddleware
from nco_guard import Guard, Policy, StringRule
from nco_guard.demo import load

policy = Policy.from_presets("pii")
guard = Guard(policy)
model, tokenizer = load()
# A policy that forbids next to nothing: the model writes as it likes, as one without a guard would.
loose = Policy(name="loose", rules=(StringRule(id="mark", strings=("\x00",)),))
chat = ChatNCOGuard(model=model, tokenizer=tokenizer, guard=loose, max_tokens=48, temperature=0)
question = {"messages": [("human", "How can I reach Daniel Cohen?")]}


def streamed(middleware: list) -> list[str]:
    agent = create_agent(chat, tools=[], middleware=middleware)
    return [chunk.text for chunk, _ in agent.stream(question, stream_mode="messages")]


theirs = streamed([PIIMiddleware("email", apply_to_output=True)])
ours = streamed([NCOGuardMiddleware(guard)])
for name, pieces in (("PIIMiddleware", theirs), ("NCOGuardMiddleware", ours)):
    moments = ["".join(pieces[: count + 1]) for count in range(len(pieces))]
    leaks = sum(not guard.verify(shown).ok for shown in moments)
    print(f"{name}: {len(pieces)} chunks, personal data on the screen after {leaks} of them")
print("NCOGuardMiddleware:", "".join(ours))
