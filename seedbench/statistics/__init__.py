"""Rates and their intervals. Standard library only."""

from seedbench.statistics.intervals import Rate, clustered, macro, wilson, wilson_limits

__all__ = ["Rate", "clustered", "macro", "wilson", "wilson_limits"]
