"""A checkpoint behind `transformers`: answers of a Hugging Face or LoRA folder on this machine.

What is promised: an answer depends on the request alone (messages, sampling, seed, choices) and, in a conversation, on
the tokens that were sampled in it. In float32 the same requests give the same answers for every batch size, order,
concurrency and amount of kept memory, except where two tokens are tied to the rounding of a matrix product, which may
differ between batch shapes in the last bit. In bfloat16 and float16 such near-ties are common: give one batch size
there, and expect single answers to differ.

One worker thread owns the model and the tokenizer. What an episode has been fed and has said (tokens, keys and values)
is kept until its next turn; see `prompts` and `generation`.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Self

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response, Sampled, Sampling
from seedbench.policies.batching import Batcher
from seedbench.policies.checkpoint import locate, origin_of
from seedbench.policies.choices import ChoiceTree
from seedbench.policies.generation import Generated, Generator, Row, is_out_of_memory
from seedbench.policies.loading import DTYPES, Loaded, load
from seedbench.policies.prompts import PromptTokens, check_length
from seedbench.policies.sampling import cut_at_stop
from seedbench.types import Task, Usage
from seedbench.ui.text import inert


@dataclass(frozen=True, slots=True)
class _Open:
    """What answers while the policy is open."""

    loaded: Loaded
    prompts: PromptTokens
    generator: Generator


class TransformersPolicy(Policy):
    """Answers with a causal language model.

    `path_or_name`: a model folder, a LoRA folder or a name on the model hub. `adapter`: a LoRA folder to put
    on that model. `device`: auto, cpu, cuda or cuda:N. `dtype`: auto, float32, bfloat16 or float16.
    `batch_size`: most rows in one batch; where memory runs out it is halved for the rest of the run.
    `record`: responses carry their tokens. `cache_gib`: memory for keys and values kept between turns; 0 keeps none.
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
        record: bool = False,
        cache_gib: float = 2.0,
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"batch size {batch_size}: it must be at least 1.")
        if cache_gib < 0:
            raise UsageError(f"{cache_gib} GiB of kept keys and values: give 0 or more.")
        if dtype not in DTYPES:
            raise UsageError(f"unknown dtype '{dtype}': use one of {', '.join(DTYPES)}.")
        self.name = name or (adapter or path_or_name).rstrip("/").rpartition("/")[2]
        self._source = (path_or_name, adapter)
        self._given_name = name
        self._placement = {"device": device, "dtype": dtype}
        self._batch_size = batch_size
        self._record = record
        self._cache_bytes = int(cache_gib * 2**30)
        self._autocast_dtype: Any = None
        self._shared = False
        self._loaded: Loaded | None = None
        self._open: _Open | None = None
        self._renew()

    @classmethod
    def serving(
        cls,
        loaded: Loaded,
        *,
        name: str,
        identity: dict[str, Any],
        batch_size: int,
        record: bool = False,
        cache_gib: float = 2.0,
        autocast_dtype: Any = None,
    ) -> Self:
        """A policy over a model that is in memory already, e.g. the one that is being trained.

        `open` loads nothing, `close` drops what is kept, waits for a running batch and leaves the model; the two may
        follow each other any number of times. The weights must not change in between. `identity`: what the policy
        says of itself. `autocast_dtype`: the torch dtype in which a float32 model on a GPU generates.
        """
        policy = cls(name, batch_size=batch_size, name=name, record=record, cache_gib=cache_gib)
        policy._loaded = replace(loaded, identity={**identity, "name": name})
        policy._shared = True
        policy._autocast_dtype = autocast_dtype
        return policy

    async def open(self) -> None:
        """Load the checkpoint. Raises UsageError or SeedBenchError where it cannot be used."""
        if self._cancelled.is_set():
            self._renew()
        await asyncio.get_running_loop().run_in_executor(self._worker, self._start)
        self.name = self._described().identity["name"]

    async def close(self) -> None:
        """Drop waiting requests; a batch that is running ends at its next token."""
        self._cancelled.set()
        await self._batcher.close()
        self._worker.shutdown(wait=False, cancel_futures=True)
        if self._shared:  # the owner goes on with the model: nobody may be using it then
            await asyncio.to_thread(self._worker.shutdown)
        else:
            self._loaded = None
        self._open = None

    def identity(self) -> dict[str, Any]:
        """Hashes of weights, configuration, tokenizer, template and adapter; dtype; versions. After `open`."""
        return dict(self._described().identity)

    async def act(self, request: Request) -> Response:
        """Answer one request; it shares a batch with what else is waiting.

        Raises ContextOverflow, PolicyFault, or SeedBenchError where no request of this kind can be answered.
        """
        return await self._batcher.submit(request)

    def forget(self, task: Task, repeat: int) -> None:
        """Drop the tokens, keys and values of an episode."""
        if self._open is not None:
            self._open.prompts.forget(task.sha256, repeat)
            self._open.generator.forget((task.sha256, repeat))

    def _renew(self) -> None:
        """Make what one opening uses up."""
        self._cancelled = Event()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="seedbench-model")
        self._batcher: Batcher[Request, Response] = Batcher(
            self._answer, worker=self._worker, limit=self._batch_size, group=lambda request: request.sampling
        )

    def _start(self) -> None:
        """Load, and make what depends on the model; in the worker thread."""
        if not self._shared:
            checkpoint = locate(*self._source)
            self._loaded = load(checkpoint, **self._placement)
            self.origin = origin_of(checkpoint.adapter or checkpoint.model)
            if self._given_name is not None:
                self._loaded.identity["name"] = self._given_name
        loaded = self._described()
        self.gpus = int(loaded.model.device.type != "cpu")
        prompts = PromptTokens(loaded.tokenizer, loaded.template, name=loaded.identity["name"], eos=loaded.eos)
        generator = Generator(
            loaded,
            record=self._record,
            cache_bytes=self._cache_bytes,
            cancelled=self._cancelled,
            autocast_dtype=self._autocast_dtype,
        )
        self._open = _Open(loaded, prompts, generator)

    def _described(self) -> Loaded:
        if self._loaded is None:
            raise RuntimeError("the policy is not open")
        return self._loaded

    def _ready(self) -> _Open:
        if self._open is None:
            raise RuntimeError("the policy is not open")
        return self._open

    def _answer(self, batch: list[Request]) -> list[Response | Exception]:
        """Answer requests of equal sampling, in the worker thread."""
        answers: dict[int, Response | Exception] = {}
        rows: dict[int, Row] = {}
        trees: dict[tuple[str, ...], ChoiceTree] = {}
        for index, request in enumerate(batch):
            try:
                rows[index] = self._row(request, trees)
            except (SeedBenchError, ContextOverflow, PolicyFault) as error:
                answers[index] = error
        generated = self._generate_or_halve(list(rows.values()), batch[0].sampling)
        for (index, row), said in zip(rows.items(), generated, strict=True):
            answers[index] = said if isinstance(said, Exception) else self._response(batch[index], row, said)
        return [answers[index] for index in range(len(batch))]

    def _row(self, request: Request, trees: dict[tuple[str, ...], ChoiceTree]) -> Row:
        """What to generate from, after every limit has been checked. Equal choices share a tree."""
        loaded = self._ready().loaded
        ids = self._ready().prompts.prompt(request)
        if not ids or max(ids) >= loaded.vocabulary:
            raise SeedBenchError(
                f"the tokenizer of {self.name} does not belong to its weights: it gave token "
                f"{max(ids, default=-1)}, the model has {loaded.vocabulary}; copy both from one checkpoint."
            )
        check_length(len(ids), request.sampling, loaded.context)
        if request.choices and request.choices not in trees:
            trees[request.choices] = ChoiceTree(loaded.tokenizer, request.choices)
        return Row(
            prompt=ids,
            seed=request.seed,
            tree=trees[request.choices] if request.choices else None,
            episode=(request.task.sha256, request.repeat),
        )

    def _generate_or_halve(self, rows: list[Row], sampling: Sampling) -> list[Generated | Exception]:
        """Generate; where memory runs out, again in halves. One row that does not fit is a fault."""
        if not rows:
            return []
        try:
            return list(self._ready().generator.generate(rows, sampling))
        except Exception as error:  # whatever the engine raises is the fault of these requests only
            if not is_out_of_memory(error):
                reason = inert(f"{type(error).__name__}: {error}", 300)
                return [PolicyFault(f"generation failed ({reason}).") for _ in rows]
        # Outside the handler: its traceback would keep the failed batch's tensors alive.
        self._ready().generator.release()
        half = len(rows) // 2
        if half == 0:
            return [PolicyFault(f"out of memory for a single prompt of {len(rows[0].prompt)} tokens.")]
        self._batcher.limit = min(self._batcher.limit, half)
        return self._generate_or_halve(rows[:half], sampling) + self._generate_or_halve(rows[half:], sampling)

    def _response(self, request: Request, row: Row, said: Generated) -> Response:
        tokenizer = self._ready().loaded.tokenizer
        text, cut = row.tree.text(said.ids) if row.tree else None, False
        if text is None:
            text = str(tokenizer.decode(said.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
            text, cut = cut_at_stop(text, () if row.tree else request.sampling.stop)
        self._ready().prompts.said(request, said.ids, text)
        return Response(
            text=text,
            usage=Usage(len(row.prompt), len(said.ids)),
            finish_reason="stop" if cut or said.ended else "length",
            sampled=_sampled(row, said) if self._record else None,
        )


def _sampled(row: Row, said: Generated) -> Sampled:
    return Sampled(
        prompt=tuple(row.prompt),
        ids=tuple(said.ids),
        logprobs=tuple(said.logprobs),
        allowed=row.tree.allowed_along(said.ids) if row.tree else (),
    )
