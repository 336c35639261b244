"""Requests for the tests of model policies, and what asks them."""

import asyncio
from pathlib import Path
from typing import Any

import torch

from seedbench.policies.base import Policy, Request, Sampling
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench.types import Message, Task

GREEDY = Sampling(temperature=0.0, max_new_tokens=40)
SAMPLED = Sampling(temperature=1.0, max_new_tokens=40)
WORDS = ("go to desk 1", "open the fridge 1 and take the apple 3", "look", "put a clean mug in coffeemachine 1")


def request(sampling: Sampling = GREEDY, number: int = 0, text: str = "") -> Request:
    """Request `number`: a prompt of its own, in many lengths, and a seed of its own."""
    text = text or f"{WORDS[number % 4]}. " * (1 + number % 3) + str(number)
    return Request(
        task=Task("game", "look", "train", "0" * 64),
        repeat=0,
        turn=0,
        seed=2**40 + number,
        messages=(Message("system", "You are in a room."), Message("user", text)),
        sampling=sampling,
        observation="",
        admissible_actions=None,
    )


def ask(policy: Policy, *requests: Request) -> list[Any]:
    """The answers, or exceptions, of concurrent requests to a policy that is opened for them."""

    async def run() -> list[Any]:
        await policy.open()
        try:
            return await asyncio.gather(*(policy.act(one) for one in requests), return_exceptions=True)
        finally:
            await policy.close()

    return asyncio.run(run())


def opened(policy: TransformersPolicy) -> dict[str, Any]:
    """A policy's identity."""

    async def run() -> dict[str, Any]:
        await policy.open()
        try:
            return policy.identity()
        finally:
            await policy.close()

    return asyncio.run(run())


def loaded_parts(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)
