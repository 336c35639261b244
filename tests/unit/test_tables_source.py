"""Reading a run's summary: what is refused, in which words, and that the published schema says the same."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from seedbench.errors import SeedBenchError
from seedbench.metrics import summarise
from seedbench.tables import load_summary


def summary() -> dict[str, Any]:
    return summarise(
        [],
        panel={"name": "p@1", "hash": "ab" * 32, "n": 1, "suite": "s", "split": "t", "official": True},
        protocol={"name": "q@1", "hash": "11" * 32},
        policy={"name": "oracle", "identity": {"kind": "oracle"}},
        repeats=1,
        seed=0,
        families=["heat"],
    ) | {"metrics": {"price": {"mean": 0.5, "n": 2, "ci": [0.1, 0.9]}}}


def test_load_from_a_run_folder_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(summary()), encoding="utf-8")
    assert load_summary(tmp_path) == load_summary(tmp_path / "summary.json") == summary()


def test_missing_summaries_say_where(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match=r"summary\.json is missing: expected a run folder"):
        load_summary(tmp_path)
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(SeedBenchError, match="is a training run: evaluate its checkpoint final/"):
        load_summary(tmp_path)
    with pytest.raises(SeedBenchError, match=r"there is no .*nowhere: expected a run folder or a summary"):
        load_summary(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b'{"schema": ', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "names no schema"),
        (b"{}", "names no schema"),
        (b'{"schema": "seedbench.summary/2"}', "at panel: Field required"),
        (b'{"schema": "seedbench.summary/1"}', "has schema 'seedbench.summary/1', but this version"),
        (b'{"schema": {"\\u001b": 1}}', "but this version"),
    ],
)
def test_malformed_summaries_give_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "summary.json").write_bytes(content)
    with pytest.raises(SeedBenchError, match=re.escape(reason)) as error:
        load_summary(tmp_path)
    assert "run the same `seedbench eval` command again" in str(error.value)
    assert "\x1b" not in str(error.value)


MUTATIONS: list[tuple[str, Any]] = [
    (path, value)
    for path in (
        "schema",
        "panel",
        "panel.name",
        "panel.n",
        "panel.official",
        "protocol.hash",
        "policy.identity",
        "policy.identity.kind",
        "policy.new",
        "repeats",
        "seed",
        "episodes",
        "success.micro.rate",
        "success.macro.rate",
        "success.families.heat.n",
        "success.families.heat.ci",
        "success.families.heat.new",
        "score.mean",
        "score.ci",
        "metrics",
        "metrics.price",
        "metrics.price.mean",
        "metrics.price.n",
        "metrics.price.ci",
        "metrics.price.new",
        "metrics._new1",
        "metrics.not a name",
        "metrics.größe",
        "metrics.",
        "turns.total",
        "turns.mean",
        "turns.invalid_rate",
        "outcomes.solved",
        "tokens.prompt",
        "seconds.episodes",
        "seconds.wall",
        "seconds.gpu",
    )
    for value in (
        None,
        True,
        0,
        -1,
        3,
        0.5,
        1.5,
        "",
        "x",
        [],
        [0.1, 0.2],
        [0.1, 1.2],
        [0, 1, 1],
        {},
        {"a": 1},
        {"mean": 0.5, "n": 2, "ci": [0.1, 0.9]},
    )
]


def test_the_reader_and_the_published_schema_agree(tmp_path: Path) -> None:
    schema = json.loads((files("seedbench") / "schemas" / "summary.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    seen = set()
    for path, value in MUTATIONS:
        data = summary()
        *parents, last = path.split(".")
        place = data
        for key in parents:
            place = place[key]
        place[last] = value
        (tmp_path / "summary.json").write_text(json.dumps(data), encoding="utf-8")
        valid = validator.is_valid(data)
        seen.add(valid)
        try:
            read = load_summary(tmp_path) == data
        except SeedBenchError:
            read = False
        assert read == valid, f"{path} = {value!r}: the schema says {valid}, the reader {read}"
    assert seen == {True, False}


@pytest.mark.parametrize(
    "path",
    [
        "panel",
        "seed",
        "success.micro",
        "score.ci",
        "metrics",
        "metrics.price.n",
        "outcomes.failed",
        "turns.total",
        "seconds.gpu",
    ],
)
def test_the_reader_misses_no_key(tmp_path: Path, path: str) -> None:
    data = summary()
    *parents, last = path.split(".")
    place = data
    for key in parents:
        place = place[key]
    del place[last]
    (tmp_path / "summary.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(SeedBenchError, match=re.escape(f"at {path}: Field required")):
        load_summary(tmp_path)
