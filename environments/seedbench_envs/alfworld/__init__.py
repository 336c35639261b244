"""ALFWorld (text): native and reference engine, game store, Gymnasium environment."""
