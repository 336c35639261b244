"""`seedbench doctor`: what is installed, what data is there, what is missing and what mends it."""

from __future__ import annotations

import typer

_OPTIONAL = {
    "torch": ("local models", "pip install 'seedbench[train]'"),
    "transformers": ("local models", "pip install 'seedbench[train]'"),
    "peft": ("LoRA adapters", "pip install 'seedbench[train]'"),
    "gguf": ("the embedded model", "pip install 'seedbench[train]'"),
    "vllm": ("fast generation on a GPU", "pip install 'seedbench[vllm]'"),
    "ray": ("many machines", "pip install 'seedbench[ray]'"),
    "bm25s": ("Search-QA engine bm25", "pip install 'seedbench[search]'"),
    "faiss-cpu": ("Search-QA engine dense", "pip install 'seedbench[search]'"),
    "fastapi": ("the retriever server", "pip install 'seedbench[search]'"),
}


def doctor_command() -> None:
    """Say what is installed, which data and models are there, and the command that mends what is missing."""
    from seedbench import __version__
    from seedbench.manifest import describe_machine, package_versions
    from seedbench.models import MODELS, folder_of, is_complete
    from seedbench.registry import suite_names
    from seedbench.store import store_root

    versions = package_versions()
    machine = describe_machine()
    typer.echo(f"seedbench {__version__}, Python {versions['python']}")
    typer.echo(f"machine: {machine['system']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {_gpu()}")
    typer.echo(f"store: {store_root()} ({_free(store_root())})")
    typer.echo("\npackages")
    for name, (purpose, command) in _OPTIONAL.items():
        found = _installed(name)
        _line(bool(found), name, found or f"not installed ({purpose}); {command}")
    _line(*_reference())
    typer.echo("\ndata")
    for name in suite_names():
        _line(*_data(name))
    typer.echo("\nmodels")
    for name in MODELS:
        stored = is_complete(folder_of(name, store_root()))
        _line(stored, name, "in the store" if stored else f"not fetched; seedbench models get {name}")


def _line(good: bool, name: str, text: str) -> None:
    typer.echo(f"  {'ok' if good else '--'}  {name:<14} {text}")


def _data(name: str) -> tuple[bool, str, str]:
    from seedbench.errors import SeedBenchError
    from seedbench.registry import get_suite

    try:
        status = get_suite(name).check()
    except SeedBenchError as error:  # a broken package or store: what this verb is there to tell
        return False, name, str(error)
    return not status.problems, name, " ".join(status.problems) or status.summary


def _installed(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _reference() -> tuple[bool, str, str]:
    from importlib import import_module

    # The reference engine belongs to a suite that may be absent; the harness asks it by name only here.
    try:
        python = import_module("seedbench_envs.alfworld.reference").reference_python()
    except ImportError:
        python = None
    return (
        bool(python),
        "alfworld",
        f"reference engine: {python}" if python else "reference engine not installed; make reference",
    )


def _gpu() -> str:
    import shutil

    return "an NVIDIA driver is present" if shutil.which("nvidia-smi") else "no NVIDIA driver"


def _free(folder: object) -> str:
    import shutil
    from pathlib import Path

    place = Path(str(folder))
    while not place.exists():
        place = place.parent
    return f"{shutil.disk_usage(place).free / 2**30:.0f} GiB free"
