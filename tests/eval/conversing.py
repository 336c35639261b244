"""Episodes without an environment, for the tests of what is kept between turns."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import torch

from seedbench.policies.base import Request, Response, Sampling
from seedbench.policies.loading import Loaded
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench.types import Message, Task
from tests.eval.asking import WORDS, loaded_parts

SYSTEM = Message("system", "You are in the middle of a room. Your task is to: put a clean mug in coffeemachine.")


def observation(episode: int, turn: int) -> str:
    """What the environment says, in many lengths."""
    return f"{WORDS[(episode + turn) % 4]}. " * (1 + (3 * episode + turn) % 4) + f"Turn {turn}."


def turn_of(episode: int, said: list[str], sampling: Sampling, kind: str, choices: tuple[str, ...] = ()) -> Request:
    """The request of episode number `episode` after it has said `said`; kind: window, chat or completion."""
    turn = len(said)
    seen = [observation(episode, number) for number in range(turn + 1)]
    messages = [SYSTEM]
    if kind == "chat":
        for before, words in zip(seen, said, strict=False):
            messages += [Message("user", before), Message("assistant", words)]
        messages.append(Message("user", seen[-1]))
    elif kind == "window":
        messages.append(Message("user", f"{seen[0]} Before: {said[-2:]}. Now: {seen[-1]}"))
    else:
        messages.append(Message("user", seen[0]))
        if said:
            grown = "".join(f"{words}\n\n{after}\n\n" for words, after in zip(said, seen[1:], strict=True))
            messages.append(Message("assistant", grown))
    return Request(
        task=Task(f"game-{episode}", "look", "train", f"{episode:064}"),
        repeat=0,
        turn=turn,
        seed=1000 * episode + turn,
        messages=tuple(messages),
        sampling=sampling,
        observation=seen[-1],
        admissible_actions=None,
        choices=choices,
    )


def converse(
    policy: TransformersPolicy, sampling: Sampling, kind: str, *, episodes: int = 6, turns: int = 4, choices: Any = ()
) -> list[list[Response]]:
    """The answers of each episode, all episodes at once."""

    async def one(episode: int) -> list[Response]:
        answers: list[Response] = []
        for _ in range(turns):
            request = turn_of(episode, [answer.text for answer in answers], sampling, kind, choices)
            answers.append(await policy.act(request))
        return answers

    async def run() -> list[list[Response]]:
        await policy.open()
        try:
            return await asyncio.gather(*map(one, range(episodes)))
        finally:
            await policy.close()

    return asyncio.run(run())


def loaded(folder: Path, model: Any = None) -> Loaded:
    """The checkpoint, or another model with its tokenizer, as a trainer would hold it."""
    own, tokenizer = loaded_parts(folder)
    model = own if model is None else model
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        template=tokenizer.get_chat_template(),
        eos=(tokenizer.eos_token_id,),
        pad=tokenizer.pad_token_id,
        context=None,
        vocabulary=len(tokenizer),
        identity={},
    )


def teacher_forced(model: Any, answer: Response, temperature: float) -> list[float]:
    """Log-probabilities of an answer's tokens by one pass over prompt and answer, without a cache."""
    sampled = answer.sampled
    assert sampled is not None
    sequence = torch.tensor([[*sampled.prompt, *sampled.ids]])
    with torch.inference_mode():
        logits = model(sequence).logits[0, len(sampled.prompt) - 1 : -1].float() / temperature
    if sampled.allowed:
        barred = torch.ones_like(logits, dtype=torch.bool)
        for place, allowed in enumerate(sampled.allowed):
            barred[place, list(allowed)] = False
        logits = logits.masked_fill(barred, float("-inf"))
    picked: list[float] = logits.log_softmax(-1).gather(1, torch.tensor(sampled.ids)[:, None])[:, 0].tolist()
    return picked


def without_logprobs(answers: list[list[Response]]) -> list[list[Response]]:
    """Answers that may be compared exactly."""

    def plain(answer: Response) -> Response:
        assert answer.sampled is not None
        return dataclasses.replace(answer, sampled=dataclasses.replace(answer.sampled, logprobs=()))

    return [[plain(answer) for answer in episode] for episode in answers]
