"""A model behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, a hosted service...

Only fields that every such server knows are sent; `top_k` and `chat_template_kwargs` where the protocol sets
them. vLLM and SGLang fill what a request leaves out with the checkpoint's own sampling defaults (a top-k, a
repetition penalty), so these two are told explicitly that there are none. What this cannot promise: a
server's answers may depend on its load, and some servers ignore `seed`.

Stop strings. The contract is that the stop string stays in the response, but servers cut it off, and most do
not say whether it was that string or the end-of-sequence token that ended the answer; guessing would close
tags that the model left open. So `stop` is sent only to servers that report it: vLLM (`stop_reason`) and
SGLang (`matched_stop`), both known by `owned_by` in their model list; the string they name is appended again.
Every other server generates to its natural end, the text is cut here behind the first stop string,
and the generated tokens it counted include the part that was cut.

A server that strips the thinking part from the content (a "reasoning parser") hides it from the protocol's
parser: start the server without one.
"""

import asyncio
import hashlib
import os
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response, Sampling
from seedbench.policies.openai_wire import (
    Refusal,
    Served,
    back_off,
    overflows,
    read_models,
    read_reply,
    retry_after,
)
from seedbench.ui.text import inert

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_FATAL = frozenset({301, 302, 307, 308, 401, 403, 404, 405})
_KEY_VARIABLE = "OPENAI_API_KEY"
_CONNECT_SECONDS = 10.0
_NO_DEFAULTS = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


class OpenAIPolicy(Policy):
    """Answers with the chat completions of a server.

    `url`: the API's base, e.g. `http://host:8000/v1`; `#name` behind it chooses the model, as `model` does;
    without either the server must serve exactly one. `timeout`: seconds for one whole reply. `retries`:
    further attempts after a failure that may pass. `concurrency`: most requests under way at once.
    `back_off_seconds`: mean wait before the first retry; it doubles each time, up to 30 s.
    The API key is read from the environment variable OPENAI_API_KEY and appears nowhere.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        timeout: float = 120.0,
        retries: int = 6,
        concurrency: int = 16,
        back_off_seconds: float = 0.5,
    ) -> None:
        base, _, fragment = url.partition("#")
        parts = _address(url, base)
        if timeout <= 0 or retries < 0 or concurrency < 1:
            raise UsageError("timeout must be positive, retries at least 0 and concurrency at least 1.")
        self._base = base.rstrip("/")
        # What is shown leaves out a user name, password or query.
        host = parts.netloc.rpartition("@")[2]
        self._shown = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._wanted = model or fragment or None
        self.name = (self._wanted or host).rpartition("/")[2]
        self._timeout = timeout
        self._retries = retries
        self._back_off_seconds = back_off_seconds
        self._slots = asyncio.Semaphore(concurrency)
        self._key = os.environ.get(_KEY_VARIABLE, "")
        self._client: httpx.AsyncClient | None = None
        self._served: Served | None = None

    async def open(self) -> None:
        """Ask the server what it serves. Raises SeedBenchError where it is unreachable or refuses the key."""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(self._timeout, connect=min(self._timeout, _CONNECT_SECONDS)),
            limits=httpx.Limits(max_connections=None),  # the semaphore is the bound
        )
        try:
            self._served = self._choose(await self._list_models(client))
        except SeedBenchError:
            await self.close()
            raise
        self.name = self._served.model.rstrip("/").rpartition("/")[2]

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def identity(self) -> dict[str, Any]:
        """The served model's name, the kind of server and its context length. After `open`.

        Neither the address nor the weights: a server does not show its weights, so a run's reader must
        trust the model's name. A name that is a path on the server's machine is given as its last part and
        a hash of the whole.
        """
        served = self._ready()[1]
        model = served.model
        if model.startswith("/"):
            model = f"{self.name}@{hashlib.sha256(model.encode()).hexdigest()[:12]}"
        return {
            "kind": "openai",
            "name": self.name,
            "model": model,
            "server": served.owner,
            "context": served.context,
        }

    async def act(self, request: Request) -> Response:
        """Answer one request.

        Raises ContextOverflow, PolicyFault after the last retry, SeedBenchError where the server refuses the key, the
        model or the address, and UsageError where the protocol decodes among admissible actions.
        """
        if request.sampling.decode != "free":
            raise UsageError(
                f"the protocol lets a model choose among the admissible actions only, which {self._shown} cannot be"
                " held to: use a checkpoint folder, or a protocol whose decode is 'free'."
            )
        body = self._body(request.messages, request.sampling, request.seed)
        problem = "no attempt"
        for attempt in range(self._retries + 1):
            wait: float | None = None
            try:
                reply = await self._post(body)
                if reply.status_code == httpx.codes.OK:
                    return read_reply(reply, request.sampling)
                problem, wait = self._refused(reply)
            except TimeoutError:
                problem = f"no reply within {self._timeout:g} s"
            except httpx.HTTPError as error:
                problem = f"the connection failed ({type(error).__name__})"
            except Refusal as error:
                problem = str(error)
            if attempt < self._retries:
                await asyncio.sleep(back_off(request.seed, attempt, self._back_off_seconds, wait))
        raise PolicyFault(f"{self._shown} gave no answer in {self._retries + 1} attempts: {problem}.")

    async def _list_models(self, client: httpx.AsyncClient) -> httpx.Response:
        try:
            return await asyncio.wait_for(client.get(f"{self._base}/models"), self._timeout)
        except (httpx.HTTPError, TimeoutError) as error:
            raise SeedBenchError(
                f"{self._shown} does not answer ({type(error).__name__}): start the server, or correct the "
                "address (it usually ends in /v1)."
            ) from error

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        client, _ = self._ready()
        # A slot is held for the exchange only, so that one that waits to retry does not block the others.
        async with self._slots, asyncio.timeout(self._timeout):
            return await client.post(f"{self._base}/chat/completions", json=body)

    def _ready(self) -> tuple[httpx.AsyncClient, Served]:
        if self._client is None or self._served is None:
            raise RuntimeError("the policy is not open")
        return self._client, self._served

    def _body(self, messages: tuple[Any, ...], sampling: Sampling, seed: int) -> dict[str, Any]:
        served = self._ready()[1]
        body: dict[str, Any] = {
            "model": served.model,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": seed % 2**31,
        }
        if messages and messages[-1].role == "assistant":
            if not served.is_known:
                raise SeedBenchError(
                    f"the protocol lets one answer grow, and {self._shown} is not known to continue a message (vLLM and"
                    " SGLang are): use such a server, or a protocol whose context is 'window' or 'chat'."
                )
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        if served.is_known:
            body |= _NO_DEFAULTS
            if sampling.stop:
                body["stop"] = list(sampling.stop)
        if sampling.top_k > 0:
            body["top_k"] = sampling.top_k
        if sampling.thinking != "default":
            body["chat_template_kwargs"] = {"enable_thinking": sampling.thinking == "on"}
        return body

    def _refused(self, reply: httpx.Response) -> tuple[str, float | None]:
        """The problem in words and the wait the server asks for. Raises where trying again is pointless."""
        text = self._words(reply)
        if overflows(reply.status_code, text):
            raise ContextOverflow(f"the server says that the prompt is too long: {text}")
        if reply.status_code in _FATAL:
            raise self._fatal(reply.status_code, text)
        problem = f"status {reply.status_code}: {text}"
        if reply.status_code not in _RETRIED:
            raise PolicyFault(f"{self._shown} refused the request, {problem}")
        return problem, retry_after(reply.headers)

    def _choose(self, reply: httpx.Response) -> Served:
        status = reply.status_code
        if status in {404, 405} and self._wanted is not None:
            # Some gateways list nothing; a wrong address then shows at the first request.
            return Served(self._wanted, "", None)
        if status in _FATAL:
            raise self._fatal(status, self._words(reply))
        if status != httpx.codes.OK:
            raise SeedBenchError(
                f"{self._shown} is not ready (status {status}: {self._words(reply)}): wait until it serves."
            )
        models = read_models(reply)
        if models is None:
            raise SeedBenchError(
                f"{self._shown}/models is no model list: give the base address of an OpenAI-compatible "
                "server (it usually ends in /v1)."
            )
        names = [served.model for served in models]
        if self._wanted is not None:
            if self._wanted not in names:
                raise unknown("model", self._wanted, names)
            return models[names.index(self._wanted)]
        if len(models) != 1:
            listing = ", ".join(inert(name, 80) for name in sorted(names)) or "none"
            raise UsageError(
                f"{self._shown} serves {len(models)} models ({listing}): name one, as in {self._shown}#MODEL."
            )
        return models[0]

    def _fatal(self, status: int, text: str) -> SeedBenchError:
        if status in {401, 403}:
            state = "it was sent" if self._key else "it is not set"
            return SeedBenchError(f"{self._shown} refuses access (status {status}): check {_KEY_VARIABLE} ({state}).")
        return SeedBenchError(
            f"{self._shown} has no chat completions for this model (status {status}: {text}): check the "
            "address (it usually ends in /v1) and the model's name."
        )

    def _words(self, reply: httpx.Response) -> str:
        text = " ".join(reply.text.split())
        return inert(text.replace(self._key, "***") if self._key else text, 300) or "no text"


def _address(url: str, base: str) -> SplitResult:
    try:
        parts = urlsplit(base)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        httpx.URL(base)
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise UsageError(f"'{url}' is not a server's address: expected e.g. http://localhost:8000/v1.")
    return parts
