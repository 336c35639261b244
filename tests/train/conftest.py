"""The trivial suite and tiny models for it, built once a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.helpers import EchoSuite, build_model, echo


@pytest.fixture(scope="session")
def echo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the trivial suite keeps its panels and protocols."""
    return tmp_path_factory.mktemp("echo")


@pytest.fixture
def suite(echo_folder: Path) -> Iterator[EchoSuite]:
    """The trivial suite, installed for one test."""
    with echo(echo_folder) as made:
        yield made


@pytest.fixture(scope="session")
def built(echo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model for the suite."""
    with echo(echo_folder):
        return build_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def model(suite: EchoSuite, built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That model, with the suite installed. Runs draw no curves, which would take a third of the time."""
    monkeypatch.setattr("seedbench_trainers.curves.draw_curves", lambda folder: [])
    return built
