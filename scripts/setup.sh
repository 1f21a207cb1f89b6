#!/bin/sh
# Make the virtual environment that the Makefile's targets run in: once, and again when its inputs change.
# Says in one line what is missing if this machine cannot. TORCH_INDEX: a package index to take torch from, for
# example one that has builds without CUDA.
set -eu
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

command -v "$PYTHON" >/dev/null 2>&1 || {
    echo "elastane needs Python 3.11 or newer; '$PYTHON' was not found (Debian/Ubuntu: apt-get install python3 python3-venv)" >&2
    exit 1
}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "elastane needs Python 3.11 or newer; '$PYTHON' is $("$PYTHON" -V 2>&1 | cut -d' ' -f2) (set PYTHON=python3.11)" >&2
    exit 1
}
if ! "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing python3-venv"
        apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
    else
        echo "Python's venv module is missing (Debian/Ubuntu: sudo apt-get install python3-venv)" >&2
        exit 1
    fi
fi

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
echo "installing elastane and the tools of its tests into $VENV (a minute or two, once)"
# torch first and by itself: the exact pin keeps pip from looking at other builds of it.
"$VENV/bin/pip" install --quiet --disable-pip-version-check ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} \
    "$(grep '^torch==' constraints.txt)"
"$VENV/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
