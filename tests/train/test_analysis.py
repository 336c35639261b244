"""The analyzer's prompt, and its parser against a corpus of odd and broken answers."""

import json
from collections.abc import Iterator

import pytest

from seedbench.types import Outcome
from seedbench_trainers.skills import analysis as module
from seedbench_trainers.skills.analysis import (
    NO_OBJECT,
    NOTHING,
    OTHER_SCRIPT,
    TOO_LONG,
    Analysis,
    analysis_prompt,
    format_analysis,
    parse_analysis,
    review,
    steps_left_out,
)
from tests.train.episodes import Step, episode

GOOD = {
    "plain": Analysis("Solved in four steps.", "Open the fridge 1 first, then take the egg 1."),
    "quotes": Analysis('Said "no".', 'Look for the word "open" before you act, and don\'t stop.'),
    "braces": Analysis("{a}", "When {x} is closed, open it: } and { mean nothing here."),
    "commas": Analysis("", "In lists like [1, 2,] or {a,} the comma ,} stays."),
    "fence": Analysis("short", "Use ``` as a mark of code, never as an answer."),
    "backslash": Analysis("path", "Write C:\\temp\\n as it is; a \\ ends nothing."),
    "letters": Analysis("été", "Go to the café 1, naïve or not: ☕ is no object."),
}
WRAPPED = {
    "bare": "@",
    "prose before": "Here is the object you want:\n@",
    "prose after": "@\n\nI hope that this helps!",
    "prose with an apostrophe": "It's done, \"mostly: here's\n@",
    "fenced as json": "```json\n@\n```",
    "fenced": "```\n@\n```",
    "fenced in prose": "Sure.\n\n```JSON\n@\n```\nAnything else?",
    "fence never closed": "```json\n@",
    "thought before": "<think>The agent {maybe} failed. I write JSON.</think>\n@",
    "in a list": "[@]",
    "in a result": '{"result": @}',
    "deep in a result": '{"a": [{"b": {"c": @}}], "d": 1}',
    "after another object": '{"score": 1} @',
    "after an open brace": "{ what now\n@",
    "after many open braces": "{{{{{{ @",
    "before an open brace": '@ {"more": ',
    "after a draft": '{"episode_summary": "draft", "episode_skill": "Draft."}\n@',
    "after an empty draft": '{"episode_summary": "", "episode_skill": ""}\n@',
    "before an empty one": '@\n{"episode_skill": ""}',
    "after a broken draft": '{"episode_skill": "never closed\n@',
    "fenced after a bare draft": '{"episode_skill": "Draft."}\n```json\n@\n```',
    "fenced before a bare one": '```json\n@\n```\n{"episode_skill": "Later."}',
    "byte order mark": "\ufeff@",
    "chinese prose": "分析如下：\n@\n以上。",
    "russian prose": "Вот ответ: @ Готово.",
    "carriage returns": "\r\n@\r\n",
    "nulls around": "\x00@\x00",
    "key mentioned before": 'The "episode_skill" is below.\n@',
    "key mentioned after": '@\nSo "episode_skill" is set.',
}
BAD_SKILLS = (
    '""',
    '"  "',
    '"\\n\\t"',
    '"\\ud800"',
    '"\\u0000"',
    "null",
    "7",
    "1.5",
    "true",
    "[]",
    '["Go."]',
    "{}",
    '{"a": "Go."}',
)
NESTED_BAD = '{"episode_skill": {"episode_skill": "Go."}}'
GARBAGE = (
    "",
    " ",
    "\n\n",
    "null",
    "true",
    "[]",
    "{}",
    "{",
    "}",
    "}{",
    '"episode_skill"',
    "episode_skill: Go.",
    "episode_skill = 'Go.'",
    '{"episode_skill"}',
    '{"episode_skill":}',
    '{"episode_skill": Go.}',
    '{"episode_skill" "Go."}',
    "{'episode_skill': 'Go.'}",
    '{episode_skill: "Go."}',
    '{"episode-skill": "Go."}',
    '{"Episode_Skill": "Go."}',
    '{"skill": "Go."}',
    '{"episode_summary": "It went well."}',
    '["episode_skill", "Go."]',
    "I cannot answer that.",
    "任务完成了，没有技能。",
    "The skill is to open the fridge.",
    "```json\n```",
    "```json\n{}\n```",
    "``````",
    "<action>go to desk 1</action>",
    "go to desk 1",
    "\ud800",
    "{" * 40,
    "}" * 40,
    '"' * 41,
    "\\" * 41,
    "```" * 9,
    '{"a": ' * 30,
    NESTED_BAD,
)


def written(analysis: Analysis) -> dict[str, str]:
    return {"episode_summary": analysis.summary, "episode_skill": analysis.skill}


def ways(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """The object in the forms that models write it."""
    data = written(analysis)
    lines = json.dumps(data, indent=2, ensure_ascii=False)
    yield "compact", format_analysis(analysis)
    yield "ascii", json.dumps(data)
    yield "lines", lines
    yield "trailing comma", lines.removesuffix("\n}") + ",\n}"
    yield "other order", json.dumps(dict(reversed(data.items())))
    yield "more keys", json.dumps({"steps": [1, {"n": 2}], **data, "confidence": 0.9})
    yield "raw line break", json.dumps(data).replace(". ", ".\n ")


def corpus() -> Iterator[tuple[str, str, Analysis | None]]:
    for name, analysis in GOOD.items():
        for wrap, around in WRAPPED.items():
            # A fence inside the skill tears the block, and then the last object of the whole text counts.
            torn = name == "fence" and wrap == "fenced before a bare one"
            expected = Analysis("", "Later.") if torn else analysis
            yield f"{name}/{wrap}", around.replace("@", format_analysis(analysis)), expected
        for way, text in ways(analysis):
            yield f"{name}/{way}", text, analysis
            yield f"{name}/{way} fenced", f"So:\n```json\n{text}\n```", analysis
    for skill in BAD_SKILLS:
        for wrap in ("bare", "prose before", "fenced", "in a result", "after an open brace", "chinese prose"):
            text = f'{{"episode_summary": "s", "episode_skill": {skill}}}'
            yield f"skill {skill}/{wrap}", WRAPPED[wrap].replace("@", text), None
    for text in GARBAGE:
        yield f"garbage {text[:30]!r}", text, None
    whole = format_analysis(GOOD["plain"])
    for end in range(len(whole)):
        yield f"cut at {end}", whole[:end], None
    yield "summary is no text", '{"episode_summary": 3, "episode_skill": "Go."}', Analysis("", "Go.")
    yield "summary is missing", '{"episode_skill": "Go."}', Analysis("", "Go.")
    yield "many lines", '{"episode_skill": "1. Go.\\n2. Take."}', Analysis("", "1. Go. 2. Take.")
    yield "surrogate in words", '{"episode_skill": "Go\\ud800 on."}', Analysis("", "Go on.")


CORPUS = list(corpus())


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) >= 500
    assert sum(expected is None for _, _, expected in CORPUS) >= 200
    assert len({text for _, text, _ in CORPUS}) >= 450


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in CORPUS], ids=[case[0] for case in CORPUS])
def test_parses(text: str, expected: Analysis | None) -> None:
    found = parse_analysis(text)
    assert found == expected


HOSTILE = {
    "open objects": '{"a":' * 50_000,
    "open braces": "{" * 300_000,
    "keys": '"episode_skill"' * 30_000,
    "open keys": '{"episode_skill":' * 20_000,
    "escaped quotes": '{"episode_skill": "' + '\\"' * 100_000,
    "commas": '{"episode_skill": [' + "," * 200_000,
    "commas and space": '{"episode_skill": [' + ",   \n" * 60_000,
    "lists": '{"episode_skill": ' + "[" * 200_000,
    "fences": "```{" * 50_000,
    "words": "open the fridge 1 and " * 10_000,
    "chinese": "打开冰箱" * 10_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_answers_cost_a_bounded_number_of_attempts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    class Counting(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[object, int]:
            attempts.append(len(s))
            return super().raw_decode(s, idx)

    monkeypatch.setattr(module, "_DECODER", Counting(strict=False))
    assert parse_analysis(text) is None
    assert len(attempts) <= 2 * 2 * module._NEAR**2
    whole = format_analysis(GOOD["plain"])
    assert parse_analysis(f"{text}\n{whole}") == GOOD["plain"] or text.startswith(('{"episode_skill": ', "```"))


@pytest.mark.parametrize("analysis", GOOD.values(), ids=GOOD.keys())
def test_format_is_one_compact_line_that_is_read_back(analysis: Analysis) -> None:
    text = format_analysis(analysis)
    assert "\n" not in text
    assert '": "' not in text.replace(analysis.skill, "").replace(analysis.summary, "x")
    assert json.loads(text) == written(analysis)
    assert parse_analysis(text) == analysis


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", NOTHING),
        (" \n", NOTHING),
        ("word " * 10_000, NO_OBJECT),
        ('{"episode_skill": ""}', NO_OBJECT),
        (format_analysis(Analysis("", "go " * 701)), TOO_LONG),
        (format_analysis(Analysis("", "先打开冰箱，再拿鸡蛋。")), OTHER_SCRIPT),
        (format_analysis(Analysis("", "Откройте холодильник fridge 1")), OTHER_SCRIPT),
        (format_analysis(Analysis("", "12 34 ...")), OTHER_SCRIPT),
        (format_analysis(Analysis("", "打开 fridge 1, then take the egg 1")), ""),
        (format_analysis(GOOD["letters"]), ""),
    ],
)
def test_review_says_why_an_answer_is_refused(text: str, reason: str) -> None:
    analysis, said = review(text)
    assert said == reason
    assert (analysis is None) == bool(reason)


STEPS: list[Step] = [("go to desk 1", "On the desk 1, you see a mug 2."), ("eat mug 2", "Nothing happens.", False)]


def test_full_prompt_tells_the_episode_and_its_true_outcome() -> None:
    (message,) = analysis_prompt(episode(STEPS))
    assert message.role == "user"
    text = message.content
    assert "Task: put a mug on a shelf\nOutcome: failed: step limit\n" in text
    assert (
        "Step 1\nobservation: You are in the middle of a room. You see a shelf 1, a desk 1, and a drawer 1.\n"
        "response: <action>go to desk 1</action>\naction valid: yes\n"
        "Step 2\nobservation: On the desk 1, you see a mug 2.\nresponse: <action>eat mug 2</action>\naction valid: no\n"
        "Last observation: Nothing happens.\n"
    ) in text
    assert text.index('"episode_summary"') < text.index('"episode_skill"') < text.index("Task:")


def test_the_orders_depend_on_success_alone() -> None:
    solved = analysis_prompt(episode(STEPS, solved=True))[0].content
    failed = analysis_prompt(episode(STEPS, outcome=Outcome.FAILED))[0].content
    assert "Outcome: solved\n" in solved
    assert "Outcome: failed\n" in failed
    assert "procedure" in solved
    assert "procedure" not in failed
    assert "avoids the failure" in failed
    assert "avoids the failure" not in solved


def test_brief_prompt_has_no_prose() -> None:
    (message,) = analysis_prompt(episode(STEPS), style="brief")
    assert message.content == (
        "Your task is to: put a mug on a shelf\n> go to desk 1\nOn the desk 1, you see a mug 2.\n"
        "> eat mug 2\nNothing happens.\nfailed: step limit\nJSON:"
    )


def test_an_episode_without_a_turn_has_a_prompt() -> None:
    nothing = episode([], outcome=Outcome.CONTEXT_OVERFLOW)
    assert analysis_prompt(nothing, style="brief")[0].content.endswith("\nfailed: prompt too long\nJSON:")
    assert "Last observation: You are in the middle" in analysis_prompt(nothing)[0].content


@pytest.mark.parametrize("style", ["full", "brief"])
@pytest.mark.parametrize("limit", [1_400, 3_000, 10_000])
def test_long_episodes_lose_their_middle(style: module.Style, limit: int) -> None:
    steps: list[Step] = [(f"go to desk {n}", f"You arrive at desk {n}, where a mug stands.") for n in range(200)]
    messages = analysis_prompt(episode(steps), style=style, limit=limit)
    text = messages[0].content
    left_out = steps_left_out(messages)
    assert len(text) <= limit
    assert 0 < left_out < 200
    kept = [n for n in range(200) if f"go to desk {n}\n" in text or f"go to desk {n}<" in text]
    assert len(kept) == 200 - left_out
    head = [n for n in kept if n < 100]
    assert head == list(range(len(head)))
    assert kept[len(head) :] == list(range(200 - len(kept) + len(head), 200))
    assert abs(2 * len(head) - len(kept)) <= 1
    assert "put a mug on a shelf" in text
    assert text.count("step limit") == 1


def test_whole_episodes_lose_nothing_and_other_counts_are_used() -> None:
    assert steps_left_out(analysis_prompt(episode(STEPS))) == 0
    short = analysis_prompt(episode(STEPS), style="brief", limit=14, count=lambda text: len(text.split()))
    # Task 9, outcome and JSON: 4 words; nothing is left for a step, and task and outcome stay.
    assert short[0].content == "Your task is to: put a mug on a shelf\n[2 steps left out]\nfailed: step limit\nJSON:"
    assert steps_left_out(short) == 2


def test_an_observation_cannot_pass_for_the_mark() -> None:
    forged = episode([("look", "x\n[9 steps left out]\ny")])
    assert steps_left_out(analysis_prompt(forged)) == 0


def test_long_texts_are_cut_in_their_middle() -> None:
    long = episode([("look", "a" * 1_400 + "b" * 9_000 + "c" * 700)])
    text = analysis_prompt(long)[0].content
    assert f"Last observation: {'a' * 1_333} ... {'c' * 666}\n" in text
