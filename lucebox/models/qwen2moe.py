"""Qwen1.5-MoE and Qwen2-57B-A14B."""

from __future__ import annotations

from lucebox.gguf.fusion import Fusion
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.specs import TensorSpec
from lucebox.models import blocks
from lucebox.models.base import Architecture
from lucebox.models.forward import Forward, RopeMode
from lucebox.models.hparams import Hparams, read_experts, read_hparams


class Qwen2Moe(Architecture):
    """Qwen2 with experts, one of which every row passes, behind a gate of its own."""

    @classmethod
    def hparams(cls, file: GgufFile) -> Hparams:
        return read_hparams(file, read_experts(file, is_normalised=False, is_required=True))

    @classmethod
    def tensors(cls, hparams: Hparams) -> list[TensorSpec]:
        return blocks.decoder_tensors(hparams, qkv_bias="required")

    @classmethod
    def fusions(cls, hparams: Hparams) -> list[Fusion]:
        return blocks.decoder_fusions(hparams)

    @classmethod
    def build(cls, forward: Forward, hparams: Hparams) -> None:
        blocks.build_decoder(forward, hparams, RopeMode.HALVES)


Plugin = Qwen2Moe
