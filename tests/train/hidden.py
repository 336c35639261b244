"""A task that only hindsight explains: two words, of which one is right in every turn and is told at the end.

A plain prompt says nothing of the word; a skill says it. `Tutor` is the short SFT after which a policy can follow a
skill and write one, and knows nothing else. Its games are of both words, one family a word, so that a policy can then
be trained on one family alone: with the word `left` all turns of all games are two-action tasks with one right action.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from seedbench.panels import Panel, write_panel
from seedbench.policies.base import Policy, Request, Response
from seedbench.types import Episode, Message, Task
from seedbench_trainers.base import Term, Tools
from seedbench_trainers.collect import play
from seedbench_trainers.config import Reward
from seedbench_trainers.demonstrations import Demonstrator
from seedbench_trainers.methods.sft import SFT, part, taken
from seedbench_trainers.methods.skill_sft import to_sample
from seedbench_trainers.records import Batch, Trajectory
from seedbench_trainers.rollouts import to_batch
from seedbench_trainers.script import attempts
from seedbench_trainers.skills.analysis import Analysis
from seedbench_trainers.skills.insertion import insert_skill
from tests.eval.helpers import installed
from tests.train.helpers import _PROTOCOL, WORDS, EchoEnv, EchoSuite, panel

GAMES = 8
TURNS = 6


class HiddenEnv(EchoEnv):
    """Asks for the game's word in every turn and says it at the end."""

    def wanted(self) -> list[str]:
        return [self.task.split("-")[1]] * (self.turns + 1)

    def _observation(self) -> str:
        over = len(self.said) >= self.turns
        return f"it was {self.wanted()[0]}" if over else "say it"


class HiddenSuite(EchoSuite):
    """The trivial suite with the environment above and its games to train on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        write_panel(panel("train", GAMES), folder / "panels" / "echo--train@1.jsonl.gz")
        text = _PROTOCOL.format(name="hidden", kind="window", decode="admissible", steps=TURNS)
        text = text.replace("history = 1", "history = 0")  # else an answer could be copied from the last one
        (folder / "protocols" / "hidden@1.toml").write_text(text)

    def make(self, panel: Panel, engine: str = "native", **options: Any) -> HiddenEnv:
        return HiddenEnv(int(options["turns"]), self.faults)

    def oracle(self, panel: Panel, task: Task) -> list[str]:
        return [task.id.split("-")[1]] * TURNS


@contextmanager
def hidden(folder: Path) -> Iterator[HiddenSuite]:
    """The suite, installed for as long as the context lasts."""
    suite = HiddenSuite(folder)
    with installed("echo", suite):
        yield suite


def right_word(episode: Episode) -> str:
    """The word that an episode's end tells."""
    return episode.turns[-1].observation.removeprefix("it was ")


class _Obedient(Policy):
    """Says what the skill in its prompt says; without one, either word."""

    name = "obedient"

    def identity(self) -> dict[str, Any]:
        return {}

    async def act(self, request: Request) -> Response:
        told = [word for word in WORDS if f"Say {word}." in request.messages[-1].content]
        return Response(told[0] if told else WORDS[request.seed % 2])


class Tutor(SFT):
    """Every game with both skills, right or wrong, as often without one; and every such episode with its analysis."""

    name: ClassVar[str] = "tutor"

    def gather(self, tools: Tools, iteration: int) -> Batch:
        if self._data is None:
            self._data = lessons(tools)
        size = self.config.update.mini_batch
        return part(self._data, taken(len(self._data.samples), iteration * size, size, 0))

    def signals(self, batch: Batch, tools: Tools) -> dict[str, float]:
        return {}

    def terms(self) -> tuple[Term, ...]:
        """A mean over samples: of a turn one token counts, of an analysis fifty."""
        return (Term("nll", average="sequence"),)


def lessons(tools: Tools) -> Batch:
    """The samples that a `Tutor` teaches."""
    played = []
    for round_, word in enumerate((*WORDS, "")):

        def with_skill(task: Task, messages: tuple[Message, ...], word: str = word) -> tuple[Message, ...]:
            return insert_skill(messages, f"Say {word}.", "end") if word else messages

        wanted = attempts(tools.panel, GAMES, round_)
        policy = Demonstrator(_Obedient(), tools.loaded)
        played += play(wanted, tools.panel, tools.protocol, policy, rewrite=with_skill)
    batch = to_batch(played, Reward())
    for one in played:
        word = right_word(one.episode)
        sample = to_sample(one.episode, Analysis(f"{word}.", f"Say {word}."), "brief", tools)
        sample.trajectory = len(batch.trajectories)
        batch.trajectories.append(Trajectory(one.episode, 0, (), 0.0, ()))
        batch.samples.append(sample)
    return batch
