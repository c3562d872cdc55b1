"""What can go wrong while ggml is built, said so that the reader can act."""

from __future__ import annotations


class BuildError(Exception):
    """ggml could not be fetched or built; the message ends with what to do."""
