"""`vllm serve` on other machines: answers over HTTP, weights from a folder that the servers see too.

SeedBench must be installed where they run. Their development mode opens the addresses used here to everyone who reaches
them: keep them in a private network. vLLM's own weight transfer (NCCL, CUDA IPC) needs GPUs on both sides and is not
used.

    VLLM_SERVER_DEV_MODE=1 vllm serve FOLDER --served-model-name NAME --logprobs-mode processed_logprobs \
        --worker-extension-cls seedbench.policies.vllm_worker.Reloading
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from seedbench.errors import SeedBenchError
from seedbench.policies.checkpoint import Checkpoint, locate
from seedbench.policies.openai import OpenAIPolicy
from seedbench.policies.openai_servers import KEY_VARIABLE, Server, servers_at
from seedbench.policies.openai_wire import nested, read_json
from seedbench.policies.vllm_setup import EXTENSION, check_fits


class Served:
    """A `RolloutEngine` over servers that serve `checkpoint`; full weights only, as LoRA adapters have names there.

    `addresses`: as for `OpenAIPolicy`. `timeout`: seconds for one answer, and for one
    server to load weights.
    """

    def __init__(self, addresses: str, checkpoint: str, *, timeout: float = 600.0, concurrency: int = 64) -> None:
        self._addresses = addresses
        self._checkpoint: Checkpoint = locate(checkpoint)
        self._timeout, self._concurrency = timeout, concurrency
        self._servers = servers_at(addresses.partition("#")[0], os.environ.get(KEY_VARIABLE, ""))

    def policy(self, *, name: str, identity: dict[str, Any], record: bool = False) -> OpenAIPolicy:
        """See `RolloutEngine`. `name` and `identity` are the server's to say."""
        return OpenAIPolicy(self._addresses, timeout=self._timeout, concurrency=self._concurrency, record=record)

    def release(self) -> None:
        """Nothing: the servers' memory is their own."""

    def update(self, folder: Path) -> None:
        """See `RolloutEngine`. Servers load one after the other; each waits for what it is answering."""
        new = locate(str(folder))
        check_fits(self._checkpoint, new)
        weights = {"method": "reload_checkpoint", "kwargs": {"folder": str(new.model.resolve())}}
        for server in self._servers:
            self._post(server, "/pause?mode=wait")
            try:
                self._post(server, "/collective_rpc", weights)
                cleared = self._post(server, "/reset_prefix_cache")
            finally:
                self._post(server, "/resume")
            if nested(cleared, "success") is not True:
                raise SeedBenchError(
                    f"{server.shown} still uses keys and values of the old weights: let nothing else ask that server"
                    " while a run trains with it."
                )
        self._checkpoint = new

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """See `RolloutEngine`; by the first server."""
        server = self._servers[0]
        listed = nested(self._request(server, "GET", "/v1/models"), "data")
        body = {
            "model": listed[0]["id"] if listed else "",
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
        choice = self._post(server, "/v1/completions", body)["choices"][0]
        return [
            float(entry[str(token)]["logprob"])
            for token, entry in zip(ids[1:], choice["prompt_logprobs"][1:], strict=True)
        ]

    def close(self) -> None:
        """Nothing: whoever started the servers stops them."""

    def _post(self, server: Server, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._request(server, "POST", path, body)

    def _request(self, server: Server, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON value of a reply, or None. Raises SeedBenchError where the server does not do it."""
        headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}
        root = server.base.removesuffix("/v1")
        try:
            reply = httpx.request(method, f"{root}{path}", json=body, headers=headers, timeout=self._timeout)
        except httpx.HTTPError as error:
            raise SeedBenchError(
                f"{server.shown} did not take the new weights ({type(error).__name__}): start it again on the run's"
                " last checkpoint, and the run too; it continues."
            ) from error
        if reply.status_code != httpx.codes.OK:
            raise SeedBenchError(
                f"{server.shown} refused {path} (status {reply.status_code}: {server.words(reply)}): start it in"
                f" development mode with {EXTENSION} (docs/vllm.md), where the folder with the weights can be read"
                " under the same path."
            )
        return read_json(reply)
