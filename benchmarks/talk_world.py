"""A world of words for the trainer's benchmarks: prompts, observations and answers of chosen lengths, one token a word.

The model is random and says nothing that matters; rewards are random too. Answers never end before their limit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from seedbench.panels import Panel, load_panel, write_panel
from seedbench.suite import DataStatus, Option, Suite
from seedbench.types import Task
from seedbench_trainers.checks import agent_protocol, make_method
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.recipes import merged
from seedbench_trainers.records import Batch
from seedbench_trainers.toolbox import Toolbox
from seedbench_trainers.trainee import Trainee, load_trainee
from seedbench_trainers.update import Updater
from seedbench_trainers.view import TrainView
from tests.eval.helpers import installed

WORDS, TASKS = 2000, 64
TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
_PROTOCOL = """
name = "talk/talk"
version = 1
summary = "for benchmarks"
suites = ["talk"]
limits = {{ steps = {turns}, prompt_tokens = 4096, response_tokens = {said} }}
context = {{ kind = "window", history = {history} }}
parser = {{ action_tag = "" }}
sampling = {{ temperature = 1.0 }}
prompts = {{ first = "prompt.jinja", later = "prompt.jinja" }}
"""
_PROMPT = """You act in a world of words .
Your task is to: {{ instruction }}
{% for past in history %}you saw {{ past.observation }} and said {{ past.action }} . {% endfor %}
now you see {{ observation }} and may say {{ admissible | join(" ") }}"""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a world: the task, an observation, an answer, a list of possible actions; turns an episode, turns
    shown again in a prompt."""

    task: int
    seen: int
    said: int
    menu: int = 0
    turns: int = 1
    history: int = 0


def words(count: int, *key: object) -> str:
    """Random words that follow from the key."""
    random = Random(repr(key))
    return " ".join(f"w{random.randrange(WORDS)}" for _ in range(count))


class TalkEnv:
    """Shows words for some turns; half of all episodes, by what was said, are a success."""

    slow = False

    def __init__(self, lengths: Lengths) -> None:
        self.lengths = lengths
        self.task, self.said = "", list[str]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode of the task in `options`."""
        self.task, self.said = (options or {})["task"], []
        return self._observation(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Say something; rewards come in `info`."""
        self.said.append(action)
        return self._observation(), 0.0, len(self.said) >= self.lengths.turns, False, self._info()

    def close(self) -> None:
        """Nothing is held."""

    def _observation(self) -> str:
        # After the first turn every attempt sees something else, as in a game that answers to actions.
        return words(self.lengths.seen, self.task, *self.said)

    def _info(self) -> dict[str, Any]:
        over = len(self.said) >= self.lengths.turns
        won = over and hashlib.sha256(" ".join(self.said).encode()).digest()[0] % 2 == 0
        return {
            "task_id": self.task,
            "family": "talk",
            "instruction": words(self.lengths.task, self.task),
            "admissible_actions": words(self.lengths.menu, "menu", *self.said).split(),
            "success": won,
            "score": float(won),
            "action_valid": True,
        }


class TalkSuite(Suite):
    """The suite of that environment, its panel and its protocol in a folder."""

    name = "talk"
    official = False
    families = {"talk": "Talk"}  # noqa: RUF012
    default_protocol = "talk/talk"
    layout = "alfworld"

    def __init__(self, folder: Path, lengths: Lengths) -> None:
        self.resources, self.lengths = folder, lengths
        (folder / "protocols").mkdir(parents=True)
        protocol = _PROTOCOL.format(turns=lengths.turns, said=lengths.said, history=lengths.history)
        (folder / "protocols" / "talk@1.toml").write_text(protocol)
        (folder / "protocols" / "prompt.jinja").write_text(_PROMPT)
        names = [f"train-{number}" for number in range(TASKS)]
        tasks = tuple(Task(name, "talk", "train", hashlib.sha256(name.encode()).hexdigest()) for name in names)
        write_panel(Panel("talk/train@1", "talk", "train", False, "", tasks), folder / "panels/talk--train@1.jsonl.gz")

    def make(self, panel: Panel, engine: str = "native", **options: Option) -> TalkEnv:
        """An environment of the suite's lengths."""
        return TalkEnv(self.lengths)

    def content_hashes(self, panel: Panel) -> dict[str, str]:
        """As the panel has them."""
        return {task.id: task.sha256 for task in panel.tasks}

    def oracle(self, panel: Panel, task: Task) -> Sequence[str]:
        """A word a turn."""
        return [words(1, turn) for turn in range(self.lengths.turns)]

    def fetch(self, source: Path | None, report: Any) -> None:
        """Nothing is fetched."""
        report("nothing to fetch")

    def check(self) -> DataStatus:
        """Nothing is needed."""
        return DataStatus("nothing to check")


@contextmanager
def talk(folder: Path, lengths: Lengths) -> Iterator[TalkSuite]:
    """The suite, installed for as long as the context lasts."""
    suite = TalkSuite(folder / "talk", lengths)
    with installed("talk", suite):
        yield suite


def build_model(folder: Path, hidden: int, layers: int) -> Path:
    """A random Llama with a token a word; what it says is far from uniform."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    specials = ["<|im_start|>", "<|im_end|>", "<|unknown|>", "user", "assistant"]
    vocabulary = {word: place for place, word in enumerate([*specials, *(f"w{n}" for n in range(WORDS))])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unknown|>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast: Any = PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=TEMPLATE)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=hidden // 64, max_position_embeddings=8192,
        initializer_range=0.1, bos_token_id=None, eos_token_id=1, pad_token_id=None, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def configuration(model: Path, method: str, tasks: int, group: int, **sections: Any) -> TrainConfig:
    """A training configuration on the CPU with the paper's settings of the method, but for what is given."""
    settings: dict[str, Any] = {
        "method": method, "suite": "talk", "model": str(model), "updates": 100, "device": "cpu",
        "data": {"panel": "talk/train"}, "protocol": {"name": "talk/talk"},
        "rollout": {"tasks": tasks, "group": group}, "checkpoints": {"every": 0},
    }  # fmt: skip
    made = TrainConfig.model_validate(merged(settings, sections))
    return made.model_copy(update={"options": make_method(made).settings.model_dump(mode="json")})


@dataclass(slots=True)
class Bench:
    """A method with the parts that the loop gives it, phase by phase. Times are CPU seconds of the whole process."""

    config: TrainConfig
    out: Path
    trainee: Trainee = field(init=False)
    tools: Toolbox = field(init=False)
    updater: Updater = field(init=False)
    method: Any = field(init=False)
    times: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.method = make_method(self.config)
        self.trainee = load_trainee(self.config, self.config.model, reference=self.method.needs_reference)
        self.trainee.loaded = replace(self.trainee.loaded, eos=())
        panel, protocol = load_panel(self.config.data.panel), agent_protocol(self.config)
        self.tools = Toolbox(self.config, panel, protocol, self.out, self.trainee, self.method, TrainView())
        self.updater = Updater(self.trainee, self.method, self.config, self.config.updates)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the block's time to a phase."""
        start = time.process_time()
        yield
        self.times.setdefault(phase, []).append(time.process_time() - start)

    def rollouts(self, number: int) -> Batch:
        """Phase rollout."""
        with self.timed("rollout"):
            batch: Batch = self.method.gather(self.tools, number)
        return batch

    def signals(self, batch: Batch) -> dict[str, float]:
        """Phases reference, and signals: advantages, skills and what else the method wants."""
        with self.timed("reference"):
            if self.method.needs_reference:
                self.tools.fill_reference(batch.samples)
        with self.timed("signals"):
            figures: dict[str, float] = self.method.signals(batch, self.tools)
        return figures

    def update(self, batch: Batch, number: int) -> None:
        """Phase update."""
        with self.timed("update"):
            self.updater.update(batch.samples, number)
