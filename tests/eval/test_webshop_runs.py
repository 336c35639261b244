"""Runs on the generated shop: what the harness promises holds there too, and a mended rule is seen in tables."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.protocol import Protocol, load_protocol
from seedbench.runs import LOG, SUMMARY, read_episodes
from seedbench.tables.build import build
from seedbench.ui.live import Progress
from tests.eval.helpers import without_seconds

PANEL = load_panel("mini-webshop/test").subset(limit=20)
PROTOCOL = load_protocol("webshop/seed")


def run(name: str, out: Path, protocol: Protocol = PROTOCOL, **settings: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Summary and episodes, seconds aside."""
    policy = make_policy(name, PANEL, ModelOptions())
    summary = evaluate(Evaluation(PANEL, protocol, policy, out, **settings), Progress())
    return without_seconds(summary), {e.key: {**e.to_json(), "seconds": 0} for e in read_episodes(out)}


def test_concurrency_and_order_change_nothing(store: Path, tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [{"concurrency": 1}, {"concurrency": 16}, {"concurrency": 3, "shuffle": 2}]
    results = [run("random", tmp_path / str(number), repeats=2, **way) for number, way in enumerate(ways)]
    assert all(result == results[0] for result in results)
    assert results[0][0]["episodes"] == 40
    assert len({len(episode["turns"]) for episode in results[0][1].values()}) > 2


def test_a_run_cut_short_goes_on_where_it_stopped(store: Path, tmp_path: Path) -> None:
    whole = run("random", tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut" / SUMMARY).unlink()
    episodes = tmp_path / "cut" / LOG
    lines = episodes.read_bytes().splitlines(keepends=True)
    episodes.write_bytes(b"".join(lines[:7]) + lines[7][:100])
    assert run("random", tmp_path / "cut") == whole
    assert episodes.read_bytes().startswith(b"".join(lines[:7]))


def test_the_table_has_the_parts_of_the_score_and_names_mended_rules(store: Path, tmp_path: Path) -> None:
    summaries = []
    for name, engine in (("kept", "native"), ("mended", "fix-colours")):
        summary, _ = run("oracle", tmp_path / name, engine=engine)
        assert (summary["score"]["mean"], summary["success"]["micro"]["rate"]) == (1.0, 1.0)
        summaries.append((name, summary))
    table = build(summaries, "webshop")
    assert [column.title for column in table.columns] == ["Score", "Succ", "Attr", "Opt", "Type", "Price"]
    block = table.blocks[0]
    assert [row.environment for row in block.rows] == ["", "rules fix-colours"]
    assert "rows under different environments are not comparable" in block.notes


@pytest.mark.parametrize(
    ("mode", "sign"), [("text_rich", "[button] Buy Now [button_]"), ("html", "<html"), ("url", "/item_page/")]
)
def test_a_protocol_chooses_the_observation(store: Path, tmp_path: Path, mode: str, sign: str) -> None:
    settings = PROTOCOL.settings.model_copy(update={"environment": {"observation_mode": mode}})
    chosen = Protocol(settings, PROTOCOL.templates)
    assert chosen.hash != PROTOCOL.hash
    plain, rich = (run("oracle", tmp_path / way.hash, way) for way in (PROTOCOL, chosen))
    assert rich[0]["score"] == plain[0]["score"]
    for key, episode in rich[1].items():
        shown = [turn["observation"] for turn in episode["turns"]]
        assert any(sign in page for page in shown)
        assert [turn["action"] for turn in episode["turns"]] == [turn["action"] for turn in plain[1][key]["turns"]]
