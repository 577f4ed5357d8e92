#!/usr/bin/env bash
# bootstrap.sh VENV: the Python environment of a checkout, from the locked requirements. Run by make.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}
step() { printf '\033[1m==>\033[0m %s\n' "$*"; }
fail() { printf 'tessera: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "no $python; install Python 3.11 or newer (apt-get install python3 python3-venv)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old: Python 3.11 or newer is needed"

if [ ! -x "$venv/bin/uv" ]; then
  step "Python environment in $venv"
  if ! "$python" -m venv "$venv" 2>/dev/null; then
    command -v apt-get >/dev/null || fail "$python has no venv module; install it (python3-venv)"
    step "python3-venv (apt)"
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y python3-venv >/dev/null
    "$python" -m venv --clear "$venv"
  fi
  "$venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
fi
step "packages from requirements/dev.txt"
"$venv/bin/uv" pip install -q --python "$venv/bin/python" --require-hashes -r requirements/dev.txt
step "the project itself (protocols, interposer, binding)"
"$venv/bin/uv" pip install -q --python "$venv/bin/python" --no-deps --no-build-isolation -e .
