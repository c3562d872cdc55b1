"""GGUF files: reading (memory-mapped, validated), describing, and placing their weights on devices."""

from lucebox.gguf.describe import Description, describe
from lucebox.gguf.metadata import Metadata
from lucebox.gguf.reader import GgufFile, read
from lucebox.gguf.tensors import TensorInfo

__all__ = ["Description", "GgufFile", "Metadata", "TensorInfo", "describe", "read"]
