"""What an executor may raise: small exceptions with a stable code, raised where the cause is known."""


class EngineError(Exception):
    """Base of all errors of an executor. `code` is stable and part of the contract; `message` is for people."""

    code = "engine_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidRequestError(EngineError):
    """A field of the request has a value that no executor can honour. `param` names the field."""

    code = "invalid_request"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextLengthError(InvalidRequestError):
    """Prompt and max_tokens together do not fit the model's context or the executor's KV cache."""

    code = "context_length_exceeded"


class UnsupportedFeatureError(InvalidRequestError):
    """A valid field that this executor cannot honour; refused by name instead of being ignored."""

    code = "unsupported_parameter"


class GuideError(InvalidRequestError):
    """A guide does not compile: bad syntax, an unsupported schema feature, or a limit on its size."""

    code = "invalid_guide"


class OverloadedError(EngineError):
    """The waiting queue is full. Nothing was queued; try again after `retry_after_s` seconds."""

    code = "overloaded"

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StepFailedError(EngineError):
    """The step that this sequence took part in threw. The sequence is over, the executor goes on."""

    code = "step_failed"


class TimedOutError(EngineError):
    """The sequence did not end within its own `timeout_s`."""

    code = "timed_out"

    def __init__(self, message: str = "the answer was not complete within the request's timeout") -> None:
        super().__init__(message)


class EngineDeadError(EngineError):
    """The executor was shut down or its engine thread is gone; no request will ever be served again."""

    code = "engine_dead"


class MemoryShortageError(EngineError):
    """The machine has not the memory that the executor's configuration asks for. Raised while loading."""

    code = "memory_shortage"
