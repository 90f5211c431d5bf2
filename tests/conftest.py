pytest_plugins = ["tests.engine_fixtures"]
