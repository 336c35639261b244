"""The studies that the repository publishes: their reports are what their archives give."""

from pathlib import Path

import pytest

from seedbench.study.archive import SUFFIX, opened_study, study_of
from seedbench.study.report import write_report
from tests.eval.helpers import REPOSITORY

ARCHIVES = sorted((REPOSITORY / "leaderboards" / "submissions").glob(f"*/*{SUFFIX}"))


def test_some_are_published() -> None:
    assert ARCHIVES


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_the_report_in_the_documentation_is_what_the_archive_gives(archive: Path, tmp_path: Path) -> None:
    published = REPOSITORY / "docs" / "studies" / archive.name.removesuffix(SUFFIX) / "report"
    with opened_study(archive) as folder:
        study = study_of(folder)
        write_report(study, folder, tmp_path)
        assert (folder / "study.toml").read_text() == (REPOSITORY / "studies" / f"{study.study.name}.toml").read_text()
    assert (published / "report.md").read_text() == (tmp_path / "report.md").read_text()
    sheets = {path.name for path in published.glob("*.csv")}
    assert sheets
    assert sheets == {path.name for path in tmp_path.glob("*.csv")}
