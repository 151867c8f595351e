"""A policy file, a Hugging Face model, guarded texts. Runs offline with the model that ships."""

from pathlib import Path

from nco_guard import Guard
from nco_guard.demo import PROMPTS, load

model, tokenizer = load()  # any AutoModelForCausalLM and its tokenizer
guard = Guard.from_file(Path(__file__).parent / "policy.yaml")

result = guard.generate(model, tokenizer, PROMPTS["pii"][:4], max_new_tokens=48)
for text, outcome, report in zip(result.texts, result.outcomes, result.reports, strict=True):
    print(f"[{outcome}, {'clean' if report.ok else 'NOT CLEAN'}] {text}")
