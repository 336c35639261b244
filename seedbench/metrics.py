"""A run's summary, derived from its episode log alone (schema: `seedbench/schemas/summary.schema.json`).

The log is read as a stream: of each attempt a few numbers are kept, never its turns. Every sum is either of
integers or exactly rounded, so the summary does not depend on the order of the episodes and hence not on
batch size, concurrency or where a run was resumed. Where the same attempt occurs more than once, the last
record counts, in every number (a resumed run tries infrastructure errors again).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from seedbench.errors import SeedBenchError
from seedbench.statistics import Mean, clustered, macro, mean_score
from seedbench.types import Episode, Outcome

SCHEMA = "seedbench.summary/2"


class _Attempt(NamedTuple):
    """What the summary needs of an episode."""

    family: str
    outcome: Outcome
    success: bool
    score: float
    metrics: Mapping[str, float]
    seconds: float
    turns: int
    invalid: int
    judged: int
    """Turns of which the environment said whether it accepted the action."""
    inadmissible: int
    prompt_tokens: int
    generated_tokens: int


def summarise(
    episodes: Iterable[Episode],
    *,
    panel: Mapping[str, Any],
    protocol: Mapping[str, Any],
    policy: Mapping[str, Any],
    repeats: int,
    seed: int,
    families: Sequence[str],
    wall_seconds: float | None = None,
    gpu_seconds: float | None = None,
    environment: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build the summary of a run from its episodes: plain JSON values, described in docs/summary.md.

    `panel` has name, hash, n, suite, split and official; `protocol` name and hash; `policy` name and
    identity; other keys are left out. `families` are those with at least one task in the panel, in the
    order in which the summary lists them. `wall_seconds` is what the clock on the wall says, `gpu_seconds` that
    times the GPUs that were computed on; None where it is not known. `environment` is what observations depend on
    beside the panel (a search engine and its corpus).

    Infrastructure errors are counted in what was spent (`episodes`, `outcomes`, `turns.total`, `tokens` and
    `seconds`), and in nothing else. Raises SeedBenchError for an episode of a family that the panel does not have.
    """
    attempts = {episode.key: _condense(episode) for episode in episodes}
    counted = {key: a for key, a in attempts.items() if a.outcome is not Outcome.INFRA_ERROR}
    return {
        "schema": SCHEMA,
        "panel": {key: panel[key] for key in ("name", "hash", "n", "suite", "split", "official")},
        "protocol": {"name": protocol["name"], "hash": protocol["hash"]},
        "policy": {"name": policy["name"], "identity": dict(policy["identity"])},
        "environment": dict(environment or {}),
        "repeats": repeats,
        "seed": seed,
        "episodes": len(attempts),
        "success": _success(counted, families),
        "score": _mean((task, a.score) for (task, _), a in counted.items()).to_json(),
        "metrics": _metrics(counted),
        "turns": {
            "total": sum(a.turns for a in attempts.values()),
            **_turns(list(counted.values())),
        },
        "outcomes": {o.value: sum(a.outcome is o for a in attempts.values()) for o in Outcome},
        "tokens": {
            "prompt": sum(a.prompt_tokens for a in attempts.values()),
            "generated": sum(a.generated_tokens for a in attempts.values()),
        },
        "seconds": {
            "episodes": math.fsum(a.seconds for a in attempts.values()),
            "wall": wall_seconds,
            "gpu": gpu_seconds,
        },
    }


def _condense(episode: Episode) -> _Attempt:
    turns = episode.turns
    return _Attempt(
        family=episode.family,
        outcome=episode.outcome,
        success=episode.success,
        score=episode.score,
        metrics=episode.metrics,
        seconds=episode.seconds,
        turns=len(turns),
        invalid=sum(not turn.valid for turn in turns),
        judged=sum(turn.admissible is not None for turn in turns),
        inadmissible=sum(turn.admissible is False for turn in turns),
        prompt_tokens=episode.usage.prompt_tokens,
        generated_tokens=episode.usage.generated_tokens,
    )


def _success(attempts: Mapping[tuple[str, int], _Attempt], families: Sequence[str]) -> dict[str, Any]:
    """Micro rate, macro rate and the rate of each family; with one attempt a task, Wilson intervals."""
    tasks: dict[str, dict[str, tuple[int, int]]] = {family: {} for family in families}
    for (task, _), attempt in attempts.items():
        if attempt.family not in tasks:
            raise SeedBenchError(
                f"the log has an episode of family '{attempt.family}', but the panel's families are "
                f"{', '.join(families) or '(none)'}: the log belongs to another panel."
            )
        of_family = tasks[attempt.family]
        successes, n = of_family.get(task, (0, 0))
        of_family[task] = (successes + attempt.success, n + 1)
    counts = {family: list(of_family.values()) for family, of_family in tasks.items()}
    return {
        "micro": clustered([task for of_family in counts.values() for task in of_family]).to_json(),
        "macro": macro(list(counts.values())).to_json(),
        "families": {family: clustered(of_family).to_json() for family, of_family in counts.items()},
    }


def _metrics(attempts: Mapping[tuple[str, int], _Attempt]) -> dict[str, Any]:
    """The mean of each metric over the attempts that have it, by name."""
    names = sorted({name for a in attempts.values() for name in a.metrics})
    return {
        name: _mean((task, a.metrics[name]) for (task, _), a in attempts.items() if name in a.metrics).to_json()
        for name in names
    }


def _mean(scored: Iterable[tuple[str, float]]) -> Mean:
    """The mean of `(task, score)` of each attempt, clustered by task."""
    tasks: defaultdict[str, list[float]] = defaultdict(list)
    for task, score in scored:
        tasks[task].append(score)
    return mean_score(list(tasks.values()))


def _turns(attempts: Sequence[_Attempt]) -> dict[str, Any]:
    turns = sum(a.turns for a in attempts)
    return {
        "mean": _ratio(turns, len(attempts)),
        "invalid_rate": _ratio(sum(a.invalid for a in attempts), turns),
        "inadmissible_rate": _ratio(sum(a.inadmissible for a in attempts), sum(a.judged for a in attempts)),
    }


def _ratio(total: float, n: int) -> float | None:
    return total / n if n else None
