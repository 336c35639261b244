"""The journal of a training run as the harness reads it; `seedbench_trainers.journal` writes it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from seedbench.errors import SeedBenchError

METRICS = "metrics.jsonl"


def read_metrics(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Update and finite metrics of each line; a torn last line is left out.

    Raises OSError where it cannot be read, SeedBenchError for a damaged line (its number is named).
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
                values = {str(name): float(value) for name, value in record["metrics"].items() if value is not None}
                yield int(record["update"]), {name: value for name, value in values.items() if math.isfinite(value)}
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                raise SeedBenchError(
                    f"'{path}' line {number} is damaged ({type(error).__name__}): expected the record of an update;"
                    " restore the file or delete that line, or leave the training run out."
                ) from error
