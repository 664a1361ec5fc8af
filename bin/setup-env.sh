# Sourced by the launchers: finds the checkout and a Python, makes the virtual environment ready.
# Expects PROGRAM (for messages), BIN (this directory) and the launcher's arguments; sets CHECKOUT,
# VENV, PYTHON, and ROCKETMQ_HOME unless it is set. POSIX sh. What it says goes to stderr, but for
# --version.

fail() {
  echo "$PROGRAM: $*" >&2
  exit 1
}

# --version, as the first argument of any of them: needs no Python and installs nothing.
version() {
  echo "$PROGRAM $(sed -n 's/^version *= *//p' "$CHECKOUT/setup.cfg")"
  exit 0
}

need_linux() {
  [ "$(uname -s)" = Linux ] ||
    fail "needs Linux, this is $(uname -s): run it in a Linux container or virtual machine"
}

# Sets PYTHON to $1 when that is an interpreter >= 3.11 that can make virtual environments.
try_python() {
  command -v "$1" >/dev/null 2>&1 || return 1
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || {
    too_old="$too_old $1"
    return 1
  }
  "$1" -c 'import ensurepip, venv' >/dev/null 2>&1 || {
    no_venv=$1
    return 1
  }
  PYTHON=$1
}

# Sets PYTHON: the virtual environment's own, else BROKER_PYTHON, else the first that will do.
find_python() {
  too_old=
  no_venv=
  if [ -n "${BROKER_PYTHON:-}" ] && ! command -v "$BROKER_PYTHON" >/dev/null 2>&1; then
    fail "BROKER_PYTHON is $BROKER_PYTHON, and there is no such program:" \
      "set it to the path of a Python 3.11 or newer, or unset it to have one looked for"
  fi
  try_python "$VENV/bin/python" && return
  if [ -n "${BROKER_PYTHON:-}" ]; then
    try_python "$BROKER_PYTHON" && return
  else
    for candidate in python3.13 python3.14 python3.12 python3.11 \
      python3 /usr/bin/python3 /usr/local/bin/python3; do
      try_python "$candidate" && return
    done
  fi
  [ -z "$no_venv" ] ||
    fail "$no_venv cannot make virtual environments: install its venv module" \
      "(Debian, Ubuntu: apt install python3-venv)"
  [ -z "$too_old" ] ||
    fail "needs Python 3.11 or newer (too old or broken:$too_old): install python3.11," \
      "or set BROKER_PYTHON to the path of one"
  fail "needs Python 3.11 or newer and found none: install it" \
    "(Debian, Ubuntu: apt install python3 python3-venv), or set BROKER_PYTHON to the path of one"
}

# prepare [--extra NAME]...: installs what setup.cfg asks for, once.
prepare() {
  "$PYTHON" -I "$CHECKOUT/tools/prepare_venv.py" --venv "$VENV" --program "$PROGRAM" "$@" || exit 1
}

CHECKOUT=$(dirname "$BIN")
VENV=${BROKER_VENV:-$CHECKOUT/.venv}
case $VENV in /*) ;; *) VENV=$(pwd)/$VENV ;; esac
ROCKETMQ_HOME=${ROCKETMQ_HOME:-$CHECKOUT}
PYTHONPATH=$CHECKOUT
PYTHONSAFEPATH=1
export ROCKETMQ_HOME PYTHONPATH PYTHONSAFEPATH
[ "${1:-}" = --version ] && version
need_linux
find_python
