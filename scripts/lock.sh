#!/usr/bin/env bash
# Writes the locks: every version with the hashes of its public files, and no address of any index.
# Extra arguments go to the resolver, for example `--upgrade` or `--upgrade-package starlette`.
set -euo pipefail
cd "$(dirname "$0")/.."

# Where this machine finds its packages must not leak into the locks, neither as hashes of local files nor as an address.
unset PIP_FIND_LINKS UV_FIND_LINKS

compile() {
    local lock=$1
    shift
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
        "$@" --output-file "$lock"
    if grep -q '://' "$lock"; then
        echo "Error: $lock names an address." >&2
        echo "Try:   require packages by name and version only, in pyproject.toml and requirements*.in." >&2
        exit 1
    fi
    echo "  $lock: $(grep -c '==' "$lock") packages"
}

compile requirements.txt pyproject.toml requirements.in "$@"
compile requirements-dev.txt pyproject.toml requirements.in requirements-dev.in --constraint requirements.txt "$@"
compile benchmarks/control/requirements-dlt.txt benchmarks/control/requirements-dlt.in "$@"
compile benchmarks/control/requirements-vectors.txt benchmarks/control/requirements-vectors.in "$@"
