#!/bin/sh
# sh tests/gpu/run.sh BUILD-DIR [--only NAME]... [--list]: every test that needs a real GPU, in some 9 minutes.
#
# Needs the CUDA driver and a python3 with PyTorch and transformers (torchvision or timm for ResNet-152); no compiler
# and no package beyond. BUILD-DIR is a build of this tree, made anywhere (tests/setup.sh --portable makes one that
# moves). Each test prints one line, "ok NAME (...)" or "FAIL NAME (...)"; the last line is "N passed, N failed".
# The logs go into one file under $OUT, or to a folder that is named when something fails.
here=$(cd "$(dirname "$0")" && pwd) || exit 2
command -v python3 > /dev/null 2>&1 || { echo "FAIL: no python3"; echo "0 passed, 1 failed"; exit 1; }
exec python3 -u "$here/run.py" "$@"
