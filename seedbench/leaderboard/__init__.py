"""The leaderboard: verified bundles and reported rows, and what is written of them.

LEADERBOARDS/submissions/SUITE/ID/        a bundle (seedbench/bundle.py)
LEADERBOARDS/submissions/SUITE/ID.json    that it was verified: `submissions.Verified`
LEADERBOARDS/reported/                    rows from papers (seedbench/reported.py)
LEADERBOARDS/README.md                    the tables, between two marks
"""

from seedbench.leaderboard.board import Board, Row, Table, load
from seedbench.leaderboard.submissions import add, check
from seedbench.leaderboard.writers import build

__all__ = ["Board", "Row", "Table", "add", "build", "check", "load"]
