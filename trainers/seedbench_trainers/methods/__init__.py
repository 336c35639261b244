"""The training methods, one file each; they are found by the entry points `seedbench.trainers`."""
