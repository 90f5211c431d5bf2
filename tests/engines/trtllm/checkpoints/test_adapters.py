"""LoRA adapters: what is refused before the engine starts, and that requests get the one they name."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engines import (
    EngineConfig,
    EngineDeadError,
    EngineFolder,
    GenerationRequest,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from engines.config import TensorRTLLMConfig
from engines.trtllm.checkpoint import Checkpoint
from engines.trtllm.checkpoints.adapters import MODULES, read_adapters
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.executor import TRTLLMExecutor
from tests.engines.test_conformance import collect, flat, request_for, tokens
from tests.lora_adapters import shapes_of, write_adapter
from tests.trtllm_fixtures import write_checkpoint

Story = Callable[[TRTLLMExecutor], Awaitable[None]]
Q = "base_model.model.model.layers.0.self_attn.q_proj"


def run(folder: Path, story: Story, adapters: dict[str, Path], **settings: Any) -> None:
    own = TensorRTLLMConfig(adapters=adapters, cuda_graphs=False, **settings)
    config = EngineConfig(kv_cache_gib=0.01, max_batch_size=4, max_num_tokens=64, trtllm=own)
    executor = TRTLLMExecutor.load(EngineFolder.load(folder), config)

    async def live() -> None:
        try:
            await executor.start()
            await story(executor)
        finally:
            await executor.shutdown()

    asyncio.run(live())


@pytest.fixture
def two(tmp_path: Path) -> dict[str, Path]:
    """Two adapters of different ranks and layers."""
    sql = write_adapter(tmp_path / "sql", rank=4, seed=1)
    poems = write_adapter(tmp_path / "poems", MODULES, rank=8, seed=2, use_rslora=True)
    return {"sql": sql, "poems": poems}


def ask(name: str, adapter: str | None, prompt: range = range(100)) -> GenerationRequest:
    return replace(request_for(name, prompt), adapter=adapter)


def test_each_request_gets_the_adapter_that_it_names(
    fake_trtllm: ModuleType, trtllm_engine: Path, two: dict[str, Path]
) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        names = (None, "sql", "poems")
        alone = [await tokens(executor, ask(f"{name} alone", name)) for name in names]
        together = await asyncio.gather(*(tokens(executor, ask(f"{name}", name)) for name in names))
        assert together == alone
        assert len({tuple(answer) for answer in alone}) == 3

    run(trtllm_engine, story, two)


def test_adapters_never_share_prefixes(fake_trtllm: ModuleType, trtllm_engine: Path, two: dict[str, Path]) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        hits = []
        for name, adapter in (("a", None), ("b", "sql"), ("c", "poems"), ("d", "sql")):
            outputs = await collect(executor.submit(ask(name, adapter)))
            hits.append(outputs[0].num_cached_tokens)
            assert flat(outputs)
        assert hits == [0, 0, 0, 96]

    run(trtllm_engine, story, two)


def test_room_is_made_for_the_ranks_and_layers_of_all(
    fake_trtllm: ModuleType, trtllm_engine: Path, two: dict[str, Path], tmp_path: Path
) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        assert executor.info.adapters == ("sql", "poems")
        made = fake_trtllm.STAGE.arguments[-1]["lora_config"]
        assert set(made.lora_target_modules) == set(MODULES.values())
        assert (made.lora_dir, made.max_lora_rank, made.max_loras, made.max_cpu_loras) == ([], 8, 1, 2)

    run(trtllm_engine, story, two, max_loras=1)

    async def attention_only(executor: TRTLLMExecutor) -> None:
        made = fake_trtllm.STAGE.arguments[-1]["lora_config"]
        assert made.lora_target_modules == ["attn_k", "attn_q", "attn_v"]

    run(trtllm_engine, attention_only, {"q": write_adapter(tmp_path / "q", ("q_proj",))})


def test_other_adapters_are_refused_by_name(fake_trtllm: ModuleType, trtllm_engine: Path, two: dict[str, Path]) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        with pytest.raises(InvalidRequestError, match="there is no adapter 'prose', but sql, poems") as caught:
            executor.submit(ask("a", "prose"))
        assert caught.value.param == "adapter"

    async def without(executor: TRTLLMExecutor) -> None:
        with pytest.raises(UnsupportedFeatureError, match="has no LoRA adapters"):
            executor.submit(ask("a", "sql"))

    run(trtllm_engine, story, two)
    run(trtllm_engine, without, {})


def test_an_adapter_that_does_not_load_stops_the_start(
    fake_trtllm: ModuleType, trtllm_engine: Path, two: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        raise AssertionError("it has started")

    monkeypatch.setattr("tensorrt_llm.lora_manager.HF_MODULES", {})
    with pytest.raises(EngineDeadError, match="TensorRT-LLM cannot generate a token"):
        run(trtllm_engine, story, two)


def tensors(**changed: tuple[int, ...] | None) -> dict[str, tuple[int, ...]]:
    """The tensors of a good adapter, but for lora_A or lora_B of one layer."""
    shapes = {**shapes_of(("q_proj",), 4), **{f"{Q}.lora_{side}.weight": shape for side, shape in changed.items()}}
    return {name: shape for name, shape in shapes.items() if shape is not None}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"peft_type": "PROMPT_TUNING"}, "its peft_type is 'PROMPT_TUNING'"),
    ({"r": 0}, "no number r above 0"),
    ({"lora_alpha": None}, "no number lora_alpha above 0"),
    ({"use_dora": True}, "does not apply use_dora = True"),
    ({"bias": "all"}, "does not apply bias = 'all'"),
    ({"modules_to_save": ["lm_head"]}, r"does not apply modules_to_save = \['lm_head'\]"),
    ({"alpha_pattern": {"q_proj": 8}}, "does not apply alpha_pattern"),
    ({"shapes": {}}, "adapter_model.safetensors is empty"),
    ({"shapes": {"base_model.model.lm_head.lora_A.weight": (4, 64)}}, "does not apply base_model.model.lm_head.lora_A"),
    ({"shapes": {Q.replace("q_proj", "qkv_proj") + ".lora_A.weight": (4, 64)}}, "qkv_proj.lora_A.weight to Llama"),
    ({"shapes": {Q.replace(".0.", ".2.") + ".lora_A.weight": (4, 64)}}, "a layer that the model, which has 2, has not"),
    ({"shapes": tensors(A=None)}, "q_proj of layer 0 lacks lora_A or lora_B"),
    ({"shapes": tensors(A=(8, 64))}, "a rank of 8 in lora_A and of 4 in lora_B"),
    ({"shapes": tensors(A=(4, 128))}, "maps 128 to 64, but the model's maps 64 to 64"),
    ({"shapes": tensors(B=(32, 4))}, "maps 64 to 32, but the model's maps 64 to 64"),
    ({"shapes": tensors(A=(4,))}, r"is no matrix, but \[4\]"),
    ({"dtype": "I8"}, "is I8, not one of F32, F16, BF16"),
]


@pytest.mark.parametrize(("fields", "message"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_an_adapter_that_would_end_the_engine_is_refused_before(
    tiny_checkpoint: Path, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    folder = write_adapter(tmp_path / "bad", **fields)
    with pytest.raises(TensorRTLLMError, match=f"the adapter 'sql' in {folder} cannot be served: .*{message}"):
        read_adapters({"sql": folder}, Checkpoint(tiny_checkpoint), 1)


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file_is_named(tiny_checkpoint: Path, tmp_path: Path, file: str) -> None:
    folder = write_adapter(tmp_path / "half")
    (folder / file).unlink()
    with pytest.raises(TensorRTLLMError, match=f"the adapter 'sql' .* there is no {file}"):
        read_adapters({"sql": folder}, Checkpoint(tiny_checkpoint), 1)


def test_what_an_architecture_does_not_apply_is_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    tokenizer = tiny_checkpoint / "tokenizer.json"
    folder = write_adapter(tmp_path / "mlp", ("q_proj", "up_proj"))
    mistral = write_checkpoint(tmp_path / "mistral", tokenizer, architectures=["MistralForCausalLM"])
    with pytest.raises(TensorRTLLMError, match=r"up_proj\.lora_A\.weight to MistralForCausalLM, only k_proj, o_proj"):
        read_adapters({"sql": folder}, Checkpoint(mistral), 1)
    qwen = write_checkpoint(tmp_path / "qwen", tokenizer, architectures=["Qwen2ForCausalLM"])
    with pytest.raises(TensorRTLLMError, match="to LlamaForCausalLM and MistralForCausalLM, not to Qwen2ForCausalLM"):
        read_adapters({"sql": folder}, Checkpoint(qwen), 1)
    with pytest.raises(TensorRTLLMError, match="divides the 2 key/value heads"):
        read_adapters({"sql": folder}, Checkpoint(tiny_checkpoint), 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "adapters need cuda_graphs = false"),
        ({"cuda_graphs": False, "pipeline_parallel_size": 2}, "adapters need pipeline_parallel_size = 1"),
        (
            {"cuda_graphs": False, "sampler": "torch", "speculation": "ngram"},
            "adapters are not to be had with speculation 'ngram'",
        ),
        ({"cuda_graphs": False, "max_loras": 0}, "max_loras must be at least 1"),
    ],
)
def test_settings_that_adapters_cannot_stand_beside(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TensorRTLLMConfig(adapters={"sql": Path("sql")}, **settings)


def test_an_engine_takes_no_adapters_here(fake_trtllm: ModuleType, trtllm_prebuilt: Path) -> None:
    config = EngineConfig(
        trtllm=TensorRTLLMConfig(adapters={"sql": Path("sql")}, cuda_graphs=False, tokens_per_block=32)
    )
    with pytest.raises(TensorRTLLMError, match="is a setting for checkpoints"):
        TRTLLMExecutor.load(EngineFolder.load(trtllm_prebuilt), config)
