#!/usr/bin/env bash
# usage: fixtures.sh [hf] [gemma]    makes the large files of the long suites, once, in $TWOSTROKE_FIXTURES:
#   smollm2-f16/, smollm2-f16-shards/    the default model as Hugging Face folders, one file and three shards
#   gemma3-270m-q4_k_m.gguf, gemma3-270m-f16/   Gemma 3 270M (under the Gemma terms: for tests, never shipped), and what it says as floats
set -eu
. "$(dirname "$0")/env.sh"
scripts/need.sh pip
export TWOSTROKE_FIXTURES=${TWOSTROKE_FIXTURES:-$cache/fixtures}
[ $# -gt 0 ] || set -- hf gemma
# Into a folder of its own: Debian's pip refuses to install beside the system's packages.
packages=$cache/python
if ! PYTHONPATH=$packages python3 -c 'import gguf, numpy, safetensors' 2>/dev/null; then
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$packages" gguf numpy safetensors
fi
export PYTHONPATH=$packages
for what in "$@"; do
  case $what in
    hf)
      model=$("$CARGO_TARGET_DIR/debug/twostroke" fetch)
      python3 scripts/fixtures.py hf "$model" "$TWOSTROKE_FIXTURES"
      ;;
    gemma) python3 scripts/fixtures.py gemma "$TWOSTROKE_FIXTURES" ;;
    *) echo "fixtures.sh: unknown fixture: $what" >&2; exit 2 ;;
  esac
done
