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

Several servers with one model share the requests (`seedbench.balance`); which of them answers is not recorded.

A server that strips the thinking part from the content (a "reasoning parser") hides it from the protocol's
parser: start the server without one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
import zlib
from dataclasses import dataclass
from typing import Any

import httpx

from seedbench.balance import take
from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response, Sampling
from seedbench.policies.openai_servers import (
    CONNECT_SECONDS,
    FATAL,
    KEY_VARIABLE,
    RETRIED,
    NotServing,
    Server,
    another_is_ready,
    servers_at,
)
from seedbench.policies.openai_wire import Refusal, Served, back_off, chat_body, overflows, read_reply, retry_after


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why an attempt failed, in words; another may not."""

    text: str
    wait: float | None = None
    """Seconds that the server asks to wait."""
    unreachable: bool = False


class OpenAIPolicy(Policy):
    """Answers with the chat completions of one or several servers.

    `url`: the API's base, e.g. `http://host:8000/v1`, or several with commas between; `#name` behind it chooses the
    model, as `model` does; without either each server must serve exactly one. `timeout`: seconds for one whole reply,
    and for a server that cannot be reached to come back. `retries`: further attempts after a failure that may pass.
    `concurrency`: most requests under way at once, over all servers. `back_off_seconds`: mean wait before the first
    retry; it doubles each time, up to 30 s. `record`: responses carry their tokens (vLLM only).
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
        record: bool = False,
    ) -> None:
        addresses, _, fragment = url.partition("#")
        if timeout <= 0 or retries < 0 or concurrency < 1:
            raise UsageError("timeout must be positive, retries at least 0 and concurrency at least 1.")
        self._key = os.environ.get(KEY_VARIABLE, "")
        self._servers = servers_at(addresses, self._key)
        self._wanted = model or fragment or None
        self.name = (self._wanted or self._servers[0].shown.split("/")[2]).rpartition("/")[2]
        self._timeout = timeout
        self._retries = retries
        self._back_off_seconds = back_off_seconds
        self._record = record
        self._slots = asyncio.Semaphore(concurrency)
        self._client: httpx.AsyncClient | None = None
        self._served: Served | None = None

    async def open(self) -> None:
        """Ask the servers what they serve; those that do not answer are set aside while at least one does.

        Raises SeedBenchError where none answers, one refuses the key, or they do not all serve the model alike.
        """
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(self._timeout, connect=min(self._timeout, CONNECT_SECONDS)),
            limits=httpx.Limits(max_connections=None),  # the semaphore is the bound
        )
        try:
            await self._ask_all(client)
        except SeedBenchError:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def identity(self) -> dict[str, Any]:
        """The served model's name, the kind of server and its context length. After `open`.

        Neither the addresses nor the weights: a server does not show its weights, so a run's reader must
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
                f"the protocol lets a model choose among the admissible actions only, which {self._servers[0].shown}"
                " cannot be held to: use a checkpoint folder, or a protocol whose decode is 'free'."
            )
        body = chat_body(self._ready()[1], request, record=self._record)
        home = zlib.crc32(f"{request.task.sha256}:{request.repeat}".encode())
        patience = time.monotonic() + self._timeout
        attempt = 0
        while True:
            # A slot is held for the exchange only, so that one that waits to retry does not block the others.
            async with self._slots:
                server = take(self._servers, home)
                try:
                    answer = await self._attempt(server, body, request.sampling)
                finally:
                    server.under_way -= 1
            if isinstance(answer, Response):
                server.answered()
                return answer
            wait = back_off(request.seed, attempt, self._back_off_seconds, answer.wait)
            aside = back_off(request.seed, server.failures, self._back_off_seconds, answer.wait)
            server.set_aside(aside, unreachable=answer.unreachable)
            attempt += 1
            if attempt > self._retries and not (answer.unreachable and time.monotonic() < patience):
                raise PolicyFault(f"{server.shown} gave no answer in {attempt} attempts: {answer.text}.")
            if not another_is_ready(self._servers):
                await asyncio.sleep(wait)

    async def _ask_all(self, client: httpx.AsyncClient) -> None:
        """Find what each server serves and set aside those that do not serve now."""
        asked = (asyncio.wait_for(self._ask(server, client, self._wanted), self._timeout) for server in self._servers)
        found = await asyncio.gather(*asked, return_exceptions=True)
        absent: SeedBenchError | None = None
        for server, one in zip(self._servers, found, strict=True):
            if isinstance(one, TimeoutError | NotServing):
                late = NotServing(f"{server.shown} does not answer within {self._timeout:g} s: start the server.")
                absent = absent or (one if isinstance(one, NotServing) else late)
                server.set_aside(self._back_off_seconds, unreachable=True)
            elif isinstance(one, BaseException):
                raise one
            else:
                self._agree(server, one)
        if self._served is None:
            assert absent is not None, "there is at least one server"
            raise absent

    async def _ask(self, server: Server, client: httpx.AsyncClient, wanted: str | None) -> Served:
        if self._record:
            await server.check_records(client)
        return await server.ask_models(client, wanted)

    def _agree(self, server: Server, found: Served) -> None:
        """Take over what a server serves; raise UsageError unless it is what the others serve."""
        if self._served is None:
            self._served = found
            self.name = found.model.rstrip("/").rpartition("/")[2]
        if found != self._served:
            raise UsageError(
                f"{server.shown} serves {_described(found)}, another server {_described(self._served)}: give servers"
                " that were started alike, and name the model, as in URL1,URL2#MODEL."
            )

    async def _attempt(self, server: Server, body: dict[str, Any], sampling: Sampling) -> Response | _Problem:
        """One exchange. Raises what ends the request or the run."""
        client, served = self._ready()
        try:
            async with asyncio.timeout(self._timeout):
                if server.served is None:
                    self._agree(server, await self._ask(server, client, served.model))
                reply = await client.post(f"{server.base}/chat/completions", json=body)
            if reply.status_code == httpx.codes.OK:
                return read_reply(reply, sampling, context=served.context, record=self._record)
            return self._refused(server, reply)
        except TimeoutError:
            return _Problem(f"no reply within {self._timeout:g} s")
        except httpx.HTTPError as error:
            return _Problem(f"the connection failed ({type(error).__name__})", unreachable=True)
        except NotServing as error:
            return _Problem(str(error).rstrip("."), unreachable=True)
        except Refusal as error:
            return _Problem(str(error))

    def _ready(self) -> tuple[httpx.AsyncClient, Served]:
        if self._client is None or self._served is None:
            raise RuntimeError("the policy is not open")
        return self._client, self._served

    def _refused(self, server: Server, reply: httpx.Response) -> _Problem:
        """What a refusal says. Raises where trying again is pointless."""
        text = server.words(reply)
        if overflows(reply.status_code, text):
            raise ContextOverflow(f"the server says that the prompt is too long: {text}")
        if reply.status_code in FATAL:
            raise server.fatal(reply.status_code, text)
        problem = f"status {reply.status_code}: {text}"
        if reply.status_code not in RETRIED:
            raise PolicyFault(f"{server.shown} refused the request, {problem}")
        return _Problem(problem, retry_after(reply.headers))


def _described(served: Served) -> str:
    context = "" if served.context is None else f" with a context of {served.context} tokens"
    return f"'{served.model}'{context} by {served.owner or 'a server of unknown kind'}"
