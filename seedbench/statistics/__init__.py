"""Rates, means and their intervals. Standard library only."""

from seedbench.statistics.intervals import Rate, clustered, macro, wilson, wilson_limits
from seedbench.statistics.means import Mean, mean_score, t_quantile

__all__ = ["Mean", "Rate", "clustered", "macro", "mean_score", "t_quantile", "wilson", "wilson_limits"]
