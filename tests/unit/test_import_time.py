"""What makes a command start fast: heavy libraries are loaded by the verb that needs them."""

import subprocess
import sys

import pytest

HEAVY = {
    "torch", "transformers", "gymnasium", "rich", "pydantic", "numpy", "scipy", "jinja2", "httpx", "peft", "gguf",
    "asyncio", "seedbench_envs", "seedbench_trainers",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint('\\n' + ' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.splitlines()[-1].split())


def run(*arguments: str) -> str:
    """Code that runs the command line and goes on behind its exit."""
    return (
        f"import sys\nsys.argv = ['seedbench', *{list(arguments)!r}]\n"
        "from seedbench.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    )


def test_import_loads_nothing_heavy() -> None:
    assert loaded("import seedbench; assert seedbench.__version__") & HEAVY == set()


@pytest.mark.parametrize(
    "module", ["types", "errors", "suite", "registry", "panels", "store", "ui.text", "policies.base"]
)
def test_records_and_contracts_load_nothing_heavy(module: str) -> None:
    assert loaded(f"import seedbench.{module}") & HEAVY == set()


@pytest.mark.parametrize("module", ["evaluate", "runs", "rollout", "metrics", "policies", "models", "validate"])
def test_the_harness_loads_no_model_library(module: str) -> None:
    found = loaded(f"import seedbench.{module}") & {"torch", "transformers", "scipy", "peft", "gguf", "gymnasium"}
    assert found == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    # The trainers' own verbs are light modules of that package.
    assert loaded(run(*arguments)) & HEAVY <= {"seedbench_trainers"}


@pytest.mark.parametrize("verb", ["eval", "panels", "table", "doctor"])
def test_help_of_a_verb_loads_nothing_heavy(verb: str) -> None:
    assert loaded(run(verb, "--help")) & HEAVY <= {"pydantic"}  # by typer itself


def test_listing_panels_loads_no_model_library() -> None:
    assert loaded(run("panels", "list")) & {"torch", "transformers", "scipy", "rich"} == set()
