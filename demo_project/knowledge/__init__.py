"""Curates a dependency graph from what was harvested; each pass starts anew."""
