"""Who asks: what modules that authenticate have in common."""
