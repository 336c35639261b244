"""What the tests of distillation share: hand-made tokens, batches of real runs, static skills for the trivial suite."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from seedbench.types import Message
from seedbench_trainers.base import Tokens
from seedbench_trainers.distillation import Taught
from seedbench_trainers.journal import read_journal
from seedbench_trainers.records import Batch
from tests.train.helpers import FAMILIES

NO_STAGE1: dict[str, Any] = {"stage1": {"run": False}}
Table = Sequence[Sequence[float]]


def tokens(student: Table, teacher: Table, distil: Table, old: Table | None = None, advantage: Table = ()) -> Tokens:
    """Tokens (B, L) from probabilities; the student's have a gradient, `old` is the student unless given."""
    logprobs = torch.log(torch.tensor(student)).requires_grad_(True)
    ones = torch.ones_like(logprobs).detach()
    signals = {
        "advantage": torch.tensor(advantage) if advantage else ones,
        "ref": logprobs.detach().clone(),
        "teacher": torch.log(torch.tensor(teacher)),
        "distil": torch.tensor(distil, dtype=torch.float32),
    }
    before = logprobs.detach().clone() if old is None else torch.log(torch.tensor(old))
    return Tokens(logprobs, before, ones, None, signals)


def static_text(family: str) -> str:
    """What `static_file` holds for a family."""
    return f"Be kind. Say {next(word for word, name in FAMILIES.items() if name == family)}."


@contextmanager
def watched() -> Iterator[list[Batch]]:
    """The batches that methods with a teacher are trained on, once each update is done."""
    batches: list[Batch] = []
    after = Taught.after

    def keep(self: Taught, batch: Batch) -> dict[str, float]:
        batches.append(batch)
        return after(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Taught, "after", keep)
        yield batches


def static_file(folder: Path) -> str:
    """Static skills for both families of the trivial suite."""
    file = folder / "skills.toml"
    texts = "".join(f'{family} = "Say {word}."\n' for word, family in FAMILIES.items())
    file.write_text(f'general = "Be kind."\n[families]\n{texts}')
    return str(file)


def grpo_numbers(folder: Path) -> list[dict[str, float]]:
    """The figures of every update of a run."""
    return [record.metrics for record in read_journal(folder) if record.update]


def fed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Message, ...]]:
    """The messages that models are really fed from now on."""
    from seedbench.policies.base import Request
    from seedbench.policies.prompts import PromptTokens

    asked: list[tuple[Message, ...]] = []
    original = PromptTokens.prompt

    def prompt(self: PromptTokens, request: Request) -> list[int]:
        asked.append(request.messages)
        return original(self, request)

    monkeypatch.setattr(PromptTokens, "prompt", prompt)
    return asked
