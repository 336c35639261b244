"""Static HTML pages of runs: no network, no build step, opened from a file."""
