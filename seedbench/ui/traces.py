"""How a terminal shows the traces of a training run: `seedbench view RUN`."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from seedbench.traces import Token, Trace, read_traces
from seedbench.ui.tally import one_line
from seedbench.ui.text import inert
from seedbench.ui.viewer import TEXT_LIMIT, Selection, Shown, render_episode

END = "∎"
"""Stands for the end-of-sequence token, which has no text."""

EDGES = (0.1, 0.5, 2.0)
"""|Delta| in nats from which a token has the first, second and third shade; under the first it has none."""
# Text and ground are both given, so that a shade reads alike on dark and on light terminals.
_LIKELIER = ("#000000 on #d6e6f7", "#000000 on #7fb0e3", "#ffffff on #1d5fae")
_LESS_LIKELY = ("#000000 on #f8dad5", "#000000 on #ea8f84", "#ffffff on #a92a22")
_LIKELIER_16 = ("bright_blue", "black on bright_blue", "bright_white on blue")
_LESS_LIKELY_16 = ("bright_red", "black on bright_red", "bright_white on red")


class TraceIndex:
    """The selected traces of an update, as `viewer.page` takes them. Raises what `read_traces` raises."""

    def __init__(self, folder: Path, update: int | None = None, selection: Selection | None = None) -> None:
        traces = read_traces(folder, update)
        self.outcomes = Counter(trace.episode.outcome for trace in traces)
        self.families = Counter(trace.episode.family for trace in traces)
        self._traces = [trace for trace in traces if (selection or Selection()).matches(trace.episode)]

    def __len__(self) -> int:
        return len(self._traces)

    def render(self, number: int, console: Console, position: str) -> RenderableType:
        """Trace `number`, from 0, as the console can show it."""
        return render_trace(self._traces[number], console, position)


def render_trace(trace: Trace, console: Console, position: str = "") -> RenderableType:
    """A trajectory for this console: task, reward, skill and legend, then every turn with its tokens shaded by Delta.

    Without colours the tokens whose gate is over one half stand between « and ».
    """
    shades = _shades(console)
    shown = [
        Shown(_remark(advantage), figures(tokens), _response(tokens, shades)) if tokens else None
        for advantage, tokens in zip(trace.advantage, trace.tokens, strict=True)
    ]
    return render_episode(trace.episode, console.width, position, facts=trace_facts(trace, shades), shown=shown)


Shades = tuple[Sequence[str], Sequence[str]]
"""Styles for Delta > 0 and for Delta < 0, from faint to strong."""


def _shades(console: Console) -> Shades | None:
    """None where the console shows no colours."""
    if console.no_color or console.color_system is None:
        return None
    few = console.color_system in ("standard", "windows")
    return (_LIKELIER_16, _LESS_LIKELY_16) if few else (_LIKELIER, _LESS_LIKELY)


def _shade(delta: float, shades: Shades) -> str:
    level = bisect_right(EDGES, abs(delta))
    return shades[delta < 0][level - 1] if level else ""


def trace_facts(trace: Trace, shades: Shades | None) -> dict[str, Text]:
    """What the head of a trace says, by name."""
    facts = {
        "update": Text(f"{trace.update:,}, group {trace.group}"),
        "reward": Text(f"{trace.reward:g}"),
    }
    notes = dict(trace.notes)
    skill, analysis = notes.pop("skill", None), notes.pop("analysis", None)
    if skill:
        facts["skill"] = _outside(str(skill), "green")
    elif analysis is not None:
        facts["skill"] = Text("none: the analysis could not be read", style="yellow")
        facts["analysis"] = _outside(str(analysis) or "(no answer)")
    for name, value in notes.items():
        facts[one_line(name, 20)] = Text(one_line(json.dumps(value, ensure_ascii=False)))
    scored = any(token.delta is not None for turn in trace.tokens for token in turn)
    facts["legend"] = _legend(shades) if scored else Text("no token was scored behind a skill", style="dim")
    return facts


def _legend(shades: Shades | None) -> Text:
    text = Text(f"Δ = log p behind the skill − log p without; gate = sigmoid(βΔ); {END} end of response. ")
    if shades is None:
        return text.append("«…»: gate over .5, likelier behind the skill.")
    text.append("Shades by Δ:")
    for edge in reversed(EDGES):
        text.append(f" −{edge:g} ", _shade(-edge, shades))
    text.append(" 0 ")
    for edge in EDGES:
        text.append(f" +{edge:g} ", _shade(edge, shades))
    return text


def _remark(advantage: float | None) -> str:
    return "" if advantage is None else f"advantage {signed(advantage)}"


def figures(tokens: Sequence[Token]) -> str:
    """The turn's tokens in figures: how many, how likely, how far the skill moves them."""
    parts = [f"{len(tokens):,} tokens"]
    likely = [token.logprob for token in tokens if token.logprob is not None]
    if likely:
        parts.append(f"mean log p {signed(sum(likely) / len(likely))}")
    deltas = [token.delta for token in tokens if token.delta is not None]
    if deltas:
        parts.append(f"mean Δ {signed(sum(deltas) / len(deltas))}")
    gated = sorted((token for token in tokens if token.gate is not None), key=lambda token: token.gate or 0.0)
    if gated:
        gates = [token.gate or 0.0 for token in gated]
        parts.append(f"mean gate {sum(gates) / len(gates):.2f}, {sum(gate > 0.5 for gate in gates)} over .5")
        parts.append(f"highest {_named(gated[-1])}, lowest {_named(gated[0])}")
    return "; ".join(parts)


def _named(token: Token) -> str:
    text = f"'{one_line(token.text, 20)}'" if token.text else END
    return f"{text} {token.gate:.2f}" + (f" (Δ {signed(token.delta)})" if token.delta is not None else "")


def signed(value: float) -> str:
    """A number with its sign and two decimals."""
    return f"{value:+.2f}".replace("-", "−")


def _response(tokens: Sequence[Token], shades: Shades | None) -> Text:
    text = Text(overflow="fold")
    for piece, style in _marked(tokens) if shades is None else _coloured(tokens, shades):
        text.append(inert(piece), style)
        if len(text) > TEXT_LIMIT:
            text.truncate(TEXT_LIMIT)
            return text.append(f"… (cut after {TEXT_LIMIT:,} characters)")
    return text


def _coloured(tokens: Sequence[Token], shades: Shades) -> Iterator[tuple[str, str]]:
    for piece, token in token_pieces(tokens):
        yield piece, _shade(token.delta, shades) if token.delta is not None else ""


def _marked(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    for is_open, run in groupby(token_pieces(tokens), key=lambda pair: (pair[1].gate or 0.0) > 0.5):
        joined = "".join(piece for piece, _ in run)
        yield (f"«{joined}»" if is_open else joined), ""


def token_pieces(tokens: Sequence[Token]) -> Iterator[tuple[str, Token]]:
    """What is written for every token that is seen."""
    for number, token in enumerate(tokens, 1):
        if token.text or number == len(tokens):
            yield token.text or END, token


def _outside(text: str, style: str = "") -> Text:
    return Text(inert(text, TEXT_LIMIT), style=style, overflow="fold")
