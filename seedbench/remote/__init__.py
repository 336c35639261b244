"""Work spread over processes and machines by Ray: `cluster` connects, `evaluation` plays the episodes of a run."""
