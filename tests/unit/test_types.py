"""Records survive JSON unchanged."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench.types import Episode, Message, Outcome, Task, Turn, Usage, checked_metrics

# JSON joins a high and a low surrogate that stand alone next to each other; servers cannot send such a pair.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(["\ud800", "a\udfffb", "\x00"])
usages = st.builds(Usage, st.integers(0, 10**9), st.integers(0, 10**9))
turns = st.builds(
    Turn,
    response=texts,
    action=texts,
    valid=st.booleans(),
    admissible=st.none() | st.booleans(),
    observation=texts,
    prompt_sha256=texts,
    prompt=st.lists(st.builds(Message, texts, texts), max_size=2).map(tuple),
    finish_reason=texts,
    usage=usages,
)
episodes = st.builds(
    Episode,
    task=texts,
    task_sha256=texts,
    family=texts,
    repeat=st.integers(0, 9),
    seed=st.integers(0, 2**63 - 1),
    outcome=st.sampled_from(Outcome),
    success=st.booleans(),
    score=st.floats(0, 1),
    instruction=texts,
    first_observation=texts,
    turns=st.lists(turns, max_size=3).map(tuple),
    usage=usages,
    seconds=st.floats(0, 1e6),
    error=texts,
    metrics=st.dictionaries(st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True).filter(str.isascii), st.floats(0, 1)),
)


@given(episodes)
def test_episode_survives_json(episode: Episode) -> None:
    text = json.dumps(episode.to_json(), ensure_ascii=False)
    assert Episode.from_json(json.loads(text)) == episode
    assert list(json.loads(text)) == [field.name for field in dataclasses.fields(Episode)]


def _record() -> dict[str, Any]:
    turn = Turn("r", "a", True, None, "o", prompt=(Message("user", "hi"),), usage=Usage(1, 2))
    episode = Episode("t", "h", "f", 0, 1, Outcome.FAILED, False, 0.0, "i", "o", (turn,), Usage(1, 2), 0.5)
    return json.loads(json.dumps(episode.to_json()))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(outcome="won"),
        lambda record: record.update(extra=1),
        lambda record: record.pop("score"),
        lambda record: record.pop("turns"),
        lambda record: record.update(turns=5),
        lambda record: record["turns"][0].update(more=1),
        lambda record: record["turns"][0].pop("usage"),
        lambda record: record["turns"][0]["usage"].update(cached=1),
        lambda record: record["turns"][0]["prompt"].append("hi"),
        lambda record: record.update(metrics=None),
        lambda record: record.update(metrics={"price": "high"}),
    ],
)
def test_record_of_another_shape_is_refused(change: Any) -> None:
    record = _record()
    change(record)
    with pytest.raises((TypeError, ValueError, KeyError)):
        Episode.from_json(record)


def test_logs_from_before_there_were_metrics_can_be_read() -> None:
    record = _record()
    del record["metrics"]
    assert Episode.from_json(record).metrics == {}


def test_metrics_are_copied_as_plain_floats() -> None:
    given_ = {"price": np.float32(0.5), "_type2": 1, "option": 0.0}
    checked = checked_metrics(given_)
    assert checked == {"price": 0.5, "_type2": 1.0, "option": 0.0}
    assert {type(value) for value in checked.values()} == {float}
    given_["price"] = 7
    assert checked["price"] == 0.5


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        (None, "must map names to numbers, not be a NoneType"),
        ([("price", 1.0)], "not be a list"),
        ({"r type": 1.0}, "must be an ASCII identifier, not 'r type'"),
        ({"": 1.0}, "must be an ASCII identifier, not ''"),
        ({"größe": 1.0}, "must be an ASCII identifier"),
        ({1: 1.0}, "must be an ASCII identifier, not 1"),
        ({"a" * 99 + "!": 1.0}, "must be an ASCII identifier, not 'a{56}[.]{3}$"),
        ({"price": 1.0000001}, r"the metric 'price' must be a number in \[0, 1\], not 1.0000001"),
        ({"price": -1}, "not -1$"),
        ({"price": 10**400}, "not 1000"),
        ({"price": math.nan}, "not nan$"),
        ({"price": math.inf}, "not inf$"),
        ({"price": True}, "not True$"),
        ({"price": "1"}, "not '1'$"),
        ({"price": None}, "not None$"),
        ({"price": 1j}, "not 1j$"),
        ({"option": 1.0, "price": 2}, "'price'"),
    ],
)
def test_other_metrics_are_refused_with_the_reason(metrics: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checked_metrics(metrics)


def test_outcomes_are_the_five_of_the_contract() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "solved",
        "failed",
        "step_limit",
        "context_overflow",
        "infra_error",
    ]


def test_usage_adds_up() -> None:
    assert sum([Usage(3, 1), Usage(4, 0)], Usage()) == Usage(7, 1)


def test_an_attempt_is_known_by_content_and_repeat_not_by_name() -> None:
    record = _record()
    first, renamed = Episode.from_json(record), Episode.from_json({**record, "task": "other"})
    assert first.key == renamed.key == ("h", 0)
    assert Episode.from_json({**record, "repeat": 1}).key != first.key


def test_records_are_frozen() -> None:
    for value, field in ((Task("t", "f", "s", "h"), "id"), (Usage(), "prompt_tokens"), (Message("user", "hi"), "role")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, "other")
