"""Traces of training trajectories: the texts of tokens, which trajectories are kept, what a line says, the files."""

import errno
import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.traces import Token, trace_file, traced_updates
from seedbench.types import Episode, Outcome, Turn, Usage
from seedbench_trainers.config import Track
from seedbench_trainers.methods.sdar import SDAR
from seedbench_trainers.records import Batch, Sample, Trajectory
from seedbench_trainers.traces import choose, read_traces, token_texts, traces_due, write_traces
from tests.tiny_model import tokenizer
from tests.train.helpers import config, method_installed, run

WORDS = tokenizer()


class Pieces:
    """A stand-in for a tokenizer: decodes ids as positions in `pieces`."""

    def __init__(self, *pieces: str, marks: bool = False, tidy: bool = False) -> None:
        self.pieces, self.marks, self.tidy = pieces, marks, tidy

    def decode(self, ids: Any, **_: Any) -> str:
        text = "".join(self.pieces[i] for i in ids)
        if self.marks:  # a word begins with a mark, and the first one's is dropped
            text = text.replace("▁", " ").removeprefix(" ")
        return text.replace(" ,", ",") if self.tidy else text


def decoded(ids: list[int]) -> str:
    return str(WORDS.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


# token texts


@pytest.mark.parametrize("text", ["<action>go to sinkbasin 1</action>", "naïve 😀 漢字\n\n x", "", "\ufffd", "a\ufffd"])
def test_token_texts_join_to_the_response(text: str) -> None:
    ids = WORDS(text)["input_ids"]
    texts = token_texts([*ids, WORDS.eos_token_id], WORDS)
    assert "".join(texts) == text
    assert (len(texts), texts[-1]) == (len(ids) + 1, "\ufffd" if text.endswith("\ufffd") else "")


def test_a_character_belongs_to_the_last_of_its_tokens() -> None:
    ids = WORDS("x😀y")["input_ids"]
    assert token_texts(ids, WORDS) == ["x", "", "", "", "😀", "y"]
    assert token_texts(ids[:3], WORDS) == ["x", "", "\ufffd"]  # cut inside the character


def test_any_tokens_join_to_their_text() -> None:
    random = Random(3)
    for _ in range(200):
        ids = [random.randrange(len(WORDS)) for _ in range(random.randrange(1, 30))]
        assert "".join(token_texts(ids, WORDS)) == decoded(ids)


def test_tokenizers_that_mark_words() -> None:
    words = Pieces("▁take", "▁m", "ug", "▁1", marks=True)
    assert token_texts([0, 1, 2, 3], words) == ["take", " m", "ug", " 1"]
    assert token_texts([2, 0], words) == ["ug", " take"]


def test_texts_that_do_not_add_up_fall_to_the_last_token() -> None:
    assert token_texts([0, 1, 2], Pieces("yes", " ", ", no", tidy=True)) == ["yes", "", ", no"]
    assert token_texts([0, 1], Pieces("a ", ",b", tidy=True)) == ["", "a,b"]


# which trajectories


def trajectory(group: int, success: bool = False, turns: int = 1, **notes: Any) -> Trajectory:
    played = (Turn("go", "go", True, True, "You went."),) * turns
    outcome = Outcome.SOLVED if success else Outcome.FAILED
    episode = Episode(
        f"t{group}", "0" * 64, "pick", 0, 1, outcome, success, float(success), "do", "see", played, Usage(9, 2), 0.5
    )
    return Trajectory(episode, group, (), 10.0 * success, (0.0,) * turns, notes)


def batch_of(*groups: str) -> Batch:
    """Groups of trajectories: + is solved, - is not."""
    return Batch([trajectory(group, sign == "+") for group, signs in enumerate(groups) for sign in signs], [])


@pytest.mark.parametrize(
    ("groups", "count", "expected"),
    [
        (["+-+-", "----", "+-+-", "----"], 2, [0, 1]),
        (["+-+-", "----", "+-+-", "----"], 4, [0, 1, 8, 9]),  # a pair of groups 0 and 2
        (["----", "----", "---+", "----"], 4, [0, 4, 8, 11]),  # the one success there is
        (["++", "++", "++", "++"], 3, [0, 2, 4]),
        (["--", "--", "--", "--"], 1, [0]),
        (["+---"], 1, [0]),
        (["-+", "--"], 9, [0, 1, 2, 3]),
        (["++--"], 4, [0, 1, 2, 3]),
        (["--", "--"], 3, [0, 1, 2]),
        (["--"], 0, []),
        ([], 4, []),
    ],
)
def test_choice(groups: list[str], count: int, expected: list[int]) -> None:
    assert choose(batch_of(*groups), count) == expected


@pytest.mark.parametrize(
    ("track", "due"),
    [
        (Track(), [1, 10, 20, 25]),
        (Track(traces_every=7), [1, 7, 14, 21, 25]),
        (Track(traces_every=100), [1, 25]),
        (Track(traces=0), []),
    ],
)
def test_updates_that_leave_traces(track: Track, due: list[int]) -> None:
    assert [update for update in range(1, 26) if traces_due(track, update, 25)] == due


# what is written


def talk() -> Batch:
    """Two turns in one sample, the second distilled, a third turn in a sample of its own, and a silent one."""
    go, look = (WORDS(text)["input_ids"] for text in ("go to bed 1", "look"))
    end = WORDS.eos_token_id
    first = [7, 7, *go, end, 8, *look, end]
    size = len(go) + 1
    long = Sample(
        ids=np.asarray(first, dtype=np.int32),
        spans=((2, 2 + size), (3 + size, 3 + size + len(look) + 1)),
        logprobs=np.full(size + len(look) + 1, -1.0, dtype=np.float32),
        turns=(0, 1),
    )
    distil = [0.0] * size + [1.0] * (len(look) + 1)
    long.signals |= {
        "advantage": long.spread([0.25, -1.5]),
        "distil": np.asarray(distil, dtype=np.float32),
        "teacher": np.asarray([0.0] * size + [-0.5] + [-3.0] * len(look), dtype=np.float32),
    }
    short = Sample(
        ids=np.asarray([5, *go], dtype=np.int32), spans=((1, 1 + len(go)),),
        logprobs=np.full(len(go), -np.inf, dtype=np.float32), turns=(3,),
    )  # fmt: skip
    return Batch([trajectory(3, True, turns=4, skill="go first", analysis="{}")], [long, short])


def test_a_line_says_what_was_sampled_and_what_the_skill_changed(tmp_path: Path) -> None:
    batch = talk()
    write_traces(tmp_path, 10, batch, WORDS, 5.0, 4)
    path = tmp_path / "traces" / "update-000010.jsonl.gz"
    (line,) = gzip.decompress(path.read_bytes()).splitlines()
    data = json.loads(line)
    assert list(data) == ["update", "group", "reward", "advantage", "notes", "episode", "tokens"]
    assert (data["update"], data["group"], data["reward"]) == (10, 3, 10.0)
    assert data["advantage"] == [0.25, -1.5, None, None]
    assert data["notes"] == {"skill": "go first", "analysis": "{}"}
    assert Episode.from_json(data["episode"]) == batch.trajectories[0].episode
    first, second, silent, last = data["tokens"]
    assert "".join(text for text, *_ in first) == "go to bed 1"
    assert all(numbers == [-1.0, None, None] for _, *numbers in first)
    assert "".join(text for text, *_ in second) == "look"
    # Delta = -.5 + 1 and -3 + 1; the gates are 1 / (1 + exp(-5 * Delta))
    assert second[0][1:] == [-1.0, 0.5, 0.924142]
    assert second[-1] == ["", -1.0, -2.0, 0.000045]
    assert silent == []
    assert all(numbers == [None, None, None] for _, *numbers in last)  # not finite, and nothing distilled
    (trace,) = read_traces(tmp_path, 10)
    assert trace.to_json() == {**data, "episode": trace.episode.to_json(), "advantage": (0.25, -1.5, None, None),
                               "tokens": tuple(tuple(map(tuple, turn)) for turn in data["tokens"])}  # fmt: skip
    assert trace.tokens[1][0] == Token(second[0][0], -1.0, 0.5, 0.924142)


def test_a_method_without_gate_has_deltas_alone(tmp_path: Path) -> None:
    write_traces(tmp_path, 1, talk(), WORDS, None, 1)
    (trace,) = read_traces(tmp_path)
    assert [(token.delta, token.gate) for token in trace.tokens[1][:1]] == [(0.5, None)]


def test_an_update_that_is_made_again_replaces_its_traces(tmp_path: Path) -> None:
    write_traces(tmp_path, 5, talk(), WORDS, 5.0, 1)
    path = trace_file(tmp_path, 5)
    first = path.read_bytes()
    write_traces(tmp_path, 5, batch_of("+-", "--"), WORDS, 5.0, 3)
    assert [trace.group for trace in read_traces(tmp_path, 5)] == [0, 0, 1]
    write_traces(tmp_path, 5, talk(), WORDS, 5.0, 1)
    assert path.read_bytes() == first
    write_traces(tmp_path, 1000000, talk(), WORDS, 5.0, 1)
    write_traces(tmp_path, 10, talk(), WORDS, 5.0, 1)
    assert traced_updates(tmp_path) == [5, 10, 1000000]
    assert read_traces(tmp_path)[0].update == 1000000
    assert {file.name for file in path.parent.iterdir()} == {trace_file(tmp_path, n).name for n in (5, 10, 1000000)}


def test_a_full_disk_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_traces(tmp_path, 5, talk(), WORDS, 5.0, 1)
    before = trace_file(tmp_path, 5).read_bytes()
    whole = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        whole(path, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SeedBenchError, match=r"No space left on device\. Free space .* track\.traces=0 no traces"):
        write_traces(tmp_path, 5, batch_of("+-"), WORDS, 5.0, 2)
    assert trace_file(tmp_path, 5).read_bytes() == before
    assert list((tmp_path / "traces").iterdir()) == [trace_file(tmp_path, 5)]


# reading


def test_traces_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no traces: methods that play roll-outs .* unless track\.traces is 0"):
        read_traces(tmp_path)
    write_traces(tmp_path, 10, talk(), WORDS, 5.0, 1)
    write_traces(tmp_path, 20, talk(), WORDS, 5.0, 1)
    with pytest.raises(UsageError, match=r"has no traces of update 7; it has those of 10, 20\.$"):
        read_traces(tmp_path, 7)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write_traces(tmp_path, 10, talk(), WORDS, 5.0, 1)
    path = trace_file(tmp_path, 10)
    whole = path.read_bytes()
    data = json.loads(gzip.decompress(whole))
    texts = [[[5, *numbers] for _, *numbers in turn] for turn in data["tokens"]]
    changed = [{**data, "tokens": []}, {**data, "tokens": texts}, {**data, "group": "x"}, {"update": 10}, []]
    for damage in (whole[:40], b"plain", whole[:60] + b"\xff" * 9 + whole[69:], *map(_packed, changed)):
        path.write_bytes(damage)
        with pytest.raises(SeedBenchError, match=r"update-000010\.jsonl\.gz' cannot be read .* delete that file"):
            read_traces(tmp_path, 10)


def _packed(data: object) -> bytes:
    return gzip.compress(json.dumps(data).encode())


# the loop


def test_a_run_leaves_traces_of_what_it_was_trained_on(model: Path, tmp_path: Path) -> None:
    with method_installed("sdar", SDAR):
        settings = config(
            model, method="sdar", protocol="chat-free", updates=4, track={"traces_every": 3, "traces": 6},
            options={"skill": "rules", "kl_coefficient": 0.0},
        )  # fmt: skip
        run(settings, tmp_path)
    assert traced_updates(tmp_path) == [1, 3, 4]
    for update in (1, 3, 4):
        traces = read_traces(tmp_path, update)
        assert (len(traces), {trace.update for trace in traces}) == (6, {update})
        assert len({trace.group for trace in traces}) >= 3
        for trace in traces:
            assert trace.notes["skill"]
            said = ["".join(token.text for token in turn) for turn in trace.tokens]
            assert said == [turn.response for turn in trace.episode.turns]
            tokens = [token for turn in trace.tokens for token in turn]
            for token in tokens:
                assert token.delta is not None
                assert token.gate == pytest.approx(1 / (1 + np.exp(-5 * token.delta)), abs=5e-6)
            assert any(token.delta for token in tokens)


def test_a_method_without_teacher_and_one_without_rollouts(model: Path, tmp_path: Path) -> None:
    run(config(model, updates=2), tmp_path / "grpo")
    tokens = [token for trace in read_traces(tmp_path / "grpo") for turn in trace.tokens for token in turn]
    assert tokens
    assert {(token.delta, token.gate) for token in tokens} == {(None, None)}
    run(config(model, updates=2, track={"traces": 0}), tmp_path / "none")
    run(config(model, method="sft", updates=1, options={"episodes": 8}), tmp_path / "sft")
    assert not (tmp_path / "none" / "traces").exists()
    assert not (tmp_path / "sft" / "traces").exists()
