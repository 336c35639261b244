"""A real `vllm serve` on 127.0.0.1 for tests, and the log-probabilities that it must give."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

PARITY = 1e-4
"""Most that a log-probability may differ between engines in float32."""


def expected_logprobs(folder: Path, ids: list[int]) -> list[float]:
    """(T - 1,) log-probability of each of (T,) ids but the first, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = model.eval()(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    return [float(row[token]) for row, token in zip(logits, ids[1:], strict=True)]


@contextmanager
def serving(folder: Path, name: str, log: Path) -> Iterator[str]:
    """Serve a checkpoint and give the API's base address; the server's output goes to `log`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    options = [
        f"--port={port}", "--host=127.0.0.1", f"--served-model-name={name}", "--dtype=float32", "--enforce-eager",
        "--logprobs-mode=processed_logprobs", "--generation-config=vllm", "--max-model-len=4096",
        "--no-enable-chunked-prefill", "--worker-extension-cls=seedbench.policies.vllm_worker.Reloading",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with log.open("wb") as output:
        server = subprocess.Popen(
            # Not the command `vllm serve`: in vllm-cpu 0.32 it asks for the version of a package of another name.
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--model={folder}", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            _wait(server, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(60)


def _wait(server: "subprocess.Popen[bytes]", health: str, log: Path) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"vllm serve ended: {log.read_text()[-2000:]}")
        try:
            if httpx.get(health, timeout=5.0).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise TimeoutError(f"vllm serve is not ready: {log.read_text()[-2000:]}")
