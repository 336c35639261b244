"""A checkpoint behind `transformers`: answers of a Hugging Face or LoRA folder on this machine.

What is promised: an answer depends on the request alone (messages, sampling, seed). In float32 the same
requests give the same answers for every batch size, order and concurrency, except where two tokens are tied
to the rounding of a matrix product, which may differ between batch shapes in the last bit. In bfloat16 and
float16 such near-ties are common: give one batch size there, and expect single answers to differ.

One worker thread owns the model and the tokenizer. A batch is padded on the left and masked by lengths; it
runs until its last row ends. The KV cache is not kept between turns: protocols may rewrite the prompt.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, cast

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response, Sampling
from seedbench.policies.batching import Batcher
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import DTYPES, Loaded, load
from seedbench.policies.sampling import RowEnds, RowSampler, cut_at_stop
from seedbench.types import Usage
from seedbench.ui.text import inert


class TransformersPolicy(Policy):
    """Answers with a causal language model.

    `path_or_name`: a model folder, a LoRA folder or a name on the model hub. `adapter`: a LoRA folder to put
    on that model. `device`: auto, cpu, cuda or cuda:N. `dtype`: auto, float32, bfloat16 or float16.
    `batch_size`: most rows in one batch; where memory runs out it is halved for the rest of the run.
    """

    def __init__(
        self,
        path_or_name: str,
        *,
        batch_size: int = 16,
        device: str = "auto",
        dtype: str = "auto",
        adapter: str | None = None,
        name: str | None = None,
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"batch size {batch_size}: it must be at least 1.")
        if dtype not in DTYPES:
            raise UsageError(f"unknown dtype '{dtype}': use one of {', '.join(DTYPES)}.")
        self.name = name or (adapter or path_or_name).rstrip("/").rpartition("/")[2]
        self._source = (path_or_name, adapter)
        self._given_name = name
        self._placement = {"device": device, "dtype": dtype}
        self._loaded: Loaded | None = None
        self._cancelled = Event()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="seedbench-model")
        self._batcher: Batcher[Request, Response] = Batcher(
            self._answer, worker=self._worker, limit=batch_size, group=lambda request: request.sampling
        )

    async def open(self) -> None:
        """Load the checkpoint. Raises UsageError or SeedBenchError where it cannot be used."""
        loop = asyncio.get_running_loop()
        self._loaded = await loop.run_in_executor(self._worker, self._load)
        self.name = self._loaded.identity["name"]

    async def close(self) -> None:
        """Drop waiting requests; a batch that is running ends at its next token."""
        self._cancelled.set()
        await self._batcher.close()
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._loaded = None

    def identity(self) -> dict[str, Any]:
        """Hashes of weights, configuration, tokenizer, template and adapter; dtype; versions. After `open`."""
        return dict(self._ready().identity)

    async def act(self, request: Request) -> Response:
        """Answer one request; it shares a batch with what else is waiting.

        Raises ContextOverflow, PolicyFault, or SeedBenchError where no request of this kind can be answered.
        """
        return await self._batcher.submit(request)

    def _load(self) -> Loaded:
        checkpoint = locate(*self._source)
        loaded = load(checkpoint, **self._placement)
        if self._given_name is not None:
            loaded.identity["name"] = self._given_name
        return loaded

    def _ready(self) -> Loaded:
        if self._loaded is None:
            raise RuntimeError("the policy is not open")
        return self._loaded

    def _answer(self, batch: list[Request]) -> list[Response | Exception]:
        """Answer requests of equal sampling, in the worker thread."""
        answers: dict[int, Response | Exception] = {}
        prompts: dict[int, list[int]] = {}
        for index, request in enumerate(batch):
            try:
                prompts[index] = self._encode(request)
            except (SeedBenchError, ContextOverflow, PolicyFault) as error:
                answers[index] = error
        rows = list(prompts)
        generated = self._generate_or_halve(
            [prompts[row] for row in rows], [batch[row].seed for row in rows], batch[0].sampling
        )
        answers.update(zip(rows, generated, strict=True))
        return [answers[index] for index in range(len(batch))]

    def _encode(self, request: Request) -> list[int]:
        """Token ids of the rendered prompt, after every limit has been checked.

        An assistant message at the end is one that the answer continues: its text follows the generation prompt.
        """
        loaded = self._ready()
        grown = request.messages[-1].content if request.messages[-1].role == "assistant" else ""
        messages = [
            {"role": message.role, "content": message.content}
            for message in (request.messages[:-1] if grown else request.messages)
        ]
        options = _thinking_options(request.sampling.thinking, loaded.template, self.name)
        try:
            text = loaded.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options)
        except Exception as error:  # a template raises what its author likes
            raise SeedBenchError(
                f"the chat template of {self.name} refuses the prompt ({inert(str(error), 200)}): "
                "use a protocol whose message roles it accepts."
            ) from error
        # The template writes every special token itself.
        encoded = loaded.tokenizer(f"{text}{grown}", add_special_tokens=False)
        ids = cast("list[int]", encoded["input_ids"])
        if not ids or max(ids) >= loaded.vocabulary:
            raise SeedBenchError(
                f"the tokenizer of {self.name} does not belong to its weights: it gave token "
                f"{max(ids, default=-1)}, the model has {loaded.vocabulary}; copy both from one checkpoint."
            )
        _check_length(len(ids), request.sampling, loaded.context)
        return ids

    def _generate_or_halve(
        self, prompts: list[list[int]], seeds: list[int], sampling: Sampling
    ) -> list[Response | Exception]:
        """Generate; where memory runs out, again in halves. One row that does not fit is a fault."""
        if not prompts:
            return []
        try:
            return self._generate(prompts, seeds, sampling)
        except Exception as error:  # whatever the engine raises is the fault of these requests only
            if not _is_out_of_memory(error):
                reason = inert(f"{type(error).__name__}: {error}", 300)
                return [PolicyFault(f"generation failed ({reason}).") for _ in prompts]
        # Outside the handler: its traceback would keep the failed batch's tensors alive.
        _release_memory()
        half = len(prompts) // 2
        if half == 0:
            return [PolicyFault(f"out of memory for a single prompt of {len(prompts[0])} tokens.")]
        self._batcher.limit = min(self._batcher.limit, half)
        first = self._generate_or_halve(prompts[:half], seeds[:half], sampling)
        return first + self._generate_or_halve(prompts[half:], seeds[half:], sampling)

    def _generate(self, prompts: list[list[int]], seeds: list[int], sampling: Sampling) -> list[Response | Exception]:
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        loaded = self._ready()
        width = max(len(ids) for ids in prompts)
        padded = [[loaded.pad] * (width - len(ids)) + ids for ids in prompts]
        mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
        ends = RowEnds(
            len(prompts),
            width,
            eos=loaded.eos,
            stops=sampling.stop,
            decode=self._decode,
            cancelled=self._cancelled,
        )
        with torch.inference_mode():
            output = loaded.model.generate(
                torch.tensor(padded, device=loaded.model.device),  # (B, T)
                attention_mask=torch.tensor(mask, device=loaded.model.device),
                max_new_tokens=sampling.max_new_tokens,
                logits_processor=LogitsProcessorList([RowSampler(sampling, seeds)]),
                stopping_criteria=StoppingCriteriaList([ends]),
            )
        rows = cast("list[list[int]]", output[:, width:].tolist())
        return [
            self._response(len(prompt), row, length, sampling.stop)
            for prompt, row, length in zip(prompts, rows, ends.lengths, strict=True)
        ]

    def _response(self, prompt_tokens: int, row: list[int], length: int | None, stops: tuple[str, ...]) -> Response:
        tokens = row if length is None else row[:length]
        text, cut = cut_at_stop(self._decode(tokens), stops)
        return Response(
            text=text,
            usage=Usage(prompt_tokens, len(tokens)),
            finish_reason="stop" if cut or length is not None else "length",
        )

    def _decode(self, tokens: list[int]) -> str:
        tokenizer = self._ready().tokenizer
        return str(tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _thinking_options(thinking: str, template: str, name: str) -> dict[str, bool]:
    """Arguments of the chat template for a protocol's thinking mode (on, off or default)."""
    if thinking == "default":
        return {}
    if "enable_thinking" in template:
        return {"enable_thinking": thinking == "on"}
    if thinking == "on":
        raise UsageError(
            f"the protocol turns thinking on, but the chat template of {name} has no such switch: "
            "use a protocol with thinking = 'default'."
        )
    return {}


def _check_length(tokens: int, sampling: Sampling, context: int | None) -> None:
    limit = sampling.max_prompt_tokens
    if 0 < limit < tokens:
        raise ContextOverflow(f"the prompt has {tokens} tokens, the protocol allows {limit}.")
    if context is not None and tokens + sampling.max_new_tokens > context:
        raise ContextOverflow(
            f"{tokens} prompt tokens and {sampling.max_new_tokens} new ones exceed the model's context of {context}."
        )


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    # The CPU allocator has no exception class of its own.
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error)


def _release_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
