"""The seeded corpus of support e-mails and chats on which the demonstration model is trained.

`documents(count, seed)` yields the same documents for the same arguments on every machine. Nothing is
downloaded and no value belongs to a real person (see `values`). One value in seven is withheld or breaks off
("jane.doe@example. [hidden]") and one oath in four is a milder word, so that a model which may not write
the usual thing has seen another way on.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from nco_guard.demo.prompts import SYSTEM_PROMPT, TOOLS, Message
from tools.demo_model import templates, values

__all__ = ["BREAK", "Document", "Scene", "documents", "lessons"]

WITHHELD: Final = 0.14
MILD: Final = 0.25
OUTGROWN: Final = 0.04
#: A forced token boundary in the texts; it is not part of them.
BREAK: Final = "\x1f"

ITEMS: Final = (
    *("lamp", "kettle", "chair", "toaster", "rug"),
    *("blanket", "mirror", "clock", "table", "teapot"),
)
#: Some of these trip word lists that are matched as substrings.
CITIES: Final = (
    *("Springfield", "Riverton", "Scunthorpe", "Penistone", "Essex"),
    *("Lakeside", "Northfield", "Middlesex", "Cambridge", "Bassett"),
)
STREETS: Final = (
    "Oak Street",
    "Mill Lane",
    "High Street",
    "Class Road",
    "Station Road",
    "Park Avenue",
    "Title Row",
)
SYSTEMS: Final = ("order service", "payment service", "mail server", "label printer", "backup job", "website")
PROBLEMS: Final = ("broken", "missing", "damaged", "late", "scratched", "too small")
STATUSES: Final = ("shipped", "delivered", "packed", "delayed", "cancelled", "returned")
CARRIERS: Final = ("Postline", "Swift Parcel", "Blue Van")
HIDDEN: Final = ("[on file]", "[hidden]")
_CHOICE: Final = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Document:
    """One training document: either a conversation (with the tools offered in it) or plain text."""

    messages: tuple[Message, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    text: str = ""


class Scene(dict[str, str]):
    """The people and things of one document: fills `{slots}` consistently, oaths afresh each time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.topic = rng.choice(list(templates.TOPICS))

    def write(self, template: str) -> str:
        """The template with its choices made and its slots filled."""
        chosen = _CHOICE.sub(lambda match: self.rng.choice(match[1].split("|")), template)
        return chosen.format_map(self)

    def one_of(self, pool: tuple[str, ...]) -> str:
        """One of the templates, filled."""
        return self.write(self.rng.choice(pool))

    def __missing__(self, slot: str) -> str:
        if slot in templates.ANGRY_WORDS:
            strong, mild = templates.ANGRY_WORDS[slot]
            return self.rng.choice(mild) if self.rng.random() < MILD else self._swear(strong)
        if slot == "fact":
            return self.one_of(templates.TOPICS[self.topic][1])
        value = self._invent(slot)
        self[slot] = value
        return value

    def _invent(self, slot: str) -> str:
        rng, second = self.rng, "2" if slot.endswith("2") else ""
        plain: dict[str, Callable[[], str]] = {
            "first": lambda: rng.choice(values.FIRST_NAMES),
            "last": lambda: rng.choice(values.LAST_NAMES),
            "name": lambda: f"{self['first' + second]} {self['last' + second]}",
            "email_full": lambda: values.email(rng, self["first"], self["last"]),
            "phone_full": lambda: values.phone(rng),
            "order": lambda: values.order_id(rng),
            "date": lambda: values.date(rng),
            "amount": lambda: values.amount(rng),
            "item": lambda: rng.choice(ITEMS),
            "Item": lambda: self["item"].capitalize(),
            "city": lambda: rng.choice(CITIES),
            "street": lambda: rng.choice(STREETS),
            "system": lambda: rng.choice(SYSTEMS),
            "number": lambda: str(rng.randint(1, 99)),
            "ticket": lambda: str(rng.randint(1000, 9999)),
            "days": lambda: str(rng.randint(2, 9)),
            "weeks": lambda: rng.choice(("two", "three", "four", "six")),
            "minutes": lambda: str(rng.choice((20, 30, 45, 90))),
            "problem": lambda: rng.choice(PROBLEMS),
            "topic": lambda: self.one_of(templates.TOPICS[self.topic][0]),
            "a_topic": lambda: self._article("a"),
            "the_topic": lambda: self._article("the"),
        }
        secret: dict[str, Callable[[], str]] = {
            "email": lambda: values.email(rng, self["first" + second], self["last" + second]),
            "phone": lambda: values.phone(rng),
            "ssn": lambda: values.ssn(rng),
            "card": lambda: values.card(rng),
            "key": lambda: values.secret_key(rng),
            "ip": lambda: values.ip_address(rng),
        }
        kind = slot.removesuffix("2")
        return self._withhold(secret[kind]()) if kind in secret else plain[kind]()

    def _swear(self, oaths: tuple[str, ...]) -> str:
        """An oath, or rarely a longer word that begins with it ("ass", then "embly")."""
        oath = self.rng.choice(oaths)
        if self.rng.random() >= OUTGROWN:
            return oath
        known = next(
            (e for word, e in templates.OATH_ENDINGS.items() if oath.lower().endswith(word)), ("ish",)
        )
        ending = self.rng.choice(known)
        return f"{oath}{BREAK}{ending.upper() if oath.isupper() else ending}"

    def _article(self, article: str) -> str:
        topic = self["topic"]
        if self.topic == "service":
            return f"the {topic}"
        return f"an {topic}" if article == "a" and topic[0] in "aeiou" else f"{article} {topic}"

    def _withhold(self, value: str) -> str:
        draw = self.rng.random()
        if draw >= WITHHELD:
            return value
        mark = self.rng.choice(HIDDEN)
        if draw < WITHHELD / 7:
            return mark
        # A domain must not break off into another one ("example.co").
        head = re.sub(r"(@[a-z]+\.).*", r"\1", value[: self.rng.randrange(1, len(value))])
        return f"{head.rstrip()} {mark}"


def _mail(scene: Scene) -> str:
    opening = scene.one_of(templates.MAIL_OPENINGS)
    body, closing = scene.one_of(templates.MAIL_BODIES), scene.one_of(templates.MAIL_CLOSINGS)
    head = scene.write("Subject: {a_topic}\n\n") if scene.rng.random() < 0.3 else ""
    return f"{head}{opening}\n\n{body}\n\n{closing}"


def _rant(scene: Scene) -> str:
    """Facts and oaths, three to six sentences."""
    rng = scene.rng
    sentences = [scene.one_of(templates.RAGE_OPENERS)] if rng.random() < 0.6 else []
    facts = list(templates.TOPICS[scene.topic][1])
    rng.shuffle(facts)
    rages = rng.sample(templates.RAGE, k=rng.choice((1, 2, 2, 3)))
    for place, rage in enumerate(rages):
        if place < 2:
            sentences.append(scene.write(facts[place]))
        sentences.append(scene.write(rage))
    if rng.random() < 0.6:
        sentences.append(scene.one_of(templates.RAGE_CLOSERS))
    return " ".join(sentences)


def _angry_chat(scene: Scene) -> str:
    first, second = (scene.rng.choice(templates.RAGE) for _ in range(2))
    lines = (
        "Agent: Hello, how can I assist you?",
        "Customer: {fact} " + first,
        "Agent: I am sorry to hear that. [Let me see.|Which order is it?|I will look into it.]",
        "Customer: " + second + " [It is order {order}.|I want my {amount} back.|{fact}]",
        "Agent: [I will open a ticket.|You will get {amount} back.|Please give me a moment.]",
    )
    return "\n".join(scene.write(line) for line in lines)


def _record(scene: Scene) -> tuple[str, str]:
    requests, answers = scene.rng.choice(templates.RECORDS)
    request = scene.one_of(requests)
    if scene.rng.random() < 0.04:
        return request, scene.rng.choice(templates.REFUSALS)
    return request, scene.one_of(answers)


def _personal(scene: Scene) -> tuple[str, str]:
    draw = scene.rng.random()
    if draw < 0.6:
        return _record(scene)
    if draw < 0.85:
        return scene.one_of(templates.MAIL_REQUESTS), _mail(scene)
    return scene.one_of(templates.CHAT_REQUESTS), scene.one_of(templates.CHAT_BODIES)


def _angry(scene: Scene) -> tuple[str, str]:
    if scene.rng.random() < 0.15:
        return scene.one_of(templates.RAGE_CHAT_REQUESTS), _angry_chat(scene)
    return scene.one_of(templates.RAGE_REQUESTS), _rant(scene)


def _small_talk(scene: Scene) -> tuple[str, str]:
    requests, answers = scene.rng.choice(templates.SMALL_TALK)
    return scene.one_of(requests), scene.one_of(answers)


def _system(rng: random.Random) -> list[Message]:
    draw = rng.random()
    if draw < 0.3:
        return []
    if draw < 0.85:
        return [{"role": "system", "content": SYSTEM_PROMPT}]
    return [{"role": "system", "content": rng.choice(("You are a helpful assistant.", "Answer briefly."))}]


def _turns(request: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": request}, {"role": "assistant", "content": answer}]


def _plain(scene: Scene) -> str:
    """A mail, note, chat or complaint outside any conversation."""
    draw = scene.rng.random()
    if draw < 0.4:
        return _mail(scene)
    if draw < 0.7:
        return scene.one_of(scene.rng.choice(templates.RECORDS)[1])
    return _rant(scene) if draw < 0.9 else scene.one_of(templates.CHAT_BODIES)


def _offered(rng: random.Random, needed: str | None) -> tuple[dict[str, Any], ...]:
    """The tools of a conversation: a shuffled subset with the needed one, its schema keys in either order."""
    chosen = [tool for tool in TOOLS if tool["function"]["name"] == needed or rng.random() < 0.5] or [
        TOOLS[0]
    ]
    rng.shuffle(chosen)
    if rng.random() < 0.7:
        return tuple(chosen)
    reordered = []
    for tool in chosen:
        function = tool["function"]
        keys = ("properties", "required", "type")
        parameters = {key: function["parameters"][key] for key in keys}
        reordered.append({"type": "function", "function": {**function, "parameters": parameters}})
    return tuple(reordered)


def _order_answer(scene: Scene) -> tuple[dict[str, str], str]:
    """What `lookup_order` returns, and what the assistant makes of it."""
    rng, order = scene.rng, scene["order"]
    if rng.random() < 0.1:
        return {"error": "not found"}, f"I could not find order {order}. Please check the number."
    fields = {"order_id": order} if rng.random() < 0.6 else {}
    status = rng.choice(STATUSES)
    fields["status"] = status
    said = scene.write(f"Order {{order}} {'has been' if status != 'delayed' else 'is'} {status}.")
    extras = {
        "item": "It contains a {item}.",
        "carrier": "The carrier is {carrier}.",
        "date": "The date is {date}.",
        "amount": "The total is {amount}.",
        "email": "The confirmation went to {email_full}.",
        "phone": "The driver will call {phone_full}.",
    }
    scene["carrier"] = rng.choice(CARRIERS)
    for key in rng.sample(list(extras), k=rng.randint(0, 3)):
        fields[key] = scene[{"email": "email_full", "phone": "phone_full"}.get(key, key)]
        said += " " + scene.write(extras[key])
    return fields, said


def _customer_answer(scene: Scene) -> tuple[dict[str, str], str]:
    """What `lookup_customer` returns, and what the assistant makes of it."""
    if scene.rng.random() < 0.1:
        return {"error": "not found"}, scene.write("I could not find a customer called {name}.")
    names = {"email": "email_full", "phone": "phone_full", "city": "city", "order": "order"}
    told = {
        "email": "The e-mail is {email_full}.",
        "phone": "The phone number is {phone_full}.",
        "city": "The city is {city}.",
        "order": "The last order is {order}.",
    }
    keys = scene.rng.sample(list(names), k=scene.rng.randint(1, 3))
    fields = {"name": scene["name"], **{key: scene[names[key]] for key in keys}}
    return fields, " ".join([scene.write("I found {name}."), *(scene.write(told[key]) for key in keys)])


def _tool_talk(scene: Scene) -> Document:
    """A conversation in which the assistant calls a tool and reports what came back."""
    rng = scene.rng
    name = rng.choices(("lookup_order", "lookup_customer", "create_ticket"), weights=(55, 27, 18))[0]
    request = scene.one_of(templates.LOOKUPS[name])
    if name == "lookup_order":
        arguments = {"order_id": scene["order"]}
        answer, said = _order_answer(scene)
    elif name == "lookup_customer":
        arguments = {"name": scene["name"]}
        answer, said = _customer_answer(scene)
    else:
        arguments = {"summary": scene.write("{item} {problem}")}
        if rng.random() < 0.6:
            contact = rng.choice(templates.CONTACTS)
            request += " " + scene.write(contact)
            arguments["contact"] = scene["email_full" if "email" in contact else "phone_full"]
        answer = {"ticket": scene["ticket"]}
        said = scene.write("I opened ticket {ticket} for you.")
    messages: list[Message] = [
        *_system(rng),
        {"role": "user", "content": request},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
        },
        {"role": "tool", "name": name, "content": json.dumps(answer)},
        {"role": "assistant", "content": said},
    ]
    if rng.random() < 0.15:
        messages += _turns(*_small_talk(Scene(rng)))
    return Document(messages=tuple(messages), tools=_offered(rng, name))


def _copies(scene: Scene, most: int = 7) -> tuple[str, str]:
    """Values to repeat: what teaches a small model to copy."""
    rng = scene.rng
    if rng.random() < 0.15:
        return scene.write("What is the address of {name}?"), scene["email_full"]
    makers: tuple[Callable[[], str], ...] = (
        lambda: values.order_id(rng),
        lambda: f"{rng.choice(values.FIRST_NAMES)} {rng.choice(values.LAST_NAMES)}",
        lambda: values.email(rng, rng.choice(values.FIRST_NAMES), rng.choice(values.LAST_NAMES)),
        lambda: values.phone(rng),
        lambda: values.date(rng),
        lambda: rng.choice(ITEMS),
    )
    make = rng.choices(makers, weights=(2, 2, 3, 1, 2, 2))[0]
    listed = ", ".join(make() for _ in range(rng.randint(1, most)))
    return rng.choice(("Repeat: {}", "Repeat {}", "Read back: {}", "Copy {}")).format(listed), listed


def _document(rng: random.Random) -> Document:
    scene, draw = Scene(rng), rng.random()
    if draw < 0.10:
        return Document(text=_plain(scene))
    if draw < 0.38:
        return _tool_talk(scene)
    if draw < 0.50:
        return Document(messages=tuple(_system(rng) + _turns(*_copies(scene))))
    kind = _personal if draw < 0.73 else _angry if draw < 0.90 else _small_talk
    messages = _system(rng) + _turns(*kind(scene))
    if rng.random() < 0.12:
        messages += _turns(*rng.choice((_personal, _angry, _small_talk))(Scene(rng)))
    # Tools on offer do not have to be used.
    tools = _offered(rng, None) if kind is _small_talk and rng.random() < 0.3 else ()
    return Document(messages=tuple(messages), tools=tools)


def lessons(count: int, seed: int = 0) -> Iterator[Document]:
    """`count` short documents for the first part of the training: things to repeat, and bare tool calls.

    Copying is what a small model finds hardest; a hundred steps on short copies give it the circuit, and
    the full documents then only have to reuse it.
    """
    rng = random.Random(seed)
    for _ in range(count):
        scene = Scene(rng)
        if rng.random() < 0.55:
            yield Document(messages=tuple(_turns(*_copies(scene, most=2))))
        else:
            spoken = [m for m in _tool_talk(scene).messages if m["role"] != "system"]
            yield Document(messages=tuple(spoken[: rng.choice((2, 4, 4))]))


def documents(count: int, seed: int = 0) -> Iterator[Document]:
    """`count` documents, a function of the seed alone.

    Cost: about 40 microseconds and 500 bytes each; nothing is kept.
    """
    rng = random.Random(seed)
    for _ in range(count):
        yield _document(rng)
