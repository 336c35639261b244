"""Training methods for language-model agents: one shared loop, one file a method, found by entry point."""
