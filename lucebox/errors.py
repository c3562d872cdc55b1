"""Typed errors: every failure a user can cause or must act on is a LuceboxError that says what to do."""

from __future__ import annotations


class LuceboxError(Exception):
    """Base of all errors meant for a user. `remedy` says what to do about it."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        # Names of files and text from models may hold what no terminal, log or JSON can.
        message = message.encode("utf-8", "backslashreplace").decode()
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class ConfigError(LuceboxError):
    """A flag, environment variable or option has a value that cannot be used."""


class ModelFileError(LuceboxError):
    """A model file is damaged, hostile or not what it claims. Names the file and the field."""

    def __init__(self, path: object, field: str, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"{path}: {field}: {problem}", remedy=remedy)
        self.path = str(path)
        self.field = field
        self.problem = problem


class UnsupportedModelError(ModelFileError):
    """A sound file of an architecture, type or tokenizer that Lucebox does not implement."""


class GgmlError(LuceboxError):
    """The ggml libraries are missing, of the wrong version, or refused an operation."""


class DeviceError(LuceboxError):
    """A device is unknown, absent, or cannot do what was asked of it."""


class UnknownDeviceError(DeviceError, ConfigError):
    """A device was named that is not there."""


class OutOfMemoryError(LuceboxError):
    """A device has not enough memory for what was planned."""


class OutOfCellsError(LuceboxError):
    """The key/value cache has fewer free cells than a forward needs."""

    def __init__(self, n_needed: int, n_free: int, n_cells: int) -> None:
        super().__init__(
            f"The key/value cache has {n_free} of {n_cells} cells free, {n_needed} are needed",
            remedy="release a sequence, or raise --ctx-size or --parallel",
        )
        self.n_needed = n_needed
        self.n_free = n_free
        self.n_cells = n_cells


class WorkerError(LuceboxError):
    """A worker on another machine cannot be reached, is busy or of another version, or was lost."""


class DownloadError(LuceboxError):
    """A model could not be fetched, or its hash is wrong."""


class VocabularyMismatchError(LuceboxError):
    """Draft and target do not share a vocabulary, so drafted ids would mean other text."""


class TemplateError(LuceboxError):
    """A chat template is absent, broken, or rejected the messages."""


class TraceError(LuceboxError):
    """A recorded trace is damaged, no trace at all, or lacks what was asked of it."""

    def __init__(self, path: object, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"{path}: {problem}", remedy=remedy)
        self.path = str(path)


class EngineError(LuceboxError):
    """The engine stopped or cannot take requests."""


class QueueFullError(EngineError):
    """As many requests wait as may. `n_requests` are under way, the running ones included."""

    def __init__(self, n_requests: int) -> None:
        super().__init__(
            f"the engine already has {n_requests} requests",
            remedy="try again later, or raise the server's --max-queue",
        )
        self.n_requests = n_requests


class RequestTimeoutError(EngineError):
    """A request waited or ran for longer than the server lets it."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            f"the request was not answered within {timeout_s:g} s; what was not streamed is lost",
            remedy="ask for fewer tokens, stream the answer, or raise the server's --request-timeout",
        )
        self.timeout_s = timeout_s


class LogitsError(EngineError):
    """A row of logits has no law. `problem` says what it holds."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The model's logits cannot be sampled: they hold {problem}",
            remedy="check the model file's hash, and the device",
        )


class DraftLostError(EngineError):
    """The draft model cannot be asked: its process ended, or a worker that it needs is away."""


class RequestError(LuceboxError):
    """A request is invalid. `param` names the field, `code` is OpenAI's error code (or None)."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.param = param
        self.code = code


class NoTokenError(RequestError):
    """What a request asks for leaves no token that could come next."""


class ContextLengthError(RequestError):
    """Prompt (plus the tokens asked for) does not fit the context."""

    def __init__(self, n_ctx: int, n_prompt: int, *, param: str = "messages") -> None:
        super().__init__(
            f"This model's maximum context length is {n_ctx} tokens. However, your messages resulted in "
            f"{n_prompt} tokens. Please reduce the length of the messages.",
            param=param,
            code="context_length_exceeded",
        )
        self.n_ctx = n_ctx
        self.n_prompt = n_prompt
