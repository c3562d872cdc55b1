"""Models by name: the catalogue, and fetching what is not yet on this machine."""

from lucebox.hub.catalogue import CATALOGUE, CatalogueModel
from lucebox.hub.resolver import is_cached, resolve, would_fetch

__all__ = ["CATALOGUE", "CatalogueModel", "is_cached", "resolve", "would_fetch"]
