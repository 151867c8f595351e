"""Random schemas of what shapes enforce, and rules that bear on what is written of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from nco_guard import Policy, RegexRule, StringRule

__all__ = ["policies", "schemas"]

_WORDS = st.sampled_from(["a", "cat", "ass", "12", "x y", "é", 'q"t', "Ann", "1@x.co"])
_STRINGS: st.SearchStrategy[Any] = st.one_of(
    st.just({"type": "string"}),
    st.integers(0, 3).flatmap(
        lambda low: st.integers(low + 1, 8).map(
            lambda high: {"type": "string", "minLength": low, "maxLength": high}
        )
    ),
    st.sampled_from(["^[a-d]{2,4}$", "^(ca|as)[st]$", r"^\d{1,3}-[a-z]$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.sampled_from(["date", "uuid", "ipv4"]).map(lambda name: {"type": "string", "format": name}),
)
_NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([{"type": "integer"}, {"type": "number"}, {"type": "integer", "multipleOf": 3}]),
    st.integers(-50, 50).flatmap(
        lambda low: st.integers(low, 300).map(
            lambda high: {"type": "integer", "minimum": low, "maximum": high}
        )
    ),
    st.just({"type": "number", "minimum": 0, "exclusiveMaximum": 2}),
)
_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.lists(st.one_of(_WORDS, st.integers(-99, 999), st.none(), st.booleans()), min_size=1, max_size=4).map(
        lambda values: {"enum": values}
    ),
    st.one_of(_WORDS, st.integers(0, 99)).map(lambda value: {"const": value}),
    st.sampled_from([{"type": "boolean"}, {"type": ["string", "null"]}]),
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(["name", "age", "k", "cat", "note"])
    objects = st.dictionaries(keys, inner, max_size=3).flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties) or ["k"])).map(
            lambda wanted: {
                "type": "object",
                "properties": properties,
                "required": sorted(wanted & set(properties)),
            }
        )
    )
    arrays = st.integers(0, 1).flatmap(
        lambda low: inner.map(lambda items: {"type": "array", "items": items, "minItems": low, "maxItems": 3})
    )
    return st.one_of(
        objects,
        arrays,
        inner.map(lambda values: {"type": "object", "additionalProperties": values}),
        st.lists(inner, min_size=1, max_size=2).map(lambda some: {"anyOf": some}),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda some: {"type": "array", "prefixItems": some, "items": False, "minItems": len(some)}
        ),
    )


schemas: st.SearchStrategy[Any] = st.recursive(st.one_of(_STRINGS, _NUMBERS, _VALUES), _larger, max_leaves=5)

_REGEXES = [
    r"\bass\b",
    r"\d{3}",
    r"\d{4}-\d{2}",
    "cat",
    r"[a-z]@[a-z]",
    r"(?i)ANN",
    r"1\.5",
    "é",
    r"^\W+$",
    "0{2}",
]
policies: st.SearchStrategy[Policy] = st.lists(
    st.sampled_from(_REGEXES), min_size=1, max_size=3, unique=True
).map(
    lambda patterns: Policy(
        name="random",
        rules=[
            StringRule(id="words", strings=["bb", "true"]),
            *(RegexRule(id=f"r{number}", regex=pattern) for number, pattern in enumerate(patterns)),
        ],
    )
)
