# Every target sets up what it needs in .venv and reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: install demo test check test-browser docs slow cluster faults parity lowest bench release-check clean
.DEFAULT_GOAL := install

install: $(VENV)/.installed

demo: install
	$(BIN)/python examples/demo.py

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Opens the pages in a headless Chromium, installed where it is missing; screenshots go to artifacts/browser.
test-browser: $(VENV)/.installed-dev
	command -v chromium || command -v chromium-browser || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)
	RL_TRAINING_SCREENSHOTS=artifacts/browser $(BIN)/python -m pytest -n 0 -m browser tests/browser

slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 -m slow

# On Ray clusters of this machine; installs ray, 250 MB, and takes minutes.
cluster: $(VENV)/.installed-dev
	$(PIP) -e ".[ray]"
	$(BIN)/python -m pytest -n 0 -m cluster tests/cluster

# Kills runs, fails disks, damages files, and prints a table; ten to fifteen minutes on two cores.
faults: $(VENV)/.installed-dev
	$(BIN)/python -m tests.faults $(FAULTS_ARGS)

# In an environment of its own: the other libraries bring many packages. Without them the tests
# would only skip.
parity: .venv-parity/.installed
	.venv-parity/bin/python -c "import d3rlpy, sb3_contrib, stable_baselines3"
	.venv-parity/bin/python -m pytest tests/parity -m parity

# Likewise, with the lower bounds of pyproject.toml: an old torch brings CUDA packages of several GB.
lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal tests/engine tests/algorithms tests/data tests/envs tests/reports \
		tests/test_cli.py tests/test_resume.py tests/test_old_checkpoints.py

# Likewise. Peers that are not on the package index: make bench BENCH_ARGS="--corl PATH --cleanrl PATH"
bench: .venv-bench/.installed
	.venv-bench/bin/python -m benchmarks.speed $(BENCH_ARGS)

# Builds sdist and wheel, installs the wheel in a temporary directory, and trains and predicts with it there.
release-check: $(VENV)/.installed-dev
	$(BIN)/python -m tests.release

docs: $(VENV)/.installed-dev
	$(PIP) -e ".[docs]"
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .venv-parity .venv-lowest .venv-bench runs site artifacts

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

.venv-lowest/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip --disable-pip-version-check install --quiet \
		-c constraints-lowest.txt -e ".[minari,hdf5,mujoco,tensorboard,video,report]" pytest pytest-xdist hypothesis
	@touch $@

.venv-%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt -e ".[$*]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e ".[dev]"
	@touch $@
