"""See the README's drawing for what lives here."""
