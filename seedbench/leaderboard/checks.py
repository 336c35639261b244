"""What comes into a leaderboard, and whether what is there still is what it claims to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seedbench.errors import SeedBenchError, UsageError
from seedbench.leaderboard import studies, submissions
from seedbench.leaderboard.submissions import FOLDER, Told, inside
from seedbench.study.archive import SUFFIX


def add(source: Path, folder: Path, *, page: str = "", told: Told = lambda line: None) -> Path:
    """Verify a run, a bundle, an archive of one, or one of a study (.tar.xz), and copy it into a leaderboard's folder.

    Returns where to. `page` says where a study is reported. Raises what `submissions.add_run` and `studies.add_study`
    raise, and UsageError for a page of anything but a study.
    """
    if source.name.endswith(SUFFIX):
        return studies.add_study(source, folder, page=page, told=told)
    if page:
        raise UsageError(f"'{source}' is no study ({SUFFIX}), which alone has a page; a bundle is packed with --url.")
    return submissions.add_run(source, folder, told=told)


def check(folder: Path, *, told: Told = lambda line: None) -> list[str]:
    """Verify every submission again: a sentence for each that is wrong, and for each file that does not belong there.

    Raises UsageError where the folder holds no submissions.
    """
    if not (folder / FOLDER).is_dir():
        raise UsageError(f"'{folder}' is no leaderboard (no {FOLDER}/): name one with --folder.")
    problems, held = list(_strays(folder)), dict[str, str]()
    for place in submissions.submissions(folder):
        name = f"{place.parent.name}/{place.name}"
        told(name)
        try:
            problems += submissions.wrong(place, name)
            twin = held.setdefault(f"{place.parent.name} {place.name[-12:]}", name)
            if twin != name:
                problems.append(f"{name}: its content is that of {twin}.")
        except SeedBenchError as error:
            problems.append(f"{name}: {error}")
    for place in studies.studies(folder):
        name = f"{place.parent.name}/{place.name}"
        told(name)
        problems += studies.wrong(place, name)
    return problems


def _strays(folder: Path) -> Iterator[str]:
    bundles, archives = set(submissions.submissions(folder)), set(studies.studies(folder))
    records = {*map(submissions.record_of, bundles), *map(studies.record_of, archives)}
    right = {*bundles, *archives, *records, *inside(folder / FOLDER)}
    for path in sorted(path for level in ("*", "*/*") for path in (folder / FOLDER).glob(level)):
        if path not in right:
            yield f"'{path}' is no submission and no record of one."
