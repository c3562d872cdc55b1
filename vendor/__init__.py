"""Software that Lucebox is built with, and how it gets here."""
