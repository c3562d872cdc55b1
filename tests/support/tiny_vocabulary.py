"""A byte-level BPE vocabulary small enough to read, with the special tokens of ChatML."""

from __future__ import annotations

from dataclasses import dataclass

from gguf import TokenType

MERGES = ("Ġ t", "h e", "i n", "Ġ a", "Ġt he", "e r", "o n", "r e", "Ġ Ġ", "l l", "he ll", "hell o", "Ã ©")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class TinyVocabulary:
    tokens: list[str]
    types: list[int]
    merges: list[str]
    eos_id: int
    padding_id: int


def byte_level_vocabulary(n_vocab: int | None = None) -> TinyVocabulary:
    """All 256 bytes, the merges, the specials; then unused padding up to `n_vocab`.

    When `n_vocab` is less than that: letters (then other bytes) with <|endoftext|>, the end token, last.
    """
    alphabet = [*_byte_letters().values()]
    merged = [merge.replace(" ", "") for merge in MERGES]
    n_full = len(alphabet) + len(merged) + len(SPECIALS)
    if n_vocab is not None and n_vocab < n_full:
        assert 2 <= n_vocab <= len(alphabet) + 1, (
            "between the bytes and the whole vocabulary there is nothing"
        )
        letters = sorted(alphabet, key=lambda letter: (not ("a" <= letter <= "z"), letter))
        tokens = [*letters[: n_vocab - 1], SPECIALS[0]]
        types = [int(TokenType.NORMAL)] * (n_vocab - 1) + [int(TokenType.CONTROL)]
        return TinyVocabulary(tokens, types, [], n_vocab - 1, n_vocab - 1)
    n_padding = 0 if n_vocab is None else n_vocab - n_full
    tokens = [*alphabet, *merged, *SPECIALS, *(f"[PAD{n_full + i}]" for i in range(n_padding))]
    n_normal = len(alphabet) + len(merged)
    types = [int(TokenType.NORMAL)] * n_normal + [int(TokenType.CONTROL)] * len(SPECIALS)
    types += [int(TokenType.UNUSED)] * n_padding
    return TinyVocabulary(
        tokens, types, list(MERGES), tokens.index("<|im_end|>"), tokens.index("<|endoftext|>")
    )


def _byte_letters() -> dict[int, str]:
    """GPT-2's printable letter of each byte, in the order its vocabulary has them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(0x100 + len(letters) - len(printable))
    return letters
