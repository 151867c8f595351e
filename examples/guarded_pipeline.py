"""A transformers pipeline, guarded: give the wrapped one to whatever expects a pipeline."""

from transformers import pipeline

from nco_guard import Guard
from nco_guard.demo import PROMPTS, load

model, tokenizer = load()
pipe = Guard.from_presets("ldnoobw").wrap(pipeline("text-generation", model=model, tokenizer=tokenizer))
for answer in pipe(PROMPTS["profanity"][:2], max_new_tokens=48, return_full_text=False):
    print(answer[0]["generated_text"])
