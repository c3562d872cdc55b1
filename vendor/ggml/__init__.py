"""How ggml gets here: pinned, fetched, compiled, and bound."""
