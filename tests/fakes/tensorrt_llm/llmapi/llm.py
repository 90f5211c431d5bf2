"""The LLM class of the PyTorch backend."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ..result import IterationResult, RequestOutput, nothing
from ..sampling_params import SamplingParams
from ..stage import STAGE
from ..worker import Executor, Live, read_json
from .llm_args import TorchLlmArgs, check_names, check_sampler
from .sessions import open_session


class LLM:
    def __init__(self, model: str | Path, tokenizer: Any = None, **kwargs: Any) -> None:
        arguments = {"model": model, "tokenizer": tokenizer, **kwargs}
        check_names(arguments)
        STAGE.arguments.append(arguments)
        self.args = TorchLlmArgs(**arguments)
        check_sampler(self.args)
        if self.args.world_size > 1 and (self.args.gpus_per_node or STAGE.num_visible_gpus) > STAGE.num_visible_gpus:
            raise RuntimeError(f"Only {STAGE.num_visible_gpus} GPUs are available, but more were requested.")
        folder = Path(model)
        config = read_json(folder / "config.json")
        if self.args.max_seq_len is None:
            self.args.max_seq_len = config["max_position_embeddings"]
        tokenizer_path = folder / "tokenizer.json"
        self._tokenizer = None if self.args.skip_tokenizer_init else Tokenizer.from_file(str(tokenizer_path))
        self._end_id: int = config["eos_token_id"]
        self._session = open_session(self.args.world_size)
        self._executor: Executor | None = Executor(self.args, config, tokenizer_path)
        self._executor.mpi_futures = self._session.futures
        self._next_id = 2

    def generate_async(
        self,
        inputs: Any,
        sampling_params: SamplingParams | None = None,
        lora_request: Any = None,
        prompt_adapter_request: Any = None,
        streaming: bool = False,
        kv_cache_retention_config: Any = None,
        disaggregated_params: Any = None,
        trace_headers: Any = None,
        _postproc_params: Any = None,
        scheduling_params: Any = None,
        cache_salt: str | None = None,
    ) -> RequestOutput:
        if self._executor is None or self._executor.is_shutdown():
            raise RuntimeError("LLM is shutting down")
        prompt = self._prompt(inputs)
        params = SamplingParams() if sampling_params is None else sampling_params
        if not isinstance(params, SamplingParams):
            raise TypeError(f"expected SamplingParams, got {type(params)}")
        if params.end_id is None and self._tokenizer is None:
            raise ValueError("end_id must be set when skip_tokenizer_init is on")
        params.setup(self._end_id)
        params._stream_interval = self.args.stream_interval
        if not self.args.enable_chunked_prefill and len(prompt) > (self.args.max_num_tokens or 0):
            raise ValueError(f"the prompt length ({len(prompt)}) exceeds max_num_tokens ({self.args.max_num_tokens})")
        room = (self.args.max_seq_len or 0) - len(prompt)
        max_tokens = room if params.max_tokens is None else min(params.max_tokens, room)
        result = RequestOutput(self, self._next_id, prompt, params)
        self._next_id += 1
        if self._executor.iter_stats is None:
            self._executor.iter_stats = IterationResult()
        self._executor.iter_stats.mark_undone()
        words = self._stop_words(params)
        self._executor.submit(Live(result, params, cache_salt, max_tokens, words, streaming, lora_request))
        return result

    def get_stats_async(self, timeout: float | None = 2) -> AsyncIterator[dict[str, Any]]:
        source = self._executor.iter_stats if self._executor is not None else None
        if source is None:
            return nothing()
        source.set_timeout(timeout)
        return source

    def get_stats(self, timeout: float | None = 2) -> list[dict[str, Any]]:
        source = self._executor.iter_stats if self._executor is not None else None
        if source is None:
            return []
        source.set_timeout(timeout)
        return source.get_results()

    def shutdown(self) -> None:
        if STAGE.hang_shutdown:
            threading.Event().wait()
        if self._executor is not None:
            self._executor.stop()
            self._session.close()

    def _prompt(self, inputs: Any) -> list[int]:
        if isinstance(inputs, str):
            assert self._tokenizer is not None
            return list(self._tokenizer.encode(inputs).ids)
        if isinstance(inputs, list):
            assert isinstance(inputs[0], int)
            return inputs
        if isinstance(inputs, dict):
            token_ids = inputs.get("prompt_token_ids")
            assert token_ids is not None or inputs.get("prompt") is not None
            return list(token_ids) if token_ids is not None else self._prompt(inputs["prompt"])
        raise TypeError(f"The inputs must be type str or list of int, but got {type(inputs)}")

    def _stop_words(self, params: SamplingParams) -> list[tuple[int | str, list[int]]]:
        words: list[tuple[int | str, list[int]]] = [(i, [i]) for i in params.stop_token_ids or ()]
        stops = [params.stop] if isinstance(params.stop, str) else params.stop or []
        if self._tokenizer is not None:
            words += [(stop, self._tokenizer.encode(stop, add_special_tokens=False).ids) for stop in stops]
        return words
