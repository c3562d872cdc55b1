"""How text is cut into words before BPE merges within them: one pattern list for each family of models.

The patterns are those the models were trained with, as their published `tokenizer.json` files have them.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucebox.text.fields import TokenizerFields

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"


def _cl100k(number: str) -> str:
    """The pattern of GPT-4's tokenizer, with the digits a model allows in one word."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + number
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Pretokenizer:
    """`names` are the values of `tokenizer.ggml.pre`. Each pattern cuts what the ones before it left whole.

    `ignore_merges`: a word that is a token is that token, whatever the merges would make of it.
    `add_bos`: what holds for a file that does not say.
    """

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


PRETOKENIZERS = (
    Pretokenizer(("gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "gigachat", "mellum"), (_GPT2,)),
    Pretokenizer(
        ("llama-bpe", "llama3", "llama-v3", "falcon3"),
        (_cl100k(r"\p{N}{1,3}"),),
        ignore_merges=True,
        add_bos=True,
    ),
    Pretokenizer(("qwen2", "deepseek-r1-qwen"), (_cl100k(_DIGIT),)),
    Pretokenizer(("smollm", "starcoder", "refact", "command-r", "codeshell"), (_DIGIT, _GPT2)),
    Pretokenizer(("tekken",), (_TEKKEN,), ignore_merges=True),
)


def pretokenizer_of(fields: TokenizerFields) -> Pretokenizer:
    """The one a byte-level BPE file asks for; UnsupportedModelError when Lucebox does not have it."""
    name = fields.string("pre")
    for pretokenizer in PRETOKENIZERS:
        if name in pretokenizer.names:
            return pretokenizer
    known = ", ".join(pretokenizer.names[0] for pretokenizer in PRETOKENIZERS)
    raise fields.unsupported(
        "pre",
        f"the pre-tokenizer {name!r:.60} is not implemented",
        remedy=f"use a model with one of these: {known}",
    )
