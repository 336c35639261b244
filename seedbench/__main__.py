"""`python -m seedbench`: the same as the `seedbench` command."""

from seedbench.cli import main

main()
