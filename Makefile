# `make demo` and `make test` do all their set-up on a machine that has python3 (>= 3.11) with venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# What the demo needs: PyTorch and the packages of pages.
DEMO   := $(VENV)/.demo
# What makes pins, bills of materials and audits, apart from what the package is tested with.
TOOLS  := .venv-tools
LOCKED := .venv-locked/bin/python -m pip install --quiet --require-hashes
# One torch thread per process: two thread pools on two cores slow each other down by a hundred.
export OMP_NUM_THREADS ?= 1

.PHONY: demo evidence test test-all checks quick golden gpu sanitize bench attack docs integrations lint types format
.PHONY: lock locked sbom audit wheel clean
.DEFAULT_GOAL := test

# mup is only tested against; its torchvision requirement would replace torch.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,hf,ray]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps mup
	touch $@

$(DEMO): pyproject.toml constraints.txt
	test -e $(READY) || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet \
	  --disable-pip-version-check -c constraints.txt -e '.[pages]'; }
	touch $@

demo: $(DEMO)  ## measure learning-rate transfer across depth on real data; minutes
	$(BIN)/depthmup transfer --preset small --out runs/demo

test: $(READY) checks  ## everything CI checks; of long tests, one variant in seven
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not sanitize" --long slice --durations 40

test-all: $(READY) checks  ## every variant of every test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not sanitize"

checks: $(READY)  ## mypy, ruff and the sanitizers beside each other
	$(MAKE) -j2 lint types sanitize

quick: $(READY)  ## the tests that take seconds
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not long and not sanitize"

golden: $(READY)  ## all that the library says, compared with the golden files; minutes
	$(BIN)/python -W ignore -m tests.golden.freeze

sanitize: $(READY)  ## the compiled kernel: without warnings, and fuzzed under the sanitizers
	$(BIN)/python -m pytest -n 0 -vv -rs -m sanitize tests/training/test_native.py

bench: $(READY)  ## every measurement of speed, for an idle machine; ten minutes
	$(BIN)/python -m benchmarks

gpu: $(READY)  ## on a machine with GPUs: they are compared with the CPU, and measured
	$(BIN)/python -m pytest -n 0 -m gpu tests/training/test_cuda_graphs.py
	$(BIN)/depthmup doctor --gpu

evidence: $(READY)  ## EVIDENCE.md: the paper, measured again; an hour or two, and it resumes
	$(BIN)/python -m reproduction all --out runs/evidence --markdown EVIDENCE.md

attack: $(READY)  ## interruptions, flipped bits, mutated files, bad input, pages; two hours
	$(BIN)/python -m studies.attack

docs: $(READY)  ## the site, in site/: a warning or a dead link is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs site
	$(BIN)/python -m pytest -n 0 -rs tests/docs/test_site.py

# torchtitan's recipe needs few of its requirements, of which one contradicts transformers' datasets.
# timm and its torchvision stay out of the environment: tests/docs/conftest.py says why.
integrations: $(READY)  ## the recipes of docs/how-to with the real trainers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[integrations]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps \
	  torchtitan torchdata torch_checkpointing spmd_types==0.2.3 einops
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/timm \
	  timm torchvision==0.28.0
	$(BIN)/python -m pytest -n 0 -rs tests/docs tests/sweep/test_trackers.py tests/tables/test_trackers.py \
	  tests/test_notebook.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[trackers,ray,tensorboard]' \
	  aim dvclive sacred trackio tensorboardX
	$(BIN)/python -m pytest -n 0 -rs --long all tests/tables/test_readers.py
	PYTHONPATH=build/timm $(BIN)/python -m pytest -n 0 -rs tests/docs/test_pages.py -k timm

wheel: $(READY)  ## the wheel, which runs the demo in an environment of its own
	rm -rf dist build/clean
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  "$$(ls dist/*.whl)[pages,tables]"
	cd build/clean && bin/depthmup transfer --preset tiny --out runs

lint: $(READY)
	$(BIN)/ruff check src reproduction tests benchmarks studies requirements
	$(BIN)/ruff format --check src reproduction tests benchmarks studies requirements

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix src reproduction tests benchmarks studies requirements
	$(BIN)/ruff format src reproduction tests benchmarks studies requirements

$(TOOLS)/.ready: requirements/tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

# LINKS: a folder of wheels of PyTorch's builds without CUDA.
lock: $(TOOLS)/.ready  ## pins with hashes, in requirements/, of what constraints.txt names
	$(TOOLS)/bin/python requirements/lock.py $(LINKS)

# A wheel in a folder has no hash by its name, so that pip would take the index's build instead.
locked:  ## install exactly what is pinned, every file by its hash, and see that it works
	$(PYTHON) -m venv .venv-locked
	$(if $(LINKS),$(LOCKED) --no-index --no-deps --find-links $(LINKS) -r requirements/torch.txt)
	$(LOCKED) $(foreach part,torch locked build,-r requirements/$(part).txt)
	$(LOCKED) --no-deps -r requirements/oracles.txt
	.venv-locked/bin/python -m pip install --quiet --no-deps --no-build-isolation .
	.venv-locked/bin/depthmup doctor

sbom: $(READY) $(TOOLS)/.ready  ## a bill of materials of what is installed, build/sbom.cdx.json
	mkdir -p build
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--mc-type library --output-file build/sbom.cdx.json $(BIN)/python

audit: $(TOOLS)/.ready  ## known vulnerabilities of what is pinned; 2: not every one could be asked
	$(TOOLS)/bin/python requirements/audit.py

clean:
	rm -rf $(VENV) $(TOOLS) .venv-locked runs site build dist .mypy_cache .ruff_cache .pytest_cache \
	  .jupyter_cache jupyter_execute
