"""A checkpoint behind vLLM in this process: the answers of the transformers policy, many at a time.

Prompts are token ids made by the same code (`prompts`), the tokens that end a response are the same, and so are limits,
the text of a response and what is recorded of it. Greedy answers equal those of the transformers policy in float32
except where two tokens are tied to rounding: vLLM computes with other kernels. A request's seed decides its draws, but
they are others than those of the transformers policy: the same distribution, another stream of random numbers. Neither
depends on order or concurrency beyond the rounding that differs between batch shapes (docs/vllm.md has figures).

Not to be had: decoding among the admissible actions. vLLM's structured outputs restrict the text, so that an action may
be spelt in any tokens; the distribution over actions is then another one than that of the transformers policy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import Policy, PolicyFault, Request, Response, Sampled, Sampling
from seedbench.policies.checkpoint import locate, origin_of
from seedbench.policies.loading import DTYPES, Words, identity_of, load_words
from seedbench.policies.prompts import PromptTokens, check_length
from seedbench.policies.sampling import cut_at_stop
from seedbench.policies.vllm_engine import VllmEngine
from seedbench.policies.vllm_setup import EngineSettings
from seedbench.types import Task, Usage
from seedbench.ui.text import inert


class VllmPolicy(Policy):
    """Answers with vLLM's engine.

    `path_or_name`, `adapter`, `name`, `record`: as for `TransformersPolicy`. A LoRA folder is applied by vLLM, not
    merged. `settings`: how the engine runs.
    """

    def __init__(
        self,
        path_or_name: str,
        *,
        adapter: str | None = None,
        name: str | None = None,
        record: bool = False,
        settings: EngineSettings | None = None,
    ) -> None:
        settings = settings or EngineSettings()
        if settings.dtype not in DTYPES:
            raise UsageError(f"unknown dtype '{settings.dtype}': use one of {', '.join(DTYPES)}.")
        if settings.gpus < 1 or not 0 < (1.0 if settings.memory is None else settings.memory) <= 1:
            raise UsageError("vLLM needs at least 1 GPU to spread a model over, and a share of memory in (0, 1].")
        self.name = name or (adapter or path_or_name).rstrip("/").rpartition("/")[2]
        self._source = (path_or_name, adapter)
        self._given_name = name
        self._record = record
        self._settings = settings
        self._engine: VllmEngine | None = None
        self._shared = False
        self._words: Words | None = None
        self._prompts: PromptTokens | None = None
        self._identity: dict[str, Any] = {}

    @classmethod
    def serving(cls, engine: VllmEngine, *, name: str, identity: dict[str, Any], record: bool = False) -> Self:
        """A policy over an engine that runs already; `close` leaves it running. `identity`: what it says of itself."""
        policy = cls(str(engine.checkpoint.model), name=name, record=record, settings=engine.settings)
        policy._engine, policy._shared, policy._identity = engine, True, {**identity, "name": name}
        return policy

    async def open(self) -> None:
        """Start the engine. Raises UsageError or SeedBenchError where it cannot serve the checkpoint."""
        await asyncio.to_thread(self._start)

    async def close(self) -> None:
        """Shut the engine down, or leave one that is shared."""
        engine, self._prompts = self._engine, None
        if engine is not None and not self._shared:
            self._engine = None
            await asyncio.to_thread(engine.close)

    def identity(self) -> dict[str, Any]:
        """As of the transformers policy, with the engine's version. After `open`."""
        if not self._identity:
            raise RuntimeError("the policy is not open")
        return dict(self._identity)

    async def act(self, request: Request) -> Response:
        """Answer one request.

        Raises ContextOverflow, PolicyFault, UsageError where the protocol restricts decoding, SeedBenchError where no
        request can be answered any more.
        """
        if request.sampling.decode != "free":
            raise UsageError(
                "the protocol lets a model choose among the admissible actions only, which vLLM does not draw from the"
                " same distribution: give the checkpoint without 'vllm:', or use a protocol whose decode is 'free'."
            )
        engine, words, prompts = self._ready()
        ids = prompts.prompt(request)
        if not ids or max(ids) >= words.vocabulary:
            raise SeedBenchError(
                f"the tokenizer of {self.name} does not belong to its weights: it gave token "
                f"{max(ids, default=-1)}, the model has {words.vocabulary}; copy both from one checkpoint."
            )
        check_length(len(ids), request.sampling, words.context)
        if len(ids) + request.sampling.max_new_tokens > engine.context:
            raise PolicyFault(
                f"{len(ids)} prompt tokens and {request.sampling.max_new_tokens} new ones exceed the {engine.context}"
                " for which vLLM has memory, not the model's context"
            )
        try:
            output = await engine.generate(ids, _parameters(request, words.eos, self._record))
        except Exception as error:
            raise _fault(error) from error
        return self._response(request, ids, output.outputs[0])

    def forget(self, task: Task, repeat: int) -> None:
        """Drop the tokens of an episode; vLLM's cache of prefixes looks after itself."""
        if self._prompts is not None:
            self._prompts.forget(task.sha256, repeat)

    def update_weights(self, folder: str | Path) -> None:
        """Go on with other weights of the same architecture (`VllmEngine.update_weights`); the identity follows."""
        engine, _, _ = self._ready()
        engine.update_weights(folder)
        self._describe(engine)

    def _start(self) -> None:
        if self._engine is None:
            engine = VllmEngine(locate(*self._source), self._settings)
            self._words = load_words(engine.checkpoint)  # a damaged tokenizer shows before the model is loaded
            engine.start()
            self._engine = engine
            self._describe(engine)
        elif self._words is None:
            self._words = load_words(self._engine.checkpoint)
        checkpoint, words = self._engine.checkpoint, self._words
        self.gpus, self.origin = self._engine.gpus, origin_of(checkpoint.adapter or checkpoint.model)
        self.name = self._identity["name"]
        self._prompts = PromptTokens(words.tokenizer, words.template, name=self.name, eos=words.eos)

    def _describe(self, engine: VllmEngine) -> None:
        words = self._words
        assert words is not None, "described once the tokenizer is loaded"
        self._identity = {
            **identity_of(engine.checkpoint, words.tokenizer, words.template, words.eos, engine.dtype),
            "kind": "vllm",
            "name": self._given_name or engine.checkpoint.name,
            "vllm": engine.version.partition("+")[0],
        }

    def _ready(self) -> tuple[VllmEngine, Words, PromptTokens]:
        if self._engine is None or self._words is None or self._prompts is None:
            raise RuntimeError("the policy is not open")
        return self._engine, self._words, self._prompts

    def _response(self, request: Request, prompt: list[int], said: Any) -> Response:
        """`said`: a `vllm.CompletionOutput`."""
        _, words, prompts = self._ready()
        ids = list(said.token_ids)
        text = str(words.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        text, cut = cut_at_stop(text, request.sampling.stop)
        prompts.said(request, ids, text)
        return Response(
            text=text,
            usage=Usage(len(prompt), len(ids)),
            finish_reason="stop" if cut or (ids and ids[-1] in words.eos) else "length",
            sampled=Sampled(tuple(prompt), tuple(ids), _logprobs(ids, said.logprobs)) if self._record else None,
        )


def _parameters(request: Request, eos: tuple[int, ...], record: bool) -> Any:
    """`vllm.SamplingParams` with every default named that could change an answer."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling: Sampling = request.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=request.seed,
        max_tokens=sampling.max_new_tokens,
        stop=[stop for stop in sampling.stop if stop],
        stop_token_ids=list(eos),
        ignore_eos=True,  # those above are all that end a response
        include_stop_str_in_output=True,
        skip_special_tokens=True,
        logprobs=0 if record and sampling.temperature > 0 else None,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _logprobs(ids: list[int], recorded: Any) -> tuple[float, ...]:
    """(R,) log-probabilities of the ids; 0 where decoding was greedy, as the contract has it."""
    if recorded is None:
        return (0.0,) * len(ids)
    return tuple(float(entry[token].logprob) for token, entry in zip(ids, recorded, strict=True))


def _fault(error: Exception) -> Exception:
    """What an engine's exception means: the engine is gone, or this one request could not be answered."""
    reason = inert(f"{type(error).__name__}: {error}", 300)
    if "EngineDead" in type(error).__name__:
        return SeedBenchError(
            f"vLLM's engine has died ({reason}): its log above says why; run the same command again, it continues."
        )
    return PolicyFault(f"vLLM did not answer ({reason})")
