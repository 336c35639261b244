"""Verification: the stored actions of a run are played again, and all that the run claims is worked out anew.

No model is asked. What cannot be known without it is taken as stored: the responses themselves (but what was parsed
from them, and where a later prompt shows them its hash), token counts of a turn, times, and why an infrastructure error
or a context overflow happened. Every finding is a sentence; of an episode the first difference is one, since all that
follows may follow from it. The log is read as a stream: of an attempt only its key and outcome are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbench.bundle import check_files, is_bundle, read_submission
from seedbench.errors import SeedBenchError, UsageError
from seedbench.metrics import summarise
from seedbench.panels import Panel, data_problems, load_panel
from seedbench.protocol import Protocol, ProtocolFile, read_protocol, shipped_protocols
from seedbench.registry import get_suite
from seedbench.runs import LOG, MANIFEST, SUMMARY, read_manifest
from seedbench.subject import PROMPTED, SUBMISSION, TRAINING, UNTRAINED, is_model
from seedbench.suite import Environment, Option, Suite
from seedbench.tables import load_summary
from seedbench.verify_log import Findings, Replay, Stage, unequal

VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class Report:
    """What came of verifying one run."""

    folder: Path
    episodes: int
    """Records of the log that could be read."""
    turns: int
    """Their turns."""
    findings: int
    """Differences and damages; 0: the run is what it claims to be."""
    first: tuple[str, ...]
    """The first findings, at most `SHOWN`."""
    notes: tuple[str, ...]
    """What was not checked, or was done otherwise than in the run, and why."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Bound(_Part):
    """Part of what tells runs apart: nothing may stand there that nobody reads."""

    model_config = ConfigDict(extra="forbid")


class _Named(_Bound):
    name: str
    hash: str


class _Settings(_Bound):
    panel: _Named
    protocol: _Named
    policy: dict[str, Any]
    environment: dict[str, Any] = {}
    repeats: int = Field(ge=1, le=100_000)
    seed: int
    engine: str


class _Facts(_Part):
    official: bool
    suite: str
    split: str
    n: int


class _Policy(_Part):
    name: str
    trained: dict[str, Any] = {}


class _Log(_Part):
    bytes: int = Field(ge=0)
    sha256: str


class _Session(_Part):
    log: _Log | None = None
    """The log as it was at the session's end; earlier versions did not record it."""


class _Manifest(_Part):
    settings: _Settings
    panel: _Facts
    policy: _Policy
    protocol: dict[str, Any]
    sessions: list[_Session]

    def seals(self) -> dict[int, str]:
        """Length of the log -> its hash; empty where the last session did not record them."""
        if not (self.sessions and self.sessions[-1].log):
            return {}
        return {log.bytes: log.sha256 for session in self.sessions if (log := session.log)}


def run_folders(folder: Path) -> list[Path]:
    """The evaluation runs that `folder` stands for: itself, or the validations of a training run in their order.

    Raises UsageError where it is neither, or a training run without a validation.
    """
    if (folder / TRAINING).is_file():
        if runs := sorted(path for path in (folder / VALIDATION).glob("update-*") if path.is_dir()):
            return runs
        raise UsageError(f"the training run '{folder}' has no validation that could be verified ({VALIDATION}/).")
    if not any((folder / name).is_file() for name in (MANIFEST, LOG, SUMMARY, SUBMISSION)):
        raise UsageError(
            f"'{folder}' is not a run folder (no {MANIFEST}) and not a training run (no {TRAINING}): give a folder that"
            " `seedbench eval --out` or `seedbench train --out` has made."
        )
    return [folder]


def verify(
    folder: Path, *, panel: str = "", engine: str = "", told: Callable[[str], None] = lambda line: None
) -> Report:
    """Replay every stored action of an evaluation run and compare all that follows with what is stored.

    Of a bundle the files are compared with its submission first, and nothing more is read where they differ.

    Args:
        folder: the run folder, or that of a bundle; it is only read.
        panel: name or file of the run's panel, where no installed suite ships it.
        engine: engine to replay with instead of the run's own, e.g. `bm25:DIR` (a manifest keeps no addresses).
        told: receives a line now and then.

    Raises:
        UsageError: `folder` holds no run; an unknown `panel` or `engine`.
        SeedBenchError: `panel` or `engine`, where given, cannot be used.
    """
    if (folder / TRAINING).is_file() or run_folders(folder) != [folder]:
        raise UsageError(f"'{folder}' is a training run: verify its validations (see `run_folders`).")
    given = load_panel(panel) if panel else None
    findings = Findings()
    for problem in check_files(folder) if is_bundle(folder) else ():
        findings.add(problem)
    if findings.count:
        return Report(folder, 0, 0, findings.count, tuple(findings.first), ())
    try:
        manifest = _read(folder)
        protocol = _protocol(manifest, findings)
        tasks = _panel(manifest, given, findings)
        suite = get_suite(tasks.suite)
    except SeedBenchError as error:
        findings.add(f"{error} Nothing else can be checked.")
        return Report(folder, 0, 0, findings.count, tuple(findings.first), ())
    try:
        for problem in data_problems(tasks, dict(suite.content_hashes(tasks))):
            findings.add(f"data: {problem}.")
    except SeedBenchError as error:
        findings.add(f"data: {error}")
    if is_bundle(folder):
        findings.notes += _renamed(folder, manifest.policy)
    stage = _stage(manifest, tasks, protocol, engine, findings)
    replay = Replay(
        folder / LOG, tasks, protocol, manifest.settings.repeats, manifest.settings.seed, stage, findings, told,
        manifest.seals(),
    )  # fmt: skip
    try:
        _check_summary(folder, manifest, tasks, replay, findings)
        if is_model(manifest.settings.policy) and replay.turns and not replay.asked:
            findings.add(f"policy: {MANIFEST} calls it a model, and no turn of {LOG} has the hash of a prompt.")
    finally:
        stage.close()
    return Report(folder, replay.episodes, replay.turns, findings.count, tuple(findings.first), tuple(findings.notes))


def _read(folder: Path) -> _Manifest:
    manifest = read_manifest(folder)
    try:
        return _Manifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SeedBenchError(f"{MANIFEST} is damaged at {'.'.join(map(str, first['loc']))}: {first['msg']}.") from error


def _renamed(bundle: Path, policy: _Policy) -> Iterator[str]:
    """What a submission calls otherwise than its run does."""
    claimed, trained = read_submission(bundle), policy.trained
    method = str(trained.get("method", ""))
    methods = (method, f"{method}*") if method else (UNTRAINED, PROMPTED, policy.name)
    model = str(trained.get("model") or policy.name).removesuffix("*")
    if claimed.model and claimed.model.rpartition("/")[2] != model.rpartition("/")[2]:
        yield f"{SUBMISSION} calls the model '{claimed.model}'; the run calls it '{model[:200]}'."
    if claimed.method not in methods:
        says = f"is of '{method[:200]}'" if method else "knows of no training"
        yield f"{SUBMISSION} calls the method '{claimed.method}'; the run {says}."


def _protocol(manifest: _Manifest, findings: Findings) -> Protocol:
    """The protocol, rebuilt from the manifest's copy of its settings and templates."""
    content, claimed = manifest.protocol, manifest.settings.protocol
    try:
        prompts = content["prompts"]
        texts = {role: prompts[role] for role in ("system", "first", "later") if role != "system" or prompts[role]}
        settings = {**content, "prompts": {**prompts, **{role: role for role in texts}}}
        protocol = Protocol(ProtocolFile.model_validate(settings), texts)
    except (KeyError, TypeError, ValidationError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise SeedBenchError(f"{MANIFEST} holds no protocol that could be used ({reason}).") from error
    if protocol.hash != claimed.hash:
        findings.add(
            f"protocol: the settings and templates in {MANIFEST} have the hash {protocol.hash[:12]}, not"
            f" {claimed.hash[:12]} as it says."
        )
    base = claimed.name.partition("[")[0]
    name = protocol.name
    if file := shipped_protocols().get(name):
        shipped = read_protocol(file)
        # A run may change these sections, and its protocol's name says so.
        changed = {key: protocol.content()[key] for key in ("limits", "sampling", "context")}
        if {**shipped.content(), **changed} != protocol.content():
            findings.notes.append(f"the run's protocol '{base}' is not the installed one of that name.")
        name = Protocol(protocol.settings, texts, shipped.settings).name
    else:
        claimed = claimed.model_copy(update={"name": base})  # nothing says what the marks behind the name start from
    if name != claimed.name:
        findings.add(f"protocol: {MANIFEST} calls it '{claimed.name}', and its settings are those of '{name}'.")
    return protocol


def _panel(manifest: _Manifest, given: Panel | None, findings: Findings) -> Panel:
    claimed, facts = manifest.settings.panel, manifest.panel
    base, *marks = re.split(r"(?=\[)", claimed.name)
    try:
        panel = given or load_panel(base)
    except SeedBenchError as error:
        raise SeedBenchError(f"{error} Give the file of the run's panel with --panel.") from error
    for mark in marks if panel.name != claimed.name else ():
        subset = re.fullmatch(r"\[(?:families=([^;\]]+))?;?(?:limit=(\d{1,9}))?\]", mark)
        if subset is None:
            raise SeedBenchError(f"the panel '{claimed.name}' in {MANIFEST} is no name of a panel or its subset.")
        panel = panel.subset(subset[1].split(",") if subset[1] else (), int(subset[2]) if subset[2] else None)
    if panel.hash != claimed.hash:
        findings.add(f"panel: '{panel.name}' has the hash {panel.hash[:12]}, {MANIFEST} says {claimed.hash[:12]}.")
    held = (panel.name, panel.suite, panel.split, panel.official, len(panel.tasks))
    for what, stored, found in zip(
        ("name", "suite", "split", "official", "n"),
        (claimed.name, facts.suite, facts.split, facts.official, facts.n), held, strict=True,
    ):  # fmt: skip
        for difference in unequal(what, stored, found):
            findings.add(f"panel: {difference}.")
    return panel


def _stage(manifest: _Manifest, panel: Panel, protocol: Protocol, engine: str, findings: Findings) -> Stage:
    """Open the run's engine; another one, whose observations are not compared, where the run names what it searched."""
    suite, stored = get_suite(panel.suite), manifest.settings.environment
    # A run records no place; one that stands there all the same, a folder or an address, is not ours to open.
    own, place, _ = manifest.settings.engine.partition(":")
    if place:
        findings.add(f"engine: {MANIFEST} names a place ({manifest.settings.engine[:60]!r}), which no run records.")
    # Where no identity tells them apart, another engine might be another environment.
    names = [own, "native", ""] if stored and not engine else [engine or own]
    options = protocol.settings.environment
    reason, identity = "", None
    for name in names:
        stage = Stage(partial(_made, suite, panel, name, options))
        try:
            stage.renew()
            describe = getattr(stage.env, "identity", None)
            identity = describe() if describe else {}
            break
        except SeedBenchError as error:
            if engine:
                raise
            reason = reason or f" ({str(error).rstrip('.')})"
            stage.close()
            stage.env = None
    if stage.env is None:
        findings.add(f"nothing was replayed{reason}; another engine can be named with --engine.")
        return stage
    if engine and engine.partition(":")[0] != own:
        findings.notes.append(f"replayed with the engine '{engine}', the run had '{own}'.")
    if identity != stored:
        stage.observed = False
        findings.notes.append(
            f"observations not replayed: the engine here does not search what the run searched{reason}; actions,"
            " prompts, outcomes and scores were checked with the stored ones. --engine names another engine."
        )
    return stage


def _made(suite: Suite, panel: Panel, engine: str, options: dict[str, Option]) -> Environment:
    """An environment; Search-QA, which scores answers without a search engine, also with none (an empty name)."""
    from seedbench_envs.searchqa.suite import SearchQASuite

    if engine or not isinstance(suite, SearchQASuite):
        return suite.make(panel, engine or "native", **options)
    from seedbench_envs.searchqa.env import SearchQAEnv
    from seedbench_envs.searchqa.library import questions

    return SearchQAEnv(questions(suite.edition), _NothingFound(), **options)  # type: ignore[arg-type]


class _NothingFound:
    """A retriever (seedbench_envs.searchqa.records) of an empty corpus: what was found stands in the log."""

    slow = False

    def search(self, queries: Sequence[str], k: int) -> list[list[Any]]:
        """No hits."""
        return [[] for _ in queries]

    def identity(self) -> dict[str, object]:
        """Not the one of any run."""
        return {"engine": "none"}

    def close(self) -> None:
        """Nothing to free."""


def _check_summary(folder: Path, manifest: _Manifest, panel: Panel, replay: Replay, findings: Findings) -> None:
    """Derive the summary from the log, which checks it on the way, and compare it with the stored one."""
    settings = manifest.settings
    held = {
        "name": panel.name, "hash": panel.hash, "n": len(panel.tasks),
        "suite": panel.suite, "split": panel.split, "official": panel.official,
    }  # fmt: skip
    policy = {"name": manifest.policy.name, "identity": settings.policy}
    rebuilt = summarise(
        replay.checked(), panel=held, protocol=settings.protocol.model_dump(), policy=policy,
        repeats=settings.repeats, seed=settings.seed, families=list(panel.families()),
        environment=settings.environment,
    )  # fmt: skip
    try:
        stored = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("it is no object")
    except FileNotFoundError:
        findings.add(f"{SUMMARY} is missing; the same `seedbench eval` command makes it again.")
    except (ValueError, RecursionError) as error:
        findings.add(f"{SUMMARY} is damaged ({error}).")
    else:
        differences = list(_unlike({**stored, "seconds": None}, {**rebuilt, "seconds": None}))
        for difference in differences:
            findings.add(f"{SUMMARY}: {difference}.")
        if not differences:
            try:
                load_summary(folder)  # as the tables will
            except SeedBenchError as error:
                findings.add(str(error))


def _unlike(stored: Any, found: Any, place: str = "") -> Iterator[str]:
    """The leaves in which two JSON values differ."""
    if isinstance(stored, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*stored, *found]):
            yield from _unlike(stored.get(key), found.get(key), f"{place}.{key}" if place else str(key))
    elif isinstance(stored, list | tuple) and isinstance(found, list | tuple) and len(stored) == len(found):
        for number, (left, right) in enumerate(zip(stored, found, strict=True)):
            yield from _unlike(left, right, f"{place}[{number}]")
    else:
        yield from unequal(place, stored, found)
