"""The generated editions of the suites: in the official file formats, but not official data."""
