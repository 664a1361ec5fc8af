#!/bin/sh
# Builds and tries what a release consists of: packaging/release.sh -h, docs/releasing.md.
PROGRAM=release
BIN=$(dirname "$(readlink -f "$0")")/../bin
BIN=$(readlink -f "$BIN")
. "$BIN/setup-env.sh"
prepare --extra release
exec "$VENV/bin/python" "$CHECKOUT/packaging/release.py" "$@"
