"""Fifty tasks, asked of one model through transformers, vLLM in this process and `vllm serve`: the same answers.

The longest of vLLM's tests (minutes on a CPU); `pytest -m vllm -k tasks` runs it alone.
"""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed (docs/vllm.md)")

from seedbench.cli.selection import chosen_panel
from seedbench.evaluate import Evaluation, evaluate
from seedbench.policies import ModelOptions, make_policy
from seedbench.protocol import load_protocol
from seedbench.ui.live import Progress
from tests.vllm_server import serving

pytestmark = [pytest.mark.vllm, pytest.mark.model]


def test_fifty_tasks_are_answered_alike(mini_store: Path, tmp_path: Path) -> None:
    model = mini_store / "models" / "smollm2-135m"
    if not model.is_dir():
        pytest.skip("the embedded model is not in the store that SEEDBENCH_DATA names")
    with serving(model, "smollm2-135m", tmp_path / "server.log") as address:
        specs = {"transformers": "smollm2-135m", "vllm": "vllm:smollm2-135m", "server": f"openai:{address}"}
        said = {kind: answers(spec, tmp_path / kind) for kind, spec in specs.items()}
    assert len(said["transformers"]) == 50
    assert said["vllm"] == said["transformers"]
    assert said["server"] == said["transformers"]


def answers(spec: str, out: Path) -> dict[str, Any]:
    """Per task: the outcome, and of each turn the response, its reason to end and its token counts."""
    panel = chosen_panel("mini-alfworld/valid_seen-small", "", 50)
    protocol = load_protocol("alfworld/quick").with_settings(steps=3, temperature=0.0)
    evaluate(Evaluation(panel, protocol, make_policy(spec, panel, ModelOptions(timeout=600.0)), out), Progress())
    found = {}
    for line in (out / "episodes.jsonl").read_text().splitlines():
        episode = json.loads(line)
        turns = [(turn["response"], turn["finish_reason"], turn["usage"]) for turn in episode["turns"]]
        found[episode["task"]] = (episode["outcome"], turns)
    return found
