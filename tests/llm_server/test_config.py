from pathlib import Path
from typing import Any

import pytest

from llm_server.config import ALL_OPTIONS, ConfigError, Settings, load_settings
from llm_server.sources.catalog import DEFAULT_MODEL


def load(tmp_path: Path, text: str | None = None, flags: dict[str, Any] | None = None, **environ: str) -> Settings:
    file = None
    if text is not None:
        file = tmp_path / "server.toml"
        file.write_text(text)
    return load_settings(flags or {}, environ, file)


def test_without_any_setting_the_default_model_is_served_on_this_machine_only(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert (settings.server.host, settings.server.port, settings.server.max_body_bytes) == ("127.0.0.1", 8000, 2**25)
    [model] = settings.models
    assert (model.model, model.executor.kv_cache_gib, model.executor.waiting_limit) == (DEFAULT_MODEL, 2.0, 256)


def test_flags_go_before_environment_before_file_before_defaults(tmp_path: Path) -> None:
    text = "port = 1\nmax_batch_size = 3\nkv_cache_gib = 1"
    flags = {"port": 5, "host": None}
    settings = load(tmp_path, text, flags, LLM_SERVER_PORT="7", LLM_SERVER_MAX_BATCH_SIZE="4", OTHER="x")
    [model] = settings.models
    assert (settings.server.port, settings.server.host) == (5, "127.0.0.1")
    assert (model.executor.max_batch_size, model.executor.kv_cache_gib) == (4, 1.0)


TABLES = """
kv_cache_gib = 1
[model.small]
model = "gguf:/models/small.gguf"
precision = "f32"
[model."house/large"]
model = "gguf:/models/large.gguf"
kv_cache_gib = 4.5
served_model_name = "large"
"""


def test_tables_serve_several_models_with_options_of_their_own(tmp_path: Path) -> None:
    small, large = load(tmp_path, TABLES).models
    assert (small.served_model_name, small.model) == ("small", "gguf:/models/small.gguf")
    assert (small.executor.precision, small.executor.kv_cache_gib) == ("f32", 1.0)
    assert (large.served_model_name, large.executor.kv_cache_gib, large.executor.precision) == ("large", 4.5, "auto")


def test_a_model_named_on_the_command_line_is_served_alone(tmp_path: Path) -> None:
    [small] = load(tmp_path, TABLES, {"model": "small"}).models
    assert small.model == "gguf:/models/small.gguf"
    [other] = load(tmp_path, TABLES, {"model": "other.gguf"}).models
    assert (other.model, other.served_model_name, other.executor.kv_cache_gib) == ("other.gguf", None, 1.0)


def test_the_file_may_name_its_one_model(tmp_path: Path) -> None:
    [model] = load(tmp_path, 'model = "gguf:x"\nchat_template = "t.jinja"').models
    assert (model.model, model.chat_template) == ("gguf:x", Path("t.jinja"))


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ('precision = "fp4"', {}, "'auto', 'bf16' or 'f32'"),
        ("port = 70000", {}, "port must be between 0 and 65535"),
        ("port = 1.5", {}, "port = 1.5"),
        ("kv_cache_gib = 0", {}, "kv_cache_gib must be above 0"),
        ("kv_cache_gib = nan", {}, "kv_cache_gib"),
        ("kv_cache_gib = inf", {}, "kv_cache_gib must be above 0, and finite"),
        ("kv_cash_gib = 1", {}, "unknown option 'kv_cash_gib'; known are chat_template,"),
        ("[model.a]\nport = 1", {}, r"\[model.a\] has an unknown option 'port'"),
        ("model = [1]", {}, "model = "),
        ("port = ", {}, "not valid TOML"),
        ("kv_cache_gib = true", {}, "kv_cache_gib = true is not allowed"),
        ("[model.a]\nmax_batch_size = false", {}, "max_batch_size = false is not allowed"),
        ("[trtllm]\ntensor_parallel_size = true", {}, "trtllm.tensor_parallel_size = true is not allowed"),
        (None, {"LLM_SERVER_PORT": "many"}, "LLM_SERVER_PORT = 'many' is not allowed"),
        (None, {"LLM_SERVER_PORT": "70000"}, r"between 0 and 65535 \(set by LLM_SERVER_PORT\)"),
        (None, {"LLM_SERVER_LOG_LEVEL": "loud"}, "LLM_SERVER_LOG_LEVEL = .*'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_bad_value_stops_the_start_and_names_what_is_allowed(
    tmp_path: Path, text: str | None, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text, {}, **environ)


def test_a_switch_is_true_or_false_and_a_text_may_say_so(tmp_path: Path) -> None:
    [model] = load(tmp_path, "generic_tools = true", {}, LLM_SERVER_SPLIT_REASONING="false").models
    assert (model.generic_tools, model.split_reasoning) == (True, False)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        load_settings({}, {}, tmp_path / "none.toml")


def test_a_kubernetes_service_of_our_name_is_not_taken_for_a_port(tmp_path: Path) -> None:
    assert load(tmp_path, LLM_SERVER_PORT="tcp://10.0.0.7:8000").server.port == 8000


def test_options_of_all_layers_have_names_of_their_own() -> None:
    assert {"port", "model", "kv_cache_gib"} <= ALL_OPTIONS


def test_tensorrt_llm_has_a_table_of_its_own_and_defaults_for_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('engine = "trtllm"\n[trtllm]\ntensor_parallel_size = 2\nmax_attention_window = [64, 512]\n')
    executor = load_settings({}, {}, file).models[0].executor
    assert (executor.trtllm.tensor_parallel_size, executor.trtllm.max_attention_window) == (2, (64, 512))
    assert (executor.max_batch_size, executor.max_num_tokens, executor.kv_cache_fraction) == (256, 8192, 0.9)
    flags = {"engine": "trtllm", "trtllm": '{"sampler": "torch", "speculation": "ngram"}', "kv_cache_gib": 4}
    executor = load_settings(flags, {}, None).models[0].executor
    assert (executor.trtllm.speculation, executor.kv_cache_fraction) == ("ngram", None)


def test_adapters_are_folders_by_name(tmp_path: Path) -> None:
    text = 'engine = "trtllm"\n[trtllm]\ncuda_graphs = false\n[trtllm.adapters]\nsql = "/adapters/sql"\n'
    assert load(tmp_path, text).models[0].executor.trtllm.adapters == {"sql": Path("/adapters/sql")}
    flag = '{"adapters": {"sql": "/adapters/sql"}, "cuda_graphs": false}'
    [model] = load_settings({"engine": "trtllm", "trtllm": flag}, {}, None).models
    assert model.executor.trtllm.adapters == {"sql": Path("/adapters/sql")}


def test_an_adapter_needs_a_name_of_its_own() -> None:
    flags = {"engine": "trtllm", "served_model_name": "sql"}
    with pytest.raises(ConfigError, match="'sql' is a model, and an adapter too"):
        load_settings({**flags, "trtllm": '{"adapters": {"sql": "/a"}, "cuda_graphs": false}'}, {}, None)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('{"tp": 2}', "trtllm = .* is not allowed"),
        ('{"tokens_per_block": 33}', "tokens_per_block must be a power of 2"),
        ('{"speculation": "mtp"}', 'needs sampler = "torch"'),
        ('{"stream_interval": 2, "gather_generation_logits": true}', "stream_interval must be 1"),
        ("[]", "is not allowed"),
        ('{"adapters": {"sql": "/a"}}', "adapters need cuda_graphs = false"),
        ('{"adapters": {"sql": "/a"}, "cuda_graphs": false}', "the table trtllm belongs to the engine trtllm"),
        ('{"tensor_parallel_size": 2}', "the table trtllm belongs to the engine trtllm"),
        ('{"adapters": ["/a"], "cuda_graphs": false}', "is not allowed"),
    ],
)
def test_a_table_that_tensorrt_llm_cannot_have_is_refused(table: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings({"trtllm": table}, {}, None)
