"""The tables, and what others may ask for."""

from .curation import LOCK, CurationRun, request_curation
from .graph import Edge, Entity

__all__ = ["LOCK", "CurationRun", "Edge", "Entity", "request_curation"]
