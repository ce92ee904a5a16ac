#!/bin/sh
# Collect what a machine with torch and transformers lacks to run g2d, for `python benchmarks/gpu.py --wheels FOLDER` there.
#
#     benchmarks/wheelhouse.sh FOLDER [PYTHON_VERSION]
#
# Run it where there is a network. PYTHON_VERSION is the other machine's (default: this one's, as 3.12). Versions are those
# of envs/constraints.txt, without what stands on every such machine: torch, transformers, accelerate, numpy, pandas,
# pyarrow, scipy and what they bring. For x86-64 Linux.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:?FOLDER is missing: where to collect the wheels}
version=${2:-$("${PYTHON:-python3}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}

mkdir -p "$folder"
wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
sources="connection_pool" # published without a wheel; pure Python
# Exact versions, so that nothing is resolved anew and nothing else comes along.
grep -v '^#' "$here/envs/wheelhouse.txt" | while read -r name; do
  grep -i "^$name==" "$here/envs/constraints.txt" || { echo "$name: not in envs/constraints.txt" >&2; exit 1; }
done > "$wanted"
"${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$folder" $(grep -E "^($sources)==" "$wanted")
sed -i -E "/^($sources)==/d" "$wanted"
platforms=""
for glibc in 17 24 27 28 31 34; do platforms="$platforms --platform manylinux_2_${glibc}_x86_64"; done
# shellcheck disable=SC2086  # the platforms are words
"${PYTHON:-python3}" -m pip download --quiet --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
  $platforms --platform manylinux2014_x86_64 --platform manylinux1_x86_64 --dest "$folder" --requirement "$wanted"
cp "$here/envs/wheelhouse.txt" "$folder/wanted.txt"
echo "$(ls "$folder"/*.whl | wc -l) wheels, $(du -sm "$folder" | cut -f1) MB, in $folder"
