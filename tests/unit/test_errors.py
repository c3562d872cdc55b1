from __future__ import annotations

from lucebox.errors import LuceboxError, ModelFileError


def test_a_message_is_text_that_can_be_written() -> None:
    error = ModelFileError("caf\udce9.gguf", "general.name", "'\udcff' is wrong", remedy="rename it")
    assert str(error) == r"caf\udce9.gguf: general.name: '\udcff' is wrong (rename it)"
    assert str(LuceboxError("schön")).encode() == "schön".encode()
