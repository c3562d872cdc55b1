"""The `lucebox` command. One file per verb; each imports what it needs when it runs, so help is instant."""

from lucebox.cli.main import main

__all__ = ["main"]
