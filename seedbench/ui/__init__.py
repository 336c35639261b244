"""What a person sees: the live view, the episode viewer, and text made safe for terminals."""
