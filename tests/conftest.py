pytest_plugins = ["tests.engine_fixtures", "tests.trtllm_fixtures"]
