"""vLLM's engine in this process's keeping: started, asked, given new weights, shut down.

The engine runs in an event loop and a thread of its own, so that policies of several event loops (one an iteration of a
training run) can share it. It batches continuously whatever has been asked, and keeps the keys and values of prompts
that begin alike (prefix caching). Its processes write warnings and errors only, and send nothing anywhere.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from seedbench.errors import SeedBenchError
from seedbench.policies.checkpoint import Checkpoint, locate
from seedbench.policies.vllm_setup import (
    ENVIRONMENT,
    EngineSettings,
    arguments,
    check_fits,
    not_started,
    platform,
    reason_of,
)

T = TypeVar("T")


class VllmEngine:
    """A running engine for one checkpoint. `start` and `close` once each; the rest in between, from any thread."""

    def __init__(self, checkpoint: Checkpoint, settings: EngineSettings) -> None:
        self.checkpoint = checkpoint
        self.settings = settings
        self.dtype: Any = None
        """torch dtype of the weights, once started."""
        self.context = 0
        """Longest sequence that fits its memory, in tokens, once started."""
        self.gpus = 0
        self.version = ""
        self._numbers = itertools.count(1)
        self._adapter: Any = None
        self._asleep = False
        self._engine: Any = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: Thread | None = None

    def start(self) -> None:
        """Load the model. Raises SeedBenchError or UsageError where vLLM is missing or cannot serve it."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        settings = arguments(self.checkpoint, self.settings)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="seedbench-vllm", daemon=True)
        self._thread.start()
        try:
            self._engine = self.call(_started(settings))
        except Exception as error:  # of torch, safetensors, pydantic, the engine's processes
            self.close()
            raise not_started(self.checkpoint, error) from error
        import vllm

        config = self._engine.vllm_config
        self.dtype, self.context = config.model_config.dtype, config.model_config.max_model_len
        self.gpus, self.version = self.settings.gpus if platform() != "cpu" else 0, vllm.__version__
        self._adapter = self._request(self.checkpoint.adapter)

    def close(self) -> None:
        """Shut the engine and its processes down."""
        try:
            if self._engine is not None:
                self.call(self._stop())
        finally:
            self._engine = None
            if self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
                self._thread = None

    async def generate(self, prompt: Sequence[int], parameters: Any) -> Any:
        """The finished `vllm.RequestOutput` of a prompt's ids under `vllm.SamplingParams`. Raises what vLLM raises."""
        return await asyncio.wrap_future(self._submit(self._generate(prompt, parameters)))

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """(T - 1,) natural log-probability of each of (T,) ids but the first, given those before it."""
        from vllm import SamplingParams

        parameters = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        output = self.call(self._generate(ids, parameters))
        return [float(entry[token].logprob) for token, entry in zip(ids[1:], output.prompt_logprobs[1:], strict=True)]

    def sleep(self) -> None:
        """Give the GPU's memory back until `update_weights`; nothing may be under way. Without a GPU, do nothing."""
        if self.settings.sleep and self.gpus:
            self.call(self._engine.sleep(level=2))  # the weights are not kept: new ones follow
            self._asleep = True

    def update_weights(self, folder: str | Path) -> Checkpoint:
        """Go on with the weights of another folder of the same architecture, whole or LoRA; nothing may be under way.

        Returns the folder as a checkpoint. Raises UsageError where it does not fit, SeedBenchError where it cannot be
        read; the old weights stay then.
        """
        new = locate(str(folder))
        check_fits(self.checkpoint, new)
        try:
            self.call(self._update(new))
        except Exception as error:
            raise SeedBenchError(
                f"vLLM did not take the weights of '{folder}' ({reason_of(error)}): what it serves now is undefined;"
                " start the run again, it continues from its last checkpoint."
            ) from error
        self.checkpoint = new
        return new

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the engine's loop and wait for it."""
        return self._submit(work).result()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _stop(self) -> None:
        self._engine.shutdown()
        await asyncio.sleep(0)  # its own tasks see that they are cancelled while there is a loop

    async def _generate(self, prompt: Sequence[int], parameters: Any) -> Any:
        number = f"seedbench-{next(self._numbers)}"
        answers = self._engine.generate(
            {"prompt_token_ids": list(prompt)}, parameters, number, lora_request=self._adapter
        )
        return [answer async for answer in answers][-1]

    async def _update(self, new: Checkpoint) -> None:
        engine = self._engine
        if self._asleep:
            await engine.wake_up(tags=["weights"])
        if new.adapter is None:
            await engine.collective_rpc("reload_checkpoint", kwargs={"folder": str(new.model.resolve())})
        else:
            adapter = self._request(new.adapter)
            await engine.add_lora(adapter)
            await engine.remove_lora(self._adapter.lora_int_id)
            self._adapter = adapter
        if self._asleep:
            await engine.wake_up(tags=["kv_cache"])
            self._asleep = False
        if not await engine.reset_prefix_cache():
            raise RuntimeError("keys and values of the old weights are still in use")

    def _request(self, adapter: Path | None) -> Any:
        """What names an adapter in requests. Each has a number of its own, by which vLLM tells cached keys apart."""
        if adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)
        return LoRARequest(f"adapter-{number}", number, str(adapter.resolve()))


async def _started(arguments: dict[str, Any]) -> Any:
    from vllm import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    # The batch sizes of offline use: there is no reader who waits for a first token.
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), usage_context=UsageContext.LLM_CLASS)
