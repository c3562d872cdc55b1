"""Lucebox: faster local models by exact speculation."""
