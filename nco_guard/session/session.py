"""One sequence under a guard, for whoever decodes token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from nco_guard.arguments import whole
from nco_guard.errors import (
    ArgumentError,
    ArgumentValueError,
    ForbiddenTokenError,
    GenerationError,
    TokenizerError,
)
from nco_guard.masking import ENDED, VIOLATED
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.session.state import Bound, Context, TextState

if TYPE_CHECKING:
    from nco_guard.analysis import Explanation, TokenExplanation

__all__ = ["Session"]


class Session:
    """One sequence under a guard.

    The guarantee holds for whoever only advances by tokens that `mask()` allows and ends only where `may_end`.
    `fork` copies, `rollback` goes back; both cost O(tokens) at most. Pickled it is its guard, context and
    tokens, which are read again where it is unpickled.

    Examples:
        >>> policy = Policy(name="p", rules=[StringRule(id="letter", strings=["a"])])
        >>> session = Guard(policy).bind(tokenizer).session()
        >>> for token in tokenizer("One", add_special_tokens=False).input_ids:
        ...     session.advance(token)
        >>> session.text, session.may_end
        ('One', True)
        >>> bool(session.mask()[tokenizer("a", add_special_tokens=False).input_ids[0]])
        True
    """

    def __init__(self, state: TextState) -> None:
        if not isinstance(state, TextState):
            raise ArgumentError("state: a session is made by guard.bind(tokenizer).session(context)")
        self._text = state

    def __reduce__(self) -> tuple[Any, ...]:
        return _replayed, (self._text.bound, self._text.context, self.token_ids)

    def __copy__(self) -> Session:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self.fork()

    @property
    def _width(self) -> int:
        return self._text.bound.vocabulary.width

    def forbidden_ids(self, remaining: int | None = None) -> NDArray[np.int64]:
        """Sorted ids of the forbidden tokens, int64; shared, read-only.

        `remaining`: how many tokens may still follow the next one, where that is known; near the limit, tokens after
        which the text could not end in time are forbidden too. Errors: `ArgumentError` for what is no whole number,
        `ArgumentValueError` for a negative one.
        """
        left = _checked_remaining(remaining)
        return self._text.ask(lambda tables, state: tables.forbidden(state, left))

    def mask(self, remaining: int | None = None) -> NDArray[np.bool_]:
        """bool [vocab_width], True = forbidden. Cost: O(vocab_width); `forbidden_ids` is the sparse form."""
        mask = np.zeros(self._width, bool)
        mask[self.forbidden_ids(remaining)] = True
        return mask

    def penalties(self) -> NDArray[np.float32]:
        """float32 [vocab_width]: what soft rules subtract from each logit."""
        amounts = np.zeros(self._width, np.float32)
        ids, values = self._text.ask(lambda tables, state: tables.penalties(state))
        amounts[ids] = values
        return amounts

    def advance(self, token_id: int) -> None:
        """Append a token.

        Errors: `ForbiddenTokenError` for one that the mask forbids (the session stays as it was), `ArgumentError` for
        what is no token id, `GenerationError` after the end.
        """
        token_id = self._checked_token(token_id)
        tables, before, after = self._text.advance(token_id)
        if before == ENDED:
            raise GenerationError("this sequence has ended; call rollback() or start another session")
        if after == VIOLATED:
            rules = ", ".join(tables.rules_at_fault(before, token_id)) or "no token of the tokenizer"
            raise ForbiddenTokenError(f"token {token_id} is forbidden at step {len(self._text.ids)}: {rules}")

    def _checked_token(self, token_id: object) -> int:
        token = whole("token_id", token_id, "give the id of one token, as int(logits.argmax())")
        if not 0 <= token < self._width:
            raise ForbiddenTokenError(f"token {token} is outside the vocabulary of {self._width} columns")
        return token

    @overload
    def explain(self, token_id: int, *, remaining: int | None = None) -> TokenExplanation: ...
    @overload
    def explain(
        self, token_id: None = None, *, remaining: int | None = None, limit: int = 20
    ) -> Explanation: ...
    def explain(
        self, token_id: int | None = None, *, remaining: int | None = None, limit: int = 20
    ) -> TokenExplanation | Explanation:
        """Why a token is forbidden here, or, without one, what all rules forbid here and why.

        Agrees with `mask(remaining)` for every token: one is forbidden if and only if some reason given forbids it.
        What comes back holds rule ids and offsets in `text`, never text; no offsets where borders cut it. `limit`: how
        many forbidden tokens the whole explanation shows; all are counted.

        Cost: for developers, not for decoding. At first an automaton for each rule; then each rule's steps over the
        text and over what is forbidden (over the vocabulary, if rules are soft or monitored). Errors:
        `ForbiddenTokenError` for a token outside the vocabulary, `ArgumentValueError` for a negative limit.
        """
        bound, remaining = self._text.bound, _checked_remaining(remaining)
        context, ids = bound.context_bytes(self._text.context), self._text.ids
        tables, state, forbidden = self._text.ask(
            lambda tables, state: (tables, state, tables.forbidden(state, remaining))
        )
        tokens_left = HORIZON if remaining is None else min(remaining, HORIZON)
        if token_id is not None:
            token_id = self._checked_token(token_id)
            if state == ENDED:
                from nco_guard.analysis import TokenExplanation

                return TokenExplanation(token_id, False, ())
            token = np.array([token_id], np.int64)
            masked = np.isin(token, forbidden)
            with bound.explaining() as explainer:
                return explainer.tokens(context, ids, token, masked, tokens_left)[0]
        limit = whole("limit", limit, "give how many tokens are to be shown", least=0)
        late = np.setdiff1d(forbidden, tables.forbidden(state)) if tokens_left < HORIZON else forbidden[:0]
        with bound.explaining() as explainer:
            return explainer.everything(
                context, ids, forbidden, late, tokens_left, ended=state == ENDED, limit=limit
            )

    @property
    def may_end(self) -> bool:
        """Whether the text may end here (and so whether end-of-sequence is allowed)."""
        return self._text.ask(lambda tables, state: tables.may_end(state))

    @property
    def dead_end(self) -> bool:
        """Whether nothing is allowed here, end-of-sequence included. Never so for one who kept to the masks, unless
        the policy leaves no text at all that this vocabulary can write.
        """
        return self._text.ask(
            lambda tables, state: state != ENDED and len(tables.forbidden(state)) == self._width
        )

    @property
    def ended(self) -> bool:
        """Whether end-of-sequence was the last token."""
        return self._text.ask(lambda _, state: state == ENDED)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens so far."""
        return tuple(self._text.ids)

    @property
    def text(self) -> str:
        """The text so far, as the tokenizer decodes it; an unfinished character at its end shows as U+FFFD."""
        return self._text.bound.vocabulary.text_of(self._text.ids)

    def with_guard(self, bound: Bound) -> Session:
        """This text under another bound guard, e.g. one with a rule more; this session stays as it is.

        Cost: a step a token. Errors: `ForbiddenTokenError` if the text breaks that guard's policy already,
        `TokenizerError` if it is bound to another vocabulary.
        """
        own = self._text.bound
        if not isinstance(bound, type(own)):
            raise ArgumentError(
                f"bound: {type(bound).__name__} is no bound guard; give guard.bind(tokenizer)"
            )
        if bound.vocabulary.digest != own.vocabulary.digest:
            raise TokenizerError(
                "the other guard is bound to another vocabulary; bind it to the same tokenizer"
            )
        return _replayed(bound, self._text.context, self.token_ids)

    def fork(self) -> Session:
        """An independent copy."""
        return Session(self._text.fork())

    def rollback(self, n: int = 1) -> None:
        """Take back the last n tokens.

        Errors: `ArgumentValueError` for n outside 0 to the number of tokens, `ArgumentError` for what is no whole
        number.
        """
        length = len(self._text.ids)
        if not 0 <= whole("n", n, "give how many tokens are to be taken back") <= length:
            raise ArgumentValueError(f"n must be between 0 and {length}, got {n}")
        self._text.cut(length - n)


def _replayed(bound: Bound, context: Context, ids: tuple[int, ...]) -> Session:
    session = Session(TextState(bound, context))
    for token in ids:
        session.advance(token)
    return session


def _checked_remaining(remaining: int | None) -> int | None:
    if remaining is None:
        return None
    remedy = "give how many tokens may follow the next one, or None where no limit is known"
    return whole("remaining", remaining, remedy, least=0)
