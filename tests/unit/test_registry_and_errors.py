"""Suites by name, and errors that say what to do."""

from pathlib import Path

import pytest

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.panels import load_panel, shipped
from seedbench.protocol import load_protocol, shipped_protocols
from seedbench.registry import get_suite, suite_names
from tests.eval.helpers import CountingSuite, installed, seedbench


def test_suites_that_come_with_the_package() -> None:
    assert {"alfworld", "mini-alfworld"} <= set(suite_names())
    assert suite_names() == sorted(suite_names())
    assert get_suite("alfworld").official
    assert not get_suite("mini-alfworld").official
    assert get_suite("alfworld") is get_suite("alfworld")


def test_default_protocol_and_resources_of_every_suite_exist() -> None:
    for name in suite_names():
        suite = get_suite(name)
        assert suite.name == name
        assert name in load_protocol(suite.default_protocol).settings.suites
        assert any(panel.startswith(f"{name}/") for panel in shipped())


def test_unknown_suite_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown suite 'alfwrld': did you mean 'alfworld'\? Known: alfworld, mini-"):
        get_suite("alfwrld")


def test_a_suite_of_another_package() -> None:
    suite = CountingSuite()
    with installed("counting", suite):
        assert get_suite("counting") is suite
        assert "counting" in suite_names()
        assert "alfworld/train@1" in shipped()
    with pytest.raises(UsageError, match="unknown suite 'counting'"):
        get_suite("counting")


@pytest.mark.parametrize("error", [ImportError("no module named x."), AttributeError("SUITE"), SyntaxError("bad")])
def test_a_broken_suite_harms_nobody_else(error: Exception) -> None:
    with installed("broken", error):
        with pytest.raises(SeedBenchError, match=r"'broken' \(some_package:SUITE\) is registered but does not"):
            get_suite("broken")
        assert load_panel("alfworld/valid_unseen").families()["heat"] == 23
        assert "alfworld/seed@1" in shipped_protocols()
        with pytest.raises(SeedBenchError, match="the suite 'broken'"):
            load_panel("broken/train")
        with pytest.raises(UsageError, match="unknown panel 'other/train'"):
            load_panel("other/train")


def test_doctor_and_data_list_tell_of_a_broken_suite(mini_store: Path) -> None:
    before = (
        "from seedbench import registry\n"
        "from tests.eval.helpers import Plugin\n"
        "registry._points('seedbench.environments')['broken'] = Plugin(ImportError('no module named x'))"
    )
    for verb in (["doctor"], ["data", "list"]):
        done = seedbench(*verb, before=before)
        assert done.returncode == 0
        assert "the suite 'broken' (some_package:SUITE) is registered but does not load" in done.stdout
        assert "alfworld" in done.stdout


# Errors


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("heet", ["look", "heat"], "unknown family 'heet': did you mean 'heat'? Known: heat, look."),
        ("zzz", ["look", "heat"], "unknown family 'zzz'. Known: heat, look."),
        ("zzz", [], "unknown family 'zzz'. Known: (none installed)."),
    ],
)
def test_unknown_names(name: str, known: list[str], text: str) -> None:
    assert str(unknown("family", name, iter(known))) == text


def test_exit_codes() -> None:
    assert SeedBenchError.exit_code == 1
    assert UsageError.exit_code == 2
    assert issubclass(UsageError, SeedBenchError)
