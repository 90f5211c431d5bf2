# make serve: set up what is missing, then serve the default model. make test: the same, then run the tests.
# Other models and options: make serve ARGS="--port 9000 gguf:/models/some.gguf"

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: venv serve test lint format bench convert-env clean

venv: .venv/.base

serve: .venv/.base
	@exec $(BIN)/llm-server serve $(ARGS)

test: .venv/.test
	$(BIN)/python -m pytest $(ARGS)

lint: .venv/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The executor alone against the least possible loop over the same model. For HTTP: benchmarks/README.md.
bench: .venv/.test
	$(BIN)/python -m benchmarks.executor $(ARGS)

# PyTorch and optimum-intel (1.6 GB) in an environment of their own: once, before a Hugging Face folder is converted.
convert-env: .venv/.base
	$(BIN)/llm-server convert-env

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=...")'
	@echo "Installing into .venv (a minute or two, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --editable .
	@touch $@

.venv/.test: .venv/.base
	@echo "Installing the test tools into .venv (once) ..."
	@$(PIP) --editable '.[test,bench]'
	@touch $@
