"""The retrieval server's pages: POST /retrieve in both dialects, GET /health, GET /metrics."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from seedbench.errors import SeedBenchError
from seedbench.store import Report
from seedbench_envs.searchqa.records import Hit
from seedbench_envs.searchqa.server_limits import Asked, Limits, Refused, parse_request
from seedbench_envs.searchqa.server_metrics import Metrics
from seedbench_envs.searchqa.server_pool import Busy, Found, SearchPool

_PAGES = "POST /retrieve, GET /health and GET /metrics"


def make_app(identity: dict[str, object], pool: SearchPool, limits: Limits, report: Report) -> FastAPI:
    """The application around a retriever.

    Args:
        identity: the retriever's, shown in /health.
        pool: answers the searches; closed when the application ends.
        limits: limits of a request.
        report: receives a line for every search that failed.
    """
    server = _Server(identity, pool, limits, report)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(pool.close)

    # Without the generated pages of the framework, which load scripts from elsewhere.
    app = FastAPI(title="SeedBench retriever", openapi_url=None, lifespan=lifespan)
    app.post("/retrieve")(server.retrieve)
    app.get("/health")(server.health)
    app.get("/metrics")(server.metrics_page)
    app.exception_handler(HTTPException)(_not_there)
    return app


class _Server:
    """What the pages share."""

    def __init__(self, identity: dict[str, object], pool: SearchPool, limits: Limits, report: Report) -> None:
        self._identity = identity
        self._pool = pool
        self._limits = limits
        self._report = report
        self._metrics = Metrics()
        self._start = time.monotonic()

    async def retrieve(self, request: Request) -> Response:
        """Answer a request in the form of its dialect, or say why not."""
        start = time.perf_counter()
        queries = 0
        try:
            asked = parse_request(await self._body(request), self._limits)
            queries = len(asked.queries)
            response = _json(200, {"result": _written(await self._pool.search(asked.queries, asked.topk), asked)})
        except Refused as refused:
            response = _json(refused.status, {"detail": str(refused)})
        except Busy:
            text = "the server has as many searches waiting as it holds; try again in a second."
            response = _json(503, {"detail": text})
            response.headers["Retry-After"] = "1"
        except SeedBenchError as error:  # a query that the engine refuses
            response = _json(422, {"detail": str(error)})
        except ClientDisconnect:
            response = _json(400, {"detail": "the client left."})
        except Exception as error:  # an engine's fault, whatever it is, ends one request and not the server
            text = f"the search failed: {type(error).__name__}: {error}"
            self._report(text)
            response = _json(500, {"detail": text})
        self._metrics.count(response.status_code, queries, time.perf_counter() - start)
        return response

    async def health(self) -> Response:
        """That the server is up, and what it answers from."""
        about = {
            "status": "ok",
            **{key: self._identity.get(key) for key in ("engine", "corpus", "passages")},
            "identity": self._identity,
            "uptime_seconds": round(time.monotonic() - self._start, 3),
        }
        return _json(200, about)

    async def metrics_page(self) -> Response:
        """The counters."""
        text = self._metrics.text(self._pool.waiting, time.monotonic() - self._start)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _body(self, request: Request) -> bytes:
        """The body, read no further than its limit whatever its headers announce."""
        limit = self._limits.body
        too_large = Refused(413, f"the body is larger than the {limit:,} bytes that a request may have.")
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {self._limits.seconds:g} seconds.") from None
        return bytes(body)


def _written(found: Found, asked: Asked) -> list[list[dict[str, object]]]:
    write = _scored if asked.scores else _document
    return [[write(hit) for hit in hits] for hits in found]


def _document(hit: Hit) -> dict[str, object]:
    return {"id": hit.passage.id, "contents": hit.passage.contents}


def _scored(hit: Hit) -> dict[str, object]:
    return {"document": _document(hit), "score": hit.score}


def _json(status: int, content: dict[str, object]) -> Response:
    # ASCII alone: a passage with half a surrogate pair could not be sent as UTF-8.
    return Response(json.dumps(content), status, media_type="application/json")


async def _not_there(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    text = "no such page" if status == 404 else f"{request.method} is not for this page"
    response = _json(status, {"detail": f"{text}; there are {_PAGES}."})
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response
