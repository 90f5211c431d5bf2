"""What is checked of prompt embeddings; all other fields are in the conformance suite, against every executor."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engines import (
    ExecutorInfo,
    GenerationRequest,
    InvalidRequestError,
    Mrope,
    PromptEmbeddings,
    SamplingParams,
    UnsupportedFeatureError,
)
from engines.validation import check_request

INFO = ExecutorInfo("any", "f32", 300, 512, 8, 8, block_size=32, num_blocks=64, hidden_size=4)
REQUEST = GenerationRequest("a", tuple(range(10)), SamplingParams(), max_tokens=4)


def image(start: int, num_rows: int, width: int = 4, dtype: Any = np.float32, content: bytes = b"x") -> Any:
    return PromptEmbeddings(start, np.zeros((num_rows, width), dtype), content)


def test_images_beside_each_other_and_up_to_the_end_of_the_prompt_are_taken() -> None:
    check_request(replace(REQUEST, prompt_embeddings=(image(5, 5), image(0, 5))), INFO)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ((image(6, 5),), "reach beyond the prompt"),
        ((image(-1, 2),), "must not start before the prompt"),
        ((image(4, 3), image(2, 3)), "overlap"),
        ((image(0, 2, width=5),), r"must be \[num_rows, 4\], not \[2, 5\]"),
        ((image(0, 0),), r"not \[0, 4\]"),
        ((image(0, 2, dtype=np.float64),), "must be float32, not float64"),
        ((image(0, 2, content=b""),), "need a content_hash"),
    ],
)
def test_images_that_do_not_fit_are_refused(images: tuple[PromptEmbeddings, ...], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        check_request(replace(REQUEST, prompt_embeddings=images), INFO)
    assert caught.value.param == "prompt_embeddings"


@pytest.mark.parametrize(
    "fields", [{"prompt_embeddings": (image(0, 1),)}, {"mrope": Mrope(np.zeros(4, np.float32), 0)}]
)
def test_an_executor_without_a_hidden_size_takes_no_images(fields: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeatureError, match="takes no images"):
        check_request(replace(REQUEST, **fields), replace(INFO, hidden_size=0))
