"""The one error this package raises."""


class StylerError(ValueError):
    """A request or a model that a styler cannot serve, said so that a client can mend it.

    `message` is one sentence for the client; `param` names the part of the request it is about, in the form
    `messages[2].content`, where there is one.
    """

    code = "unsupported_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
