"""Qwen2 and Qwen2.5."""

from __future__ import annotations

from lucebox.gguf.fusion import Fusion
from lucebox.gguf.specs import TensorSpec
from lucebox.models import blocks
from lucebox.models.base import Architecture
from lucebox.models.forward import Forward, RopeMode
from lucebox.models.hparams import Hparams


class Qwen2(Architecture):
    """Pre-norm decoder with biases on queries, keys and values, and rotary positions over halves."""

    @classmethod
    def tensors(cls, hparams: Hparams) -> list[TensorSpec]:
        return blocks.decoder_tensors(hparams, qkv_bias="required")

    @classmethod
    def fusions(cls, hparams: Hparams) -> list[Fusion]:
        return blocks.decoder_fusions(hparams)

    @classmethod
    def build(cls, forward: Forward, hparams: Hparams) -> None:
        blocks.build_decoder(forward, hparams, RopeMode.HALVES)


Plugin = Qwen2
