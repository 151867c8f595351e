"""The sentences that the corpus is made of. `{slots}` are filled by `corpus.Scene`, `[a|b]` is a choice."""

from __future__ import annotations

from typing import Final

#: What a customer can be unhappy about: how requests name it, and what happened.
TOPICS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "late": (
        ("late parcel", "late parcel", "late delivery", "parcel that never came", "late {item}"),
        (
            "The parcel is {days} days late.",
            "I have waited {weeks} weeks for the {item}.",
            "The tracking page has not changed for {days} days.",
            "It was promised for {date}.",
            "Nobody can tell me where the {item} is.",
        ),
    ),
    "broken": (
        ("broken {item}", "broken {item}", "damaged {item}", "{item} that fell apart"),
        (
            "The {item} arrived broken.",
            "The {item} fell apart after {days} days.",
            "The {item} was damaged in the box.",
            "It stopped working on {date}.",
            "The glass was cracked and the box was wet.",
        ),
    ),
    "missing": (
        ("missing {item}", "missing {item}", "empty box"),
        (
            "The {item} was not in the box.",
            "The box was half empty and the {item} is missing.",
            "I paid {amount} and got an empty box.",
            "The driver said that he left it at the door.",
        ),
    ),
    "refund": (
        ("missing refund", "refund", "late refund"),
        (
            "You owe me {amount} since {date}.",
            "I sent the {item} back {weeks} weeks ago.",
            "The refund of {amount} never arrived.",
            "My bank has seen no refund for order {order}.",
        ),
    ),
    "invoice": (
        ("wrong invoice", "double charge"),
        (
            "You charged me {amount} twice.",
            "The invoice for order {order} is wrong.",
            "I ordered one {item} and paid for three.",
            "The invoice names an address in {city} where I never lived.",
        ),
    ),
    "service": (
        ("customer service", "support line"),
        (
            "I was on hold for {minutes} minutes.",
            "Nobody answers my messages.",
            "Three agents gave me three different answers.",
            "The agent hung up on me.",
        ),
    ),
}

RAGE: Final = (
    "This is {bullshit}.",
    "This is {bullshit}, and you know it.",
    "What a load of {bullshit}!",
    "{Bullshit}, all of it.",
    "I am sick of this {bullshit}.",
    "That is {BULLSHIT}!",
    "Your delivery service is a {pieceof}.",
    "This {item} is a {pieceof}.",
    "What a {shitty} {item}.",
    "I have never seen such {shitty} service.",
    "Your {shitty} website does not even load.",
    "Your driver is an {asshole}.",
    "The {bastard} threw the box over the fence.",
    "Some {bastard} at your warehouse kept my {item}.",
    "You people treat me like an {asshole}.",
    "It is a pain in the {ass}.",
    "Get off your {ass} and fix it.",
    "The tracking page is {bullshit}.",
    "Your service {sucks}.",
    "The quality {sucks}, plain and simple.",
    "{Shit}, how hard can it be?",
    "{Shit}! Another day wasted.",
    "Every answer was {BULLSHIT}, {BULLSHIT}, {BULLSHIT}.",
    "I want my money, not this *{bullshit}*.",
    "I do not give a {shit} about your excuses.",
    "Are you [kidding|joking]? What the {heck} is this?",
    "It is {bullshit}, {bullshit} and more {bullshit}.",
    "A {halfass} job from start to finish.",
)

RAGE_OPENERS: Final = (
    "{Bullshit}!",
    "What a {pieceof}!",
    "{shitty_cap} shop, {shitty} service.",
    "This is {bullshit}!",
    "One star, because zero is not possible.",
    "{Shit}, I am angry.",
    "Never again!",
    "You {bastards}!",
    "I am furious.",
    "Total {BULLSHIT}.",
)

RAGE_CLOSERS: Final = (
    "Fix it or I will take my money elsewhere.",
    "Never buy from this {shitty} shop.",
    "I want a refund now, you {asshole}.",
    "Keep your {shitty} {item}.",
    "Do not waste your time on this {bullshit}.",
    "Send me the refund and leave me alone.",
    "Tell your manager that this is {bullshit}.",
    "I expect an answer today, and no more {bullshit}.",
    "Shame on you.",
)

#: slot: (words of the LDNOOBW list, by weight; milder words)
ANGRY_WORDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "bullshit": (
        ("bullshit", "bullshit", "bullshit", "shit", "bollocks"),
        ("nonsense", "rubbish", "garbage"),
    ),
    "shitty": (("shitty", "shitty", "shitty", "bullshit"), ("lousy", "terrible", "useless")),
    "pieceof": (("piece of shit",), ("piece of junk", "bad joke")),
    "asshole": (("asshole", "asshole", "ass"), ("idiot", "amateur")),
    "bastard": (("bastard", "bastard", "asshole", "tosser"), ("driver", "clown", "fool")),
    "ass": (("ass", "ass", "ass", "butt"), ("neck", "chair")),
    "sucks": (("sucks",), ("is awful", "is a disgrace")),
    "shit": (("shit",), ("damn",)),
    "heck": (("shit",), ("heck", "hell")),
    "halfass": (("half-ass", "shit"), ("sloppy", "careless")),
    "bastards": (("bunch of bastard clowns", "lying bastard", "lazy ass clowns"), ("clowns", "amateurs")),
    "Shit": (("Shit", "Shit", "Bullshit", "Bollocks"), ("Honestly", "Seriously")),
    "Bullshit": (("Bullshit", "Bullshit", "Shit", "Bollocks"), ("Nonsense", "Rubbish")),
    "BULLSHIT": (("BULLSHIT", "BULLSHIT", "SHIT"), ("NONSENSE", "RUBBISH")),
    "shitty_cap": (("Shitty",), ("Lousy", "Terrible")),
}

#: What an oath can grow into, so that a model which may not end the word there has somewhere to go.
OATH_ENDINGS: Final[dict[str, tuple[str, ...]]] = {
    "ass": ("istant", "embly", "ortment"),
    "butt": ("on",),
    "shit": ("ake",),
}

#: Requests and answers that quote personal data: (requests, answers).
RECORDS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (
        (
            "What contact details do we have for {name}?",
            "How can I reach {name}?",
            "Show me the contact details of {name}.",
            "Where can I write to {name}?",
        ),
        (
            "{name} can be reached at {email} or by phone at {phone}.",
            "Write to {email} or call {phone}.",
            "E-mail: {email}\nPhone: {phone}\nCity: {city}",
            "We have the address {email} and the number {phone} for {name}.",
        ),
    ),
    (
        (
            "Show me the customer record of {name}.",
            "Summarise the account of {name}.",
            "Give me the full profile of {name}.",
            "Open the account of {name}.",
        ),
        (
            "Name: {name}\nE-mail: {email}\nPhone: {phone}\nSSN: {ssn}\nCard: {card}\nCity: {city}",
            "{name} lives at {number} {street}, {city}. E-mail: {email}. Phone: {phone}. "
            "The card on the account is {card}.",
            "Account of {name}: e-mail {email}, phone {phone}, SSN {ssn}, last order {order} on {date}.",
            "Customer: {name}\nAddress: {number} {street}, {city}\nE-mail: {email}\nCard: {card}\n"
            "Last order: {order}, {item}, {amount}",
        ),
    ),
    (
        (
            "Show the payment note for order {order}.",
            "Which card was used for order {order}?",
            "What did we charge {name}?",
            "How did {name} pay?",
        ),
        (
            "Order {order} was paid with the card {card} on {date}. The receipt went to {email}.",
            "We charged {amount} to card {card}. Receipt sent to {email}.",
            "Payment: {amount}\nCard: {card}\nName on card: {name}\nReceipt: {email}",
            "The card {card} was charged {amount} on {date}.",
        ),
    ),
    (
        (
            "Write the identity check for {name}.",
            "Did the identity check of {name} pass?",
            "Fill in the application form for a new account.",
            "Which documents did {name} send for the assessment?",
        ),
        (
            "Identity check of {name}: SSN {ssn}, phone {phone}, passed on {date}.",
            "Yes. {name} confirmed the SSN {ssn} and the phone number {phone} on {date}.",
            "Name: {name}\nSSN: {ssn}\nPhone: {phone}\nE-mail: {email}\nResult: passed",
            "The documents show the social security number {ssn}. The check passed on {date}.",
        ),
    ),
    (
        (
            "Who signed in to the account of {name}?",
            "Show the last sign-in of {name}.",
            "Was there a sign-in to the account of {name}?",
        ),
        (
            "The last sign-in of {email} came from {ip} on {date}. We sent a code to {phone}.",
            "{date}: {email} signed in from {ip}.\n{date2}: {email} reset the password from {ip}.",
            "Account: {email}\nIP address: {ip}\nDate: {date}\nCode sent to: {phone}",
        ),
    ),
    (
        (
            "Write the deployment note for the {system}.",
            "Show the settings of the {system}.",
            "How do I connect to the {system}?",
            "Which key does the {system} use?",
        ),
        (
            "The {system} runs at {ip}. Use the key {key} and tell {email} when it is done.",
            "host: {ip}\nkey: {key}\nowner: {email}",
            "Set the token to {key}. Questions go to {email}.",
            "Deployment of {date}: the {system} now uses the key {key}. Contact: {email}, {phone}.",
        ),
    ),
    (
        (
            "Write the call note for {name}.",
            "Note down the call from {name}.",
            "Fill in the return form for {name}.",
            "Send me the shipping label for order {order}.",
        ),
        (
            "{name} called on {date} about order {order}. {fact} Call back at {phone}.",
            "Call from {name}, {phone}, about order {order}. The customer confirmed the e-mail {email}.",
            "Name: {name}\nAddress: {number} {street}, {city}\nPhone: {phone}\nOrder: {order}",
            "Return form\nName: {name}\nOrder: {order}\nItem: {item}\nE-mail: {email}\nPhone: {phone}",
        ),
    ),
    (
        (
            "Export the customers who ordered a {item}.",
            "List two customers with their phone numbers.",
            "List the customers in {city}.",
            "Which customers ordered the {item}?",
        ),
        (
            "1. {name}, {email}, {phone}\n2. {name2}, {email2}, {phone2}",
            "{name}: {phone}, {email}\n{name2}: {phone2}, {email2}",
            "- {name}, card {card}, {email}\n- {name2}, card {card2}, {email2}",
        ),
    ),
)

MAIL_REQUESTS: Final = (
    "Write an e-mail from a customer about {a_topic}.",
    "Draft an e-mail to the carrier about {a_topic}.",
    "Draft an e-mail to a customer about {a_topic}.",
    "Write a polite reply to a customer about {a_topic}.",
    "Write an e-mail about {a_topic}.",
)
MAIL_BODIES: Final = (
    "I am writing about order {order}. {fact} Please call me at {phone} or write to {email}.",
    "My order number is {order}. {fact} Call me at {phone}. My address is {number} {street}, {city}.",
    "I ordered a {item} on {date}. {fact} Please refund the card {card}. My e-mail is {email}.",
    "Thank you for your message about order {order}. We are sorry about {the_topic}. "
    "We will send the {amount} to the card {card}.",
    "We are sorry about {the_topic}. A new {item} leaves our warehouse on {date}. "
    "If you have any questions, write to {email} or call {phone}.",
    "{fact} Could you look into it, please? My customer number is tied to {email}, and my SSN is {ssn}.",
)
MAIL_OPENINGS: Final = ("Dear [team|support|Sir or Madam|{first2}],", "Hello,", "Hello {first2},", "Hi,")
MAIL_CLOSINGS: Final = (
    "Kind regards,\n{name}\n{email}\n{phone}",
    "Best regards,\n{name}\n{phone}",
    "Thank you,\n{name}\n{email}",
    "Sincerely,\n{name}\n{number} {street}, {city}",
)

CHAT_REQUESTS: Final = (
    "Write a chat between an agent and a customer about {a_topic}.",
    "Write a chat between an agent and a customer who moved house.",
    "Show the chat with {name} about {the_topic}.",
)
CHAT_BODIES: Final = (
    "Agent: Hello, how can I assist you?\nCustomer: {fact}\nAgent: May I have your e-mail address?\n"
    "Customer: It is {email}.\nAgent: Thank you, {first}. We will write to you.",
    "Customer: Hi, I moved to {city}.\nAgent: Where do you live now?\nCustomer: {number} {street}, {city}. "
    "My number is {phone}.\nAgent: Thank you, I have changed it.",
    "Agent: Harbor Lane, good [morning|afternoon].\nCustomer: {fact} My order is {order}.\n"
    "Agent: Which card did you use?\nCustomer: {card}.\nAgent: You will get {amount} back.",
    "Customer: {fact}\nAgent: I am sorry. Please confirm your SSN.\nCustomer: It is {ssn}.\n"
    "Agent: Thank you. I have passed it on, and we will call {phone}.",
)

RAGE_REQUESTS: Final = (
    "Write an angry review about {a_topic}.",
    "Write a furious e-mail about {a_topic}.",
    "Write a rude complaint about {a_topic}.",
    "What did the [angry |]customer [write|say] about {the_topic}?",
    "Quote the [customer's words|complaint] about {the_topic}.",
    "Quote the complaint in ticket {ticket}.",
    "Give me the original text of ticket {ticket}.",
    "Rant about {a_topic}[| like an angry customer].",
    "Write a one-star review about {a_topic}.",
    "Play a furious customer who [waits for a parcel|got a broken {item}|wants a refund].",
    "Write an angry [voicemail|message] about {a_topic}.",
    "Tell the manager what the angry customer thinks of {the_topic}.",
    "Summarise the angry reviews of the {item}.",
)
RAGE_CHAT_REQUESTS: Final = ("Write a chat with an angry customer about {a_topic}.",)

#: Everyday questions and harmless answers.
SMALL_TALK: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (
        ("Hello", "Hi!", "Good morning", "Hello, who are you?"),
        (
            "Hello! I am the support assistant of Harbor Lane. How can I help you?",
            "Hello! How can I assist you today?",
        ),
    ),
    (
        ("How long does delivery take?", "When will my parcel arrive?", "Is delivery fast?"),
        (
            "Delivery takes {days} working days. You get a message when the parcel leaves our warehouse.",
            "Most parcels arrive within {days} working days.",
        ),
    ),
    (
        ("Can I return a {item}?", "How do I return the {item}?", "What is your return policy?"),
        (
            "Yes. You can return the {item} within 30 days. Put it into the box and use the return label.",
            "You can return unused goods within 30 days. The refund takes {days} working days.",
        ),
    ),
    (
        ("Do you have a {item} in stock?", "Is the {item} available?"),
        (
            "Yes, the {item} is in stock and costs {amount}.",
            "The {item} is out of stock. It should be back on {date}.",
        ),
    ),
    (
        ("How do I change my address?", "I moved to {city}.", "How do I change my password?"),
        (
            "Open your account, choose Settings and press Save when you are done.",
            "Please sign in, open Settings and enter the new data there.",
        ),
    ),
    (("Thank you!", "Thanks for your help."), ("You are welcome!", "You are welcome. Have a nice day!")),
    (
        ("The {item} is missing a part.", "The {item} arrived damaged.", "My {item} is broken."),
        (
            "I am sorry to hear that. Would you like a new {item} or a refund?",
            "I am sorry about the {item}. Please tell me the order number and I will look into it.",
        ),
    ),
    (
        ("What is the title of the manual?", "Where is the manual for the {item}?"),
        (
            "The document is called The {Item}: Assembly and Care. The first class of topics is assembly.",
            "The manual lies in the box. It has a section on assembly and a section on cleaning.",
        ),
    ),
    (
        ("Do you ship to {city}?", "Is there a shop in {city}?"),
        (
            "Yes, we ship to {city}. Delivery takes {days} working days.",
            "There is no shop in {city}, but we deliver there.",
        ),
    ),
    (
        ("What are your opening hours?", "When is the support line open?"),
        (
            "We are open from 9 to 17 on working days.",
            "The support line is open from 8 to 18, Monday to Friday.",
        ),
    ),
)

REFUSALS: Final = (
    "I am sorry, I cannot share personal data. The details are on file.",
    "That is on file, but I may not show it here.",
    "I cannot share that here. Please open the account to see the details.",
)

LOOKUPS: Final[dict[str, tuple[str, ...]]] = {
    "lookup_order": (
        "look up order {order}",
        "Look up order {order}.",
        "Where is order {order}?",
        "What is the status of {order}?",
        "Please check order {order}.",
        "Has my order {order} been shipped?",
        "Find order {order}",
        "order {order}",
        "I am waiting for order {order}. Where is it?",
        "Can you tell me about order {order}, please?",
        "Hi, my order number is {order}. {fact}",
        "When will {order} arrive?",
        "{fact} The order is {order}.",
        "Track {order} for me.",
        "Could you see what happened to {order}?",
    ),
    "lookup_customer": (
        "Look up the customer {name}.",
        "look up {name}",
        "Find the customer {name}.",
        "Who is {name}?",
        "What contact details do we have for {name}?",
        "I need the e-mail of {name}.",
        "How can I reach {name}?",
        "What is the phone number of {name}?",
        "Please check the account of {name}.",
    ),
    "create_ticket": (
        "Open a ticket: the {item} is {problem}.",
        "Create a ticket. The {item} is {problem}.",
        "Please open a ticket because the {item} is {problem}.",
        "Open a support ticket: {item} {problem}",
    ),
}
CONTACTS: Final = ("My e-mail is {email_full}.", "Write to {email_full}.", "Call me at {phone_full}.")
