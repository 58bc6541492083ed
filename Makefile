# What a person types here. Each target installs what the machine lacks, or says what to install.
# CARGO_TARGET_DIR defaults to the user's cache folder, so that checkouts share one build.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help demo app web test test-full test-app test-web check bench fetch

help:  ## this list
	@grep -hE '^[a-z-]+: *##' $(MAKEFILE_LIST) | sed -E 's/: *## */\t/' | awk -F'\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

demo:  ## build, fetch a real model, stream an answer and its figures
	@scripts/demo.sh

app:  ## build and start the desktop program: TRACE=FILE opens a trace, else a simulated run is shown
	@scripts/app.sh

web:  ## build the page and serve it, with its engine inside: prints the address (MODEL=toy, or a file)
	@scripts/web.sh

test:  ## all tests: unit, golden, every kernel on software drivers, wasm32, shaders in a browser (REQUIRE_GPU=1: nothing may be skipped)
	@scripts/test.sh

test-full:  ## the same and the longer suites
	@scripts/test.sh full

test-app:  ## the app by its labels and pictures, on a software driver
	@scripts/test-app.sh

test-web:  ## the page in a real browser: the engine inside it, two chats at once, the timeline
	@scripts/test-web.sh

check:  ## format, lints, licences
	@scripts/check.sh

bench:  ## this engine and llama.cpp on the same file, in one run; the table goes into benches/README.md
	@scripts/bench.sh

fetch:  ## the default model, into the cache
	@scripts/fetch.sh
