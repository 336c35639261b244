"""The leaderboard: verified bundles and studies, reported rows, and what is written of them.

LEADERBOARDS/submissions/SUITE/ID/        a bundle (seedbench/bundle.py)
LEADERBOARDS/submissions/SUITE/ID.json    that it was verified: `submissions.Verified`
LEADERBOARDS/submissions/SUITE/NAME.tar.xz    a study (seedbench/study/archive.py); NAME.json: `studies.VerifiedStudy`
LEADERBOARDS/reported/                    rows from papers (seedbench/reported.py)
LEADERBOARDS/README.md                    the tables, between two marks
"""

from seedbench.leaderboard.board import Board, Row, Table, load
from seedbench.leaderboard.checks import add, check
from seedbench.leaderboard.writers import build

__all__ = ["Board", "Row", "Table", "add", "build", "check", "load"]
