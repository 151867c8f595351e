"""Masks for a decoding loop of one's own: what engines other than transformers need."""

import torch

from nco_guard import Guard
from nco_guard.demo import PROMPTS, load

model, tokenizer = load()
bound = Guard.from_presets("pii").bind(tokenizer, vocab_width=model.config.vocab_size)

budget = 48
prompt = tokenizer.apply_chat_template(PROMPTS["pii"][0], add_generation_prompt=True, return_tensors="pt")
ids = prompt["input_ids"] if not isinstance(prompt, torch.Tensor) else prompt
session = bound.session()
for step in range(budget):
    with torch.no_grad():
        logits = model(ids).logits[0, -1]
    # How many tokens may follow this one: near the limit the text must be able to end in time.
    logits[torch.tensor(session.forbidden_ids(remaining=budget - step - 1))] = float("-inf")
    logits -= torch.from_numpy(session.penalties())
    token = int(logits.argmax())
    session.advance(token)  # raises if the token is forbidden
    if session.ended:
        break
    ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
print(session.text)
