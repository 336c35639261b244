"""The sentences of a game: an interpreter for the text grammar that every ALFWorld game file carries.

A game's grammar names, for every action, a command template and a feedback symbol, and for every symbol
a list of productions, each with an optional condition over the facts. This module compiles such a grammar
once into closures over an engine state; all games of a data release share one grammar apart from the task
sentence, so that compilation is paid once a process.

The rules are those of TextWorld 1.7.0 (`textworld.envs.pddl.textgen`), as observed on the reference engine:

* the first production whose condition has an answer is used;
* a query enumerates facts in sorted order, literal by literal, and two variables never share a value;
* `not_p(x)` holds only where `p(x)` was true once and was deleted since: negations are not stored at the start;
* white space at the start of a production is dropped, and so are tabs between its parts;
* text in double quotes stands for itself; text after a character that cannot be parsed is dropped.

Anything outside this language is refused with a `GrammarError` when the game is loaded, never at a step.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from seedbench_envs.alfworld.query import Binding, Literal, QueryError, Search, compile_query, stop

if TYPE_CHECKING:
    from seedbench_envs.alfworld.state import State

Render = Callable[["State", Binding], str]


class GrammarError(ValueError):
    """The game's grammar uses something this interpreter does not know."""


@dataclass(frozen=True, slots=True)
class Production:
    """One alternative of a symbol: its condition (empty: always) and its right-hand side."""

    condition: str
    rhs: str


@dataclass(frozen=True, slots=True)
class ActionText:
    """Command template and feedback template of an action."""

    template: str
    feedback: str


# The task sentence is the one part that differs from game to game.
_TASK = re.compile(r'("task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*)"((?:[^"\\]|\\.)*)"')
_PIECE = re.compile(
    r"\s*(?:(?P<action>action)\s+(?P<name>[\w/-]+)\s*\{"
    r'|(?P<key>grammar|template|feedback|pddl)\s*::\s*(?:"""(?P<block>.*?)"""|"(?P<text>[^"]*)")\s*;'
    r"|(?P<close>\})|(?P<comment>\#[^\n]*))",
    re.S,
)
_LITERAL = re.compile(r'"([^;|"<>\[\]#{}]*)"|([^;|"<>\[\]#{}]+)')
# Dropped between parts: tabs and, at the beginning of a line, white space and `//` comments.
_DROPPED = re.compile(r"(?:^(?:\s+|//.*\n?)|\t+)*", re.M)
_SYMBOL = re.compile(r"#([\w()/!<>\-\s,.]+)#")
_CONDITIONAL = re.compile(
    r"\{(?:#(?P<symbol>[\w()/!<>\-\s,.]+)#|(?P<expr>[^|\[\]{}\n<>]+?))\s*(?:\|\s*(?P<given>[^;|{}\n\[\]#]+))?\}"
)


def split_task(grammar: str) -> tuple[str, str]:
    """Split a grammar into the part that games share and the task sentence.

    >>> split_task('"task": [{"rhs": "Your task is to: look."}]')
    ('"task": [{"rhs": ""}]', 'Your task is to: look.')
    """
    match = _TASK.search(grammar)
    if match is None:
        raise GrammarError("the grammar has no task sentence")
    shared = f'{grammar[: match.end(1)]}""{grammar[match.end() :]}'
    sentence = json.loads(f'"{match[2]}"')
    words, at = [], _skip(sentence, 0)
    while literal := _LITERAL.match(sentence, at):
        words.append(literal[literal.lastindex or 0])
        at = _skip(sentence, literal.end())
    if _SYMBOL.match(sentence, at) or _CONDITIONAL.match(sentence, at + (sentence[at : at + 1] == "[")):
        raise GrammarError("the task sentence is more than plain text")
    return shared, "".join(words)


def _skip(text: str, at: int) -> int:
    match = _DROPPED.match(text, at)
    return match.end() if match else at


class Grammar:
    """A compiled grammar: `feedback` and `command` renderers for each action, and the introduction.

    Args:
        text: the shared part of a game's grammar, as `split_task` gives it.
        parameters: action name in lower case -> its parameters in order, as (name, type) pairs.

    Raises:
        GrammarError: for anything outside the language of this module.
    """

    def __init__(self, text: str, parameters: Mapping[str, tuple[tuple[str, str], ...]]) -> None:
        self._actions, self._rules = _parse(text)
        self._compiled: dict[tuple[str, tuple[str, ...]], Render | None] = {}
        self.intro = self._text("#intro#", {})
        self.feedback: dict[str, Render] = {}
        self.command: dict[str, Render] = {}
        for action, names in parameters.items():
            if action not in self._actions:
                raise GrammarError(f"the grammar has no action '{action}'")
            bound = dict(names)
            self.command[action] = self._text(self._actions[action].template, bound)
            self.feedback[action] = self._text(self._actions[action].feedback, bound)

    def _text(self, rhs: str, bound: Mapping[str, str]) -> Render:
        text: Render = _Constant("")
        for part in reversed(list(self._parts(rhs, bound))):
            if isinstance(part, _Constant):
                text = _prefixed(part.text, text)
            elif isinstance(text, _Constant) and not text.text:
                text = part
            else:
                text = _joined(part, text)
        return text

    def _parts(self, text: str, bound: Mapping[str, str]) -> Iterator[Render]:
        at = _skip(text, 0)
        while at < len(text):
            if text[at] == "[":
                match = _CONDITIONAL.match(text, at + 1)
                if match is None or text[match.end() : match.end() + 1] != "]":
                    raise GrammarError(f"cannot read the list in {text!r}")
                yield self._listing(match, bound)
                at = match.end() + 1
            elif text[at] == "{":
                match = _CONDITIONAL.match(text, at)
                if match is None:
                    raise GrammarError(f"cannot read the expression in {text!r}")
                yield self._joined(match, bound)
                at = match.end()
            elif match := _SYMBOL.match(text, at):
                yield self._symbol(match[1], bound)
                at = match.end()
            elif match := _LITERAL.match(text, at):
                yield _Constant(match[match.lastindex or 0])
                at = match.end()
            else:
                break  # what cannot be parsed ends the production, as upstream
            at = _skip(text, at)

    def _symbol(self, symbol: str, bound: Mapping[str, str]) -> Render:
        """The first production of `symbol` whose condition holds; compiled once per set of bound variables."""
        if symbol == "task":
            return lambda state, binding: state.game.task_sentence
        key = (symbol, tuple(sorted(bound)))
        if key in self._compiled:
            compiled = self._compiled[key]
            if compiled is None:  # with the same variables bound it would choose itself again, without end
                raise GrammarError(f"the symbol '#{symbol}#' stands in its own productions")
            return compiled
        self._compiled[key] = None
        rules = self._rules.get(symbol)
        if not rules:
            raise GrammarError(f"the grammar has no symbol '#{symbol}#'")
        choices: list[tuple[Search | None, Render]] = []
        for rule in rules:
            condition = self._query(rule.condition, bound)[0] if rule.condition else None
            choices.append((condition, self._text(rule.rhs, bound)))
            if condition is None:
                break
        else:
            raise GrammarError(f"every production of '#{symbol}#' has a condition; one must always apply")
        if choices[0][0] is None:
            self._compiled[key] = choices[0][1]
            return choices[0][1]

        def render(state: State, binding: Binding) -> str:
            for condition, text in choices:
                if condition is None or condition(state, binding, stop):
                    return text(state, binding)
            raise AssertionError  # the last choice has no condition

        self._compiled[key] = render
        return render

    def _items(self, match: re.Match[str], bound: Mapping[str, str]) -> Callable[[State, Binding], list[str]]:
        """All renderings of `{expression | condition}`, one for each answer of the condition."""
        given = match["given"]
        search, scope = self._query(given, bound) if given else (None, bound)
        inner = self._symbol(match["symbol"], scope) if match["symbol"] else _expression(match["expr"], scope)
        if search is None:
            return lambda state, binding: [inner(state, binding)]

        def items(state: State, binding: Binding) -> list[str]:
            found: list[str] = []
            search(state, binding, lambda answer: found.append(inner(state, answer)))
            return found

        return items

    def _joined(self, match: re.Match[str], bound: Mapping[str, str]) -> Render:
        items = self._items(match, bound)
        if not match["given"]:
            return self._symbol(match["symbol"], bound) if match["symbol"] else _expression(match["expr"], bound)
        return lambda state, binding: "".join(items(state, binding))

    def _listing(self, match: re.Match[str], bound: Mapping[str, str]) -> Render:
        items = self._items(match, bound)
        nothing = self._symbol("list_empty", bound)
        separator = self._symbol("list_separator", bound)
        last_separator = self._symbol("list_last_separator", bound)

        def render(state: State, binding: Binding) -> str:
            found = items(state, binding)
            if len(found) > 1:
                head = separator(state, binding).join(found[:-1])
                return f"{head}{last_separator(state, binding)}{found[-1]}"
            return found[0] if found else nothing(state, binding)

        return render

    def _query(self, condition: str, bound: Mapping[str, str]) -> tuple[Search, Mapping[str, str]]:
        literals, types = _condition(condition)
        scope = {**bound, **types}
        for name, kind in types.items():
            if kind not in _TYPES or bound.get(name, kind) != kind:
                raise GrammarError(f"the variable '{name}' has a wrong type (in the condition {condition!r})")
        try:
            return compile_query(literals, scope, frozenset(bound), distinct=True), scope
        except QueryError as error:
            raise GrammarError(f"{error} (in the condition {condition!r})") from error


@lru_cache(maxsize=64)
def compile_grammar(text: str, parameters: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]) -> Grammar:
    """`Grammar`, compiled once for each shared text."""
    return Grammar(text, dict(parameters))


@dataclass(frozen=True, slots=True)
class _Constant:
    """A piece of text that depends on nothing."""

    text: str

    def __call__(self, state: State, binding: Binding) -> str:
        return self.text


def _joined(first: Render, second: Render) -> Render:
    return lambda state, binding: first(state, binding) + second(state, binding)


def _prefixed(prefix: str, rest: Render) -> Render:
    """`prefix + rest`, joined now where both are constant."""
    if isinstance(rest, _Constant):
        return _Constant(prefix + rest.text)
    return lambda state, binding: prefix + rest(state, binding)


def _parse(text: str) -> tuple[dict[str, ActionText], dict[str, list[Production]]]:
    actions: dict[str, ActionText] = {}
    rules: dict[str, Any] = {}
    name = ""
    fields: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip()):
        match = _PIECE.match(text, at)
        if match is None:
            raise GrammarError(f"cannot read the grammar at {text[at : at + 40].strip()!r}")
        at = match.end()
        if match["action"]:
            name, fields = match["name"].lower(), {}
        elif match["close"]:
            actions[name] = ActionText(fields.get("template", ""), fields.get("feedback", ""))
            name = ""
        elif match["key"] == "grammar":
            lines = (line for line in (match["block"] or "").split("\n") if not line.lstrip().startswith("#"))
            try:
                rules.update(json.loads("\n".join(lines)))
            except (ValueError, TypeError, RecursionError) as error:
                raise GrammarError(f"a grammar block is not a JSON object: {error}") from error
        elif match["key"]:
            fields[match["key"]] = match["text"] if match["text"] is not None else match["block"]
    try:
        productions = {symbol: [_production(rule) for rule in alternatives] for symbol, alternatives in rules.items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise GrammarError("a production has no right-hand side, or one that is no text") from error
    return actions, productions


def _production(rule: dict[str, Any]) -> Production:
    condition, rhs = rule.get("condition", ""), rule["rhs"]
    if not isinstance(condition, str) or not isinstance(rhs, str):
        raise TypeError("no text")
    return Production(condition, rhs)


_TYPES = frozenset({"agent", "location", "receptacle", "object", "otype", "rtype"})
_ATOM = re.compile(r"\s*([\w-]+)\(([^()]*)\)\s*")


@lru_cache(maxsize=1024)
def _condition(condition: str) -> tuple[tuple[Literal, ...], dict[str, str]]:
    """`p(x:t, y:u) & q(x:t)` -> its literals and the types of its variables."""
    literals = []
    types: dict[str, str] = {}
    for part in condition.split("&"):
        match = _ATOM.fullmatch(part)
        if match is None:
            raise GrammarError(f"cannot read the condition {condition!r}")
        names = []
        for argument in filter(None, (piece.strip() for piece in match[2].split(","))):
            name, _, kind = (piece.strip() for piece in argument.partition(":"))
            names.append(name)
            types[name] = kind or name
        literals.append(Literal(match[1], tuple(names)))
    return tuple(literals), types


def _expression(source: str, bound: Mapping[str, str]) -> Render:
    """Compile `o.indefinite + ' ' + o.name`, `r.name or r.id`, `{r}`: attributes, +, or, and strings only."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:  # ValueError: a null character
        raise GrammarError(f"cannot read the expression {source!r}") from error
    return _node(tree, source, bound)


def _node(node: ast.expr, source: str, bound: Mapping[str, str]) -> Render:
    match node:
        case ast.Constant(value=str(text)):
            return _Constant(text)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            first, second = _node(left, source, bound), _node(right, source, bound)
            if isinstance(first, _Constant):
                return _prefixed(first.text, second)
            return _joined(first, second)
        case ast.BoolOp(op=ast.Or(), values=values):
            options = [_node(value, source, bound) for value in values]
            return lambda state, binding: next((text for option in options if (text := option(state, binding))), "")
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name), attr="name") if name in bound:
            return lambda state, binding: state.game.names[binding[name]]
        case ast.Attribute(value=ast.Name(id=name), attr="id") if name in bound:
            return lambda state, binding: state.game.ids[binding[name]]
        case ast.Attribute(value=ast.Name(id=name), attr="indefinite") if name in bound:
            return _Constant("a")
        case ast.Attribute(value=ast.Name(id=name), attr="definite") if name in bound:
            return _Constant("the")
    raise GrammarError(f"cannot evaluate the expression {source!r}")
