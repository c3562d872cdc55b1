"""Llama 1 to 3.x, Mistral, Mixtral, SmolLM2 and others that store themselves as `llama`."""

from __future__ import annotations

from lucebox.gguf.fusion import Fusion
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.models import blocks
from lucebox.models.base import Architecture
from lucebox.models.forward import Forward, RopeMode
from lucebox.models.hparams import Hparams, read_experts, read_hparams


class Llama(Architecture):
    """Pre-norm decoder with rotary positions over adjacent pairs; biases and experts where the file has
    them."""

    @classmethod
    def hparams(cls, file: GgufFile) -> Hparams:
        return read_hparams(file, read_experts(file, is_normalised=True))

    @classmethod
    def tensors(cls, hparams: Hparams) -> list[TensorSpec]:
        n_rope = hparams.rope.n_dims // 2
        return [
            *blocks.decoder_tensors(hparams, qkv_bias="optional", other_biases=True),
            TensorSpec("rope_freqs.weight", (n_rope,), Use.VECTOR, optional=True),
        ]

    @classmethod
    def fusions(cls, hparams: Hparams) -> list[Fusion]:
        return blocks.decoder_fusions(hparams)

    @classmethod
    def build(cls, forward: Forward, hparams: Hparams) -> None:
        blocks.build_decoder(forward, hparams, RopeMode.ADJACENT)


Plugin = Llama
