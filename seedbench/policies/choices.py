"""Decoding restricted to a list of responses: a prefix tree over their tokens.

Each choice is tokenised by itself, without special tokens, and closed by one end token, so that a choice that begins
another can still be told apart. Where only one token may follow, nothing is drawn: the run is forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seedbench.errors import SeedBenchError

# A node maps the ids that may follow to their nodes; a node without ids is the end of a choice.
_Node = dict[int, Any]


class ChoiceTree:
    """The responses that are allowed, as token sequences. Repeated choices count once.

    Raises:
        SeedBenchError: no choice at all, or a tokenizer without an end-of-sequence token.
    """

    def __init__(self, tokenizer: Any, choices: Sequence[str], *, end: int | None = None) -> None:
        """`end`: the id that closes a choice; None: the tokenizer's end-of-sequence token."""
        end = tokenizer.eos_token_id if end is None else end
        if end is None:
            raise SeedBenchError(
                "the tokenizer names no end-of-sequence token, with which restricted decoding closes a choice: set"
                " eos_token in tokenizer_config.json."
            )
        distinct = list(dict.fromkeys(choices))
        if not distinct:
            raise SeedBenchError(
                "decode is 'admissible', but the environment offers no choice: use decode = 'free', or an environment"
                " that lists its admissible commands."
            )
        encoded = tokenizer(distinct, add_special_tokens=False)["input_ids"]
        self._paths = {choice: (*ids, end) for choice, ids in zip(distinct, encoded, strict=True)}
        self._texts: dict[tuple[int, ...], str] = {}
        self._root: _Node = {}
        for choice, path in self._paths.items():
            self._texts.setdefault(path, choice)
            node = self._root
            for token in path:
                node = node.setdefault(token, {})

    def path(self, choice: str) -> tuple[int, ...]:
        """The tokens of a choice, its end token included. Raises KeyError for what is none of the choices."""
        return self._paths[choice]

    def text(self, ids: Sequence[int]) -> str | None:
        """The choice that `ids` (end token included) spell in full; None for anything else."""
        return self._texts.get(tuple(ids))

    def allowed(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """The ids that may follow `prefix`, sorted; none behind a complete choice.

        Raises KeyError where no choice begins with `prefix`.
        """
        return tuple(sorted(self._node(prefix)))

    def forced(self, prefix: Sequence[int]) -> list[int]:
        """The run of ids behind `prefix` of which each is the only one allowed; empty where there is a choice."""
        node, run = self._node(prefix), []
        while len(node) == 1:
            ((token, node),) = node.items()
            run.append(token)
        return run

    def allowed_along(self, ids: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """What was allowed at each position of `ids`, (R,) tuples; `ids` must be a path of the tree or begin one."""
        node, along = self._root, []
        for token in ids:
            along.append(tuple(sorted(node)))
            node = node[token]
        return tuple(along)

    def _node(self, prefix: Sequence[int]) -> _Node:
        node = self._root
        for token in prefix:
            node = node[token]
        return node
