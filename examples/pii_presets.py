"""Ready-made rules for personal data, and what their options change. Runs offline with the model that ships."""

from nco_guard import Guard, Policy
from nco_guard.demo import PROMPTS, load

CONFIGURATIONS = {
    "everything": [{"preset": "pii"}],
    "only e-mail and telephone": [{"preset": "pii", "only": ["email", "phone_nanp", "phone_e164"]}],
    "all but addresses of computers": [{"preset": "pii", "except": ["ipv4", "ipv6", "mac"]}],
    # A number that only looks like a card or an IBAN may be written.
    "cards and IBANs only if valid": [{"preset": "pii", "valid_only": True}],
    # Soft: matches become unlikely instead of impossible.
    "discouraged, not forbidden": [{"preset": "pii", "penalty": 4}],
    # Nothing is changed; the verifier counts.
    "only watched": [{"preset": "pii", "monitor": True}],
    "the four formats of the paper": [{"preset": "pii_paper"}],
    "together with keys and oaths": [
        {"preset": "pii"},
        {"preset": "secrets"},
        {"preset": "ldnoobw", "languages": ["en"]},
    ],
}

model, tokenizer = load()
prompts = PROMPTS["pii"][:4]
everything = Guard(Policy.from_presets("pii"))
for name, rules in CONFIGURATIONS.items():
    guard = Guard(Policy(name=name, rules=rules))
    result = guard.generate(model, tokenizer, prompts, max_new_tokens=48)
    kept = all(report.ok for report in result.reports)
    left = sum(len(everything.verify(text).findings) for text in result.texts)
    print(
        f"{name}: {len(guard.policy.rules)} rules, policy kept: {kept}, personal data in the answers: {left}"
    )
