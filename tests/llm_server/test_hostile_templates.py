"""A template that comes with a model is data: on the way from its folder to a prompt it runs nothing."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engines.config import EngineConfig
from engines.progress import silent
from llm_server.config import ModelConfig
from llm_server.loading import load_model
from stylers.chat import Chat
from stylers.errors import StylerError
from tests.hf_folders import TOKENIZER_CONFIG, write_ir_folder

# ways out of the sandbox that Jinja's history knows; {mark} is a file that they would make
ESCAPES = {
    "globals": "{{{{ cycler.__init__.__globals__.os.system('touch {mark}') }}}}",
    "subclasses": "{{{{ ''.__class__.__mro__[1].__subclasses__() }}}}",
    "str.format": "{{{{ '{{0.__class__.__init__.__globals__}}'.format(messages) }}}}",
    "format_map": "{{{{ '{{a.__class__.__mro__}}'.format_map({{'a': messages}}) }}}}",
    "attr filter": "{{{{ (cycler | attr('__init__') | attr('__globals__'))['os'].system('touch {mark}') }}}}",
    "indirect str.format": "{{% set f = '{{0.__class__.__mro__}}'.format %}}{{{{ f(messages) }}}}",
    "lipsum": "{{{{ lipsum.__globals__['os'].popen('touch {mark}').read() }}}}",
    "import": "{{% import 'os' as os %}}{{{{ os.system('touch {mark}') }}}}",
}


def render_a_chat(folder: Path, home: Path) -> None:
    """Build and load the model and render a prompt, as serving it does."""
    config = ModelConfig(model=str(folder), executor=EngineConfig(kv_cache_gib=0.01))
    with ThreadPoolExecutor(1) as pool:
        model = load_model(config, home, pool, silent)
        try:
            model.styler.build_prompt(Chat.from_openai({"messages": [{"role": "user", "content": "hi"}]}))
        finally:
            asyncio.run(model.executor.shutdown())


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_hostile_template_is_refused_and_runs_nothing(escape: str, tiny_engine: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    folder = write_ir_folder(tmp_path / "hostile", tiny_engine)
    config = TOKENIZER_CONFIG | {"chat_template": ESCAPES[escape].format(mark=mark)}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(StylerError):
        render_a_chat(folder, tmp_path / "home")
    assert not mark.exists()
