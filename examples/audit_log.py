"""An audit log of guarded generation: what was enforced, without a word of the text."""

import tempfile
from collections import Counter
from pathlib import Path

from nco_guard import Guard
from nco_guard.audit import JsonLinesSink, read_events
from nco_guard.demo import PROMPTS, load

model, tokenizer = load()
path = Path(tempfile.mkdtemp()) / "audit.jsonl"
with JsonLinesSink(path) as sink:
    guard = Guard.from_presets("pii", "ldnoobw", audit=sink)
    guard.generate(model, tokenizer, PROMPTS["pii"][:4], max_new_tokens=48)

events = read_events(path).events
print(Counter(event.kind for event in events))
for event in events:
    if event.kind == "intervention":
        print(f"sequence {event.sequence}, step {event.step}: {', '.join(event.rule_ids)}")
