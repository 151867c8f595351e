"""What rules and policies have in common: frozen, strict, silent about what they forbid, with errors of our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from interegular.fsm import FSM
from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from nco_guard.errors import PolicyError, parted
from nco_guard.policy._errors import typed_error

__all__ = ["Model"]


class Model(BaseModel):
    """The base of rules and policies: whatever is wrong with one is a `PolicyError` that repeats no value."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, arbitrary_types_allowed=True
    )

    # Hidden from type checkers, which take the fields' own types from pydantic instead.
    if not TYPE_CHECKING:

        def __init__(self, /, **data: Any) -> None:
            with parted():
                try:
                    super().__init__(**data)
                except ValidationError as error:
                    raise _typed(type(self), error, data) from None

        def __setattr__(self, name: str, value: Any) -> None:
            raise PolicyError(
                "rules and policies cannot be changed; make a copy with model_copy(update={...})", field=name
            )

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Like pydantic's, with a `PolicyError` for whatever is wrong."""
        with parted():
            try:
                return super().model_validate(obj, **options)
            except ValidationError as error:
                raise _typed(cls, error, obj) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Like pydantic's, with a `PolicyError` for whatever is wrong."""
        with parted():
            try:
                return super().model_validate_json(json_data, **options)
            except ValidationError as error:
                raise _typed(cls, error, None) from None

    @model_validator(mode="wrap")
    @classmethod
    def _without_input(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """In a model of somebody else's, too, errors do not repeat what was given."""
        try:
            return handler(data)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
        lines: list[Any] = [
            {"type": one["type"], "loc": one["loc"], "ctx": one.get("ctx", {}), "input": _HIDDEN}
            for one in details
        ]
        raise ValidationError.from_exception_data(cls.__name__, lines, hide_input=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """For `repr`, `str`, rich and pytest: how much there is of what is forbidden, never what it is."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name in _SHOWN and value != field.default:
                yield name, value
            elif name in _COUNTED and value is not None:
                yield name, _Counted(value)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed; unlike pydantic's, the changed fields are checked."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **(update or {})})

    def __getstate__(self) -> dict[Any, Any]:
        # What was worked out from the fields is kept in the object, and is worked out again elsewhere.
        fields = {name: vars(self)[name] for name in type(self).model_fields}
        return {**super().__getstate__(), "__dict__": fields}

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # Nothing in it can change, and a copy of interegular's anything_else would no longer be itself.
        return self


# What is shown of rules and policies: nothing that the owner forbids, and no text for people, which may quote it.
_SHOWN = frozenset(
    {
        *(
            "id",
            "name",
            "penalty",
            "monitor",
            "case",
            "whole_word",
            "normalize",
            "confusables",
            "json_escapes",
        ),
        *("context", "checksum", "on_dead_end", "on_audit_failure", "when_blocked", "rewind"),
    }
)
_COUNTED = frozenset({"strings", "regex", "stop_at", "fsm", "fallback", "rules"})
_HIDDEN = "(not shown)"


class _Counted:
    """Stands for a value of a policy where it is shown."""

    def __init__(self, value: Any) -> None:
        if isinstance(value, str):
            count, unit = len(value), "character"
        elif isinstance(value, FSM):
            count, unit = len(value.states), "state"
        else:
            count, unit = len(value), "rule" if value and isinstance(value[0], BaseModel) else "string"
        self._shown = f"<{count:,} {unit}{'' if count == 1 else 's'}>"

    def __repr__(self) -> str:
        return self._shown


def _typed(model: type[BaseModel], error: ValidationError, data: Any) -> PolicyError:
    rule_id = data.get("id") if isinstance(data, Mapping) and "id" in model.model_fields else None
    return typed_error(error, model.model_fields, rule_id if isinstance(rule_id, str) else None, data)
