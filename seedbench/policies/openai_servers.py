"""The servers behind a policy: their addresses and what they serve. Which of them is asked: `seedbench.balance`.

One that failed is set aside for as long as one would wait before trying it again, a wait that doubles with every
failure in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import urlsplit, urlunsplit

import httpx

from seedbench.balance import Balanced
from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.openai_wire import Served, nested, read_json, read_models
from seedbench.ui.text import inert

KEY_VARIABLE = "OPENAI_API_KEY"
CONNECT_SECONDS = 10.0
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
FATAL = frozenset({301, 302, 307, 308, 401, 403, 404, 405})


class NotServing(SeedBenchError):
    """The server does not answer, or is not ready: it may be later."""


@dataclass(slots=True, eq=False)
class Server(Balanced):
    """One server. `key`: the API key, which no message may show."""

    base: str
    """Address of the API, without a slash at its end."""
    shown: str
    """The same without user name, password and query."""
    key: str = field(default="", repr=False)
    served: Served | None = None
    """What was found to be served; None until it was asked, and again once it could not be reached."""

    def set_aside(self, seconds: float, *, unreachable: bool) -> None:
        """Note a failure. One that cannot be reached may come back with another model: it is asked again."""
        self.failed(seconds)
        if unreachable:
            self.served = None

    def words(self, reply: httpx.Response) -> str:
        """A reply's text for a message: short, inert, without the key."""
        text = " ".join(reply.text.split())
        return inert(text.replace(self.key, "***") if self.key else text, 300) or "no text"

    def fatal(self, status: int, text: str) -> SeedBenchError:
        """The error for a refusal that trying again does not mend."""
        if status in {401, 403}:
            state = "it was sent" if self.key else "it is not set"
            return SeedBenchError(f"{self.shown} refuses access (status {status}): check {KEY_VARIABLE} ({state}).")
        return SeedBenchError(
            f"{self.shown} has no chat completions for this model (status {status}: {text}): check the "
            "address (it usually ends in /v1) and the model's name."
        )

    async def ask_models(self, client: httpx.AsyncClient, wanted: str | None) -> Served:
        """What it serves under the name `wanted`, or its only model; kept in `served`.

        Raises NotServing where asking later may help, SeedBenchError or UsageError where it does not.
        """
        self.served = self._choose(await self._get(client, f"{self.base}/models"), wanted)
        return self.served

    async def check_records(self, client: httpx.AsyncClient) -> None:
        """Raise UsageError unless it is a vLLM that gives log-probabilities of the distribution it draws from.

        vLLM gives those of the model's own distribution by default: temperature and cuts would be missing in them.
        """
        reply = await self._get(client, f"{self.base.removesuffix('/v1')}/server_info?config_format=json")
        config = nested(read_json(reply), "vllm_config", "model_config", "logprobs_mode")
        if config != "processed_logprobs":
            raise UsageError(
                f"{self.shown} does not say that its log-probabilities are those it draws by, which training needs (it"
                f" says {inert(str(config), 40)}): start it as VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode"
                " processed_logprobs."
            )

    async def _get(self, client: httpx.AsyncClient, address: str) -> httpx.Response:
        try:
            return await client.get(address)
        except httpx.HTTPError as error:
            raise NotServing(
                f"{self.shown} does not answer ({type(error).__name__}): start the server, or correct the "
                "address (it usually ends in /v1)."
            ) from error

    def _choose(self, reply: httpx.Response, wanted: str | None) -> Served:
        status = reply.status_code
        if status in {404, 405} and wanted is not None:
            # Some gateways list nothing; a wrong address then shows at the first request.
            return Served(wanted, "", None)
        if status in FATAL:
            raise self.fatal(status, self.words(reply))
        if status != httpx.codes.OK:
            raise NotServing(f"{self.shown} is not ready (status {status}: {self.words(reply)}): wait until it serves.")
        models = read_models(reply)
        if models is None:
            raise SeedBenchError(
                f"{self.shown}/models is no model list: give the base address of an OpenAI-compatible "
                "server (it usually ends in /v1)."
            )
        by_name = {served.model: served for served in models}
        listing = ", ".join(inert(name, 80) for name in sorted(by_name)) or "none"
        if wanted is not None:
            if wanted in by_name:
                return by_name[wanted]
            nearest = get_close_matches(wanted, by_name, n=1, cutoff=0.5)
            hint = f" (did you mean '{inert(nearest[0], 80)}'?)" if nearest else ""
            raise UsageError(
                f"{self.shown} does not serve the model '{wanted}'{hint}: it serves {listing}; name one of these, as in"
                f" {self.shown}#MODEL."
            )
        if len(models) != 1:
            raise UsageError(
                f"{self.shown} serves {len(models)} models ({listing}): name one, as in {self.shown}#MODEL."
            )
        return models[0]


def servers_at(addresses: str, key: str) -> list[Server]:
    """The servers of a list of addresses, separated by commas. Raises UsageError for what is no address, or twice."""
    servers = [_server(url.strip(), key) for url in addresses.split(",")]
    shown = [server.base for server in servers]
    if twice := next((base for base in shown if shown.count(base) > 1), None):
        raise UsageError(f"the server {servers[shown.index(twice)].shown} is named twice: name each once.")
    return servers


def another_is_ready(servers: Sequence[Server]) -> bool:
    """Whether a request could go to a server that has not just failed."""
    return any(not server.failures for server in servers)


def _server(url: str, key: str) -> Server:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise UsageError(f"'{url}' is not a server's address: expected e.g. http://localhost:8000/v1.")
    host = parts.netloc.rpartition("@")[2]
    shown = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    return Server(url.rstrip("/"), shown, key)
