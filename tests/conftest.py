"""What all tests share: one store for the session, a copy, so that no test can harm the user's own.

`SEEDBENCH_DATA` names the store that the tests read (`make test` fills `.store`). During the session it names
a copy of the official games in a temporary folder, with links to the models; the generated games are made
there once, whatever the number of workers. A test that needs an empty or a damaged store points
`SEEDBENCH_DATA` at a folder of its own.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports the libraries that read them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The session's store, shared by all workers; `SEEDBENCH_DATA` names it from the first test on."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "store"
    folder.mkdir(exist_ok=True)
    source = Path(os.environ.get("SEEDBENCH_DATA") or REPOSITORY / ".store").expanduser()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "alfworld").exists():
            (folder / "alfworld").mkdir()
            (folder / "models").mkdir()
            for pack in source.glob("alfworld/*.sqlite"):
                shutil.copy2(pack, folder / "alfworld")
            for model in source.glob("models/*"):
                (folder / "models" / model.name).symlink_to(model.resolve())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBENCH_DATA", str(folder))
        yield folder


@pytest.fixture(scope="session")
def mini_store(store: Path) -> Path:
    """The session's store with the generated games in it."""
    from seedbench_envs.alfworld.library import library

    with (store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        library("mini", "2.1.2")
    return store


@pytest.fixture(scope="session")
def official_games(store: Path) -> Path:
    """The session's store with the official games of both dialects in it."""
    for dialect in ("2.1.2", "2.1.1"):
        if not (store / "alfworld" / f"games-{dialect}.sqlite").is_file():
            pytest.skip(f"the official games (dialect {dialect}) are not in the store that SEEDBENCH_DATA names")
    return store


@pytest.fixture(scope="session")
def official_files() -> Path:
    """The folder of official archives and golden recordings beside the repository."""
    folder = REPOSITORY.parent / "shared" / "data" / "alfworld"
    if not (folder / "traces.jsonl.gz").is_file():
        pytest.skip("the official archives and recordings (../shared/data/alfworld) are not here")
    return folder
