#!/usr/bin/env bash
# Builds Lucebox for an NVIDIA GPU and checks and measures it, on a machine that reaches no network.
#
#   tests/device/run.sh prepare KIT    here, with a network: fills the folder KIT
#   tests/device/run.sh KIT [OUT]      there, in under 8 minutes: builds, tests, measures; figures go to OUT
#
# KIT holds wheels/ (what Lucebox and its tests need, for the Python there), source.tar.gz (ggml's, as
# vendor/ggml/PIN has it) and maybe models/ (target.gguf and draft.gguf). Without models/, models of the sizes
# of Qwen2.5-Coder-1.5B and 0.5B are written there, whose text is known. `prepare` heeds KIT_PYTHON (that
# Python's version: 3.12), KIT_MODELS=1 (brings these models themselves, 1.6 GB) and KIT_SKIP (names of
# packages that are there already).
#
# There it takes nvcc from PATH or /usr/local/cuda, and cuBLAS from that toolkit or from the Python package
# nvidia-cublas. Variables: CUDAARCHS (90), DEVICE (CUDA0; CPU is a rehearsal, built without CUDA), PYTHON
# (python3), THREADS (8), ROUNDS (3), SMALL=1 (small models), LLAMA_CPP (an interpreter that has llama_cpp,
# to be measured beside; by default PYTHON, if it has).
set -euo pipefail
cd "$(dirname "$0")/../.."
repository=$PWD

prepare() {
    local kit=$1 version=${KIT_PYTHON:-3.12} python=${PYTHON:-python3} skip=" ${KIT_SKIP:-} "
    local requirement name glibc wanted=() platforms=()
    mkdir -p "$kit/wheels"
    for glibc in 17 24 26 27 28 31 34; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
    platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
    # What pyproject.toml asks for, but for what only other tests need.
    while read -r requirement; do
        [[ $skip == *" ${requirement%%[>=\[]*} "* ]] || wanted+=("$requirement")
    done < <("$python" - <<'PY'
import tomllib

project = tomllib.load(open("pyproject.toml", "rb"))
needed = project["build-system"]["requires"] + project["project"]["dependencies"]
tests = project["project"]["optional-dependencies"]["test"]
needed += [one for one in tests if one.startswith("pytest")]
print("\n".join(dict.fromkeys(one.replace("uvicorn[standard]", "uvicorn") for one in needed)))
PY
    )
    "$python" -m pip download --quiet --dest "$kit/wheels" --only-binary :all: --python-version "$version" \
        --implementation cp "${platforms[@]}" "${wanted[@]}"
    for name in ${KIT_SKIP:-}; do rm -f "$kit/wheels/${name//-/_}"-[0-9]*.whl; done
    "$python" - "$kit/source.tar.gz" <<'PY'
import sys
import tempfile
from pathlib import Path

from vendor.ggml.pin import Pin

target = Path(sys.argv[1])
with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
    Pin.read().fetch_source(Path(scratch)).replace(target)
PY
    if [[ ${KIT_MODELS:-} == 1 ]]; then
        mkdir -p "$kit/models"
        "$python" - "$kit/models" <<'PY'
import shutil
import sys
from pathlib import Path

from lucebox.hub import resolve

for name, model in (("target", "qwen2.5-coder-1.5b"), ("draft", "qwen2.5-coder-0.5b")):
    shutil.copy(resolve(model), Path(sys.argv[1], f"{name}.gguf"))
PY
    fi
    du -sh "$kit"
}

# A toolkit of links: the one that is there, and what it lacks of cuBLAS and of a libcuda to link with.
assemble_toolkit() {
    local folder=$1 nvcc own packages lib
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    [[ -x $nvcc ]] || { echo "there is no nvcc in PATH or /usr/local/cuda" >&2; exit 1; }
    own=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    cp -rsL "$own" "$folder"
    packages=$("$python" - <<'PY'
import sysconfig
from pathlib import Path

site = Path(sysconfig.get_path("purelib"), "nvidia")
print(next((path.parent.parent for path in site.glob("*/include/cublas_v2.h")), ""))
PY
    )
    [[ -d $folder/lib64 ]] || ln -s lib "$folder/lib64"
    for lib in "$folder/lib64" "$folder/targets/x86_64-linux/lib"; do
        [[ -d $lib ]] || continue
        if [[ -n $packages && ! -e $lib/libcublas.so ]]; then
            ln -sf "$packages"/lib/libcublas*.so.* "$lib/"
            ln -sf "$(ls "$packages"/lib/libcublas.so.*)" "$lib/libcublas.so"
        fi
        if [[ ! -e $lib/stubs/libcuda.so ]]; then # nothing of it is needed until a program runs
            mkdir -p "$lib/stubs"
            gcc -shared -Wl,-soname,libcuda.so.1 -o "$lib/stubs/libcuda.so" -x c /dev/null
        fi
    done
    if [[ -n $packages ]]; then
        ln -sf "$packages"/include/cublas*.h "$folder/include/"
        [[ ! -d $folder/targets/x86_64-linux/include ]] ||
            ln -sf "$packages"/include/cublas*.h "$folder/targets/x86_64-linux/include/"
        export LD_LIBRARY_PATH=$packages/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
    export CUDACXX=$folder/bin/nvcc CUDAToolkit_ROOT=$folder PATH=$folder/bin:$PATH
}

elapsed() { printf '+ %s (%d s)\n' "$1" "$SECONDS"; }

build() {
    export LUCEBOX_CACHE=$scratch/cache PYTHONPATH=$scratch/site:$repository
    local sha256
    mkdir -p "$LUCEBOX_CACHE/sources"
    sha256=$(sed -n 's/^sha256 = "\(.*\)"/\1/p' vendor/ggml/PIN)
    cp "$kit/source.tar.gz" "$LUCEBOX_CACHE/sources/$sha256.tar.gz"
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$scratch/site" \
        "$kit"/wheels/*.whl
    export PATH=$scratch/site/bin:$PATH
    if [[ $device != CPU ]]; then
        export LUCEBOX_BACKENDS=cuda CUDAARCHS=${CUDAARCHS:-90}
        assemble_toolkit "$scratch/toolkit"
    fi
    "$python" setup.py --quiet build_ext --inplace
}

main() {
    kit=$(realpath "$1")
    device=${DEVICE:-CUDA0}
    python=${PYTHON:-python3}
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    local out=${2:-$scratch/out} llama=${LLAMA_CPP:-} arguments status=0
    mkdir -p "$out"
    elapsed "building for $device"
    build
    elapsed "testing"
    TEST_ACCELERATOR=$device "$python" -m pytest -q -p no:cacheprovider tests/device |
        tee "$out/tests.log" || status=$?
    arguments=(--device "$device" --threads "${THREADS:-8}" --rounds "${ROUNDS:-3}" --json "$out/result.json")
    [[ ! -d $kit/models ]] || arguments+=(--target "$kit/models/target.gguf" --draft "$kit/models/draft.gguf")
    [[ ${SMALL:-} != 1 ]] || arguments+=(--small)
    if [[ -z $llama ]] && "$python" -c 'import llama_cpp' 2>/dev/null; then llama=$python; fi
    [[ -z $llama ]] || arguments+=(--llama-cpp "$llama")
    elapsed "measuring"
    "$python" -m tests.device.measure "${arguments[@]}" | tee "$out/table.txt"
    elapsed "done"
    return "$status" # of the tests, which do not keep it from measuring
}

case ${1:-} in
"" | -h | --help) sed -n '2,/^set -/p' "$0" | sed '/^set -/d; s/^# \{0,1\}//' ;;
prepare) prepare "$(mkdir -p "$2" && realpath "$2")" ;;
*) main "$@" ;;
esac
