#!/usr/bin/env bash
# usage: sdk.sh    OpenAI's Python client (from PyPI, kept in our cache) against the real server and model.
set -eu
. "$(dirname "$0")/env.sh"

packages=$cache/sdk
software_drivers
PYTHONPATH=$packages python3 -c 'import openai' 2>/dev/null ||
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$packages" "openai==3.*"

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
export TWOSTROKE_API_KEY=not-a-secret
"$CARGO_TARGET_DIR/debug/twostroke" serve --port 0 --served-model-name gpt-4o --trace "$work/trace.jsonl" 2>"$work/said" &
server=$!
for _ in $(seq 600); do
  grep -q '^ready: ' "$work/said" && break
  kill -0 "$server" 2>/dev/null || { cat "$work/said" >&2; exit 1; }
  sleep 0.2
done
address=$(sed -n 's/^listening at //p' "$work/said")
grep '^ready: ' "$work/said" >&2
PYTHONPATH=$packages OPENAI_BASE_URL=$address/v1 OPENAI_API_KEY=$TWOSTROKE_API_KEY python3 tests/sdk/suite.py "$work/trace.jsonl" ||
  { cat "$work/said" >&2; exit 1; }
kill "$server"
wait "$server"
server=
