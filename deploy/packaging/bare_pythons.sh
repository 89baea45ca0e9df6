#!/usr/bin/env bash
# Build and try wheels of thdpack in bare systems, one for each version of Python:
#
#     sudo deploy/packaging/bare_pythons.sh [--examples] bookworm:3.11 trixie:3.13 sid:3.14
#
# SUITE:VERSION names a suite of Debian and a version of Python that the suite has. SUITE:FOLDER
# copies a Python from this machine, which must have been built on that suite:
# bookworm:/opt/python-3.12, for example. Use this for a version that no suite has.
#
# For each argument, debootstrap makes two systems:
#   1. One has Python, its headers and gcc. pip builds a wheel there from the source distribution.
#      It first downloads the build requirements. The build itself has no network.
#   2. The other has only Python and its venv module. try_wheel.py runs there, in an empty folder,
#      without the sources. With --examples, it also runs the notebook and the scripts in examples/.
#
# The script needs root, debootstrap, git, a mirror of Debian and a package index. Each argument
# takes 2 to 4 minutes and 2 GB of disk space. With --examples, it takes 4 more minutes and, with
# the package index's builds of torch, 9 GB. WHEELS=FOLDER names a folder of wheels, such as a build
# of torch for CPUs. pip then uses the versions in this folder. docs/packaging.md has the results.
set -euo pipefail

refuse() {
    echo "bare_pythons.sh: $*" >&2
    exit 2
}
options=()
if [ "${1:-}" = --examples ]; then
    options=(--examples)
    shift
fi
if [ $# -eq 0 ]; then
    sed -n '2,/^set/p' "$0" | sed -e '$d' -e 's/^# \{0,1\}//'
    exit 2
fi
for argument in "$@"; do
    case "$argument" in
    ?*:3.[0-9]*) ;;
    ?*:/*) [ -d "${argument#*:}" ] || refuse "$argument names a folder that does not exist" ;;
    *) refuse "$argument is neither SUITE:VERSION, such as trixie:3.13, nor SUITE:FOLDER" ;;
    esac
done
[ "$(id -u)" -eq 0 ] || refuse "debootstrap needs root: run this script with sudo"
command -v debootstrap > /dev/null || refuse "debootstrap is not in PATH. Run: apt-get install" \
    debootstrap
repo=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Copied into the systems under a name that no package of Debian writes.
certificates=/etc/ssl/certs/ca-certificates.crt

# in_root ROOT COMMAND...: run a command in a system. Mounts end with the command. NETWORK=none runs
# the command without a network.
in_root() {
    local root=$1 isolated=()
    shift
    [ "${NETWORK:-}" != none ] || isolated=(--net)
    unshare --mount "${isolated[@]}" bash -c 'mount -t proc proc "$1/proc" \
        && mount -t tmpfs tmpfs "$1/dev/shm" && exec chroot "$@"' _ "$root" \
        env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
        PIP_CERT=/root/certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
        PIP_FIND_LINKS=/root/wheels PIP_CONSTRAINT=/root/wheels/versions.txt PIP_NO_CACHE_DIR=1 \
        DEBIAN_FRONTEND=noninteractive "$@"
}

# add_packages ROOT PACKAGE...: install packages of Debian. A mirror that is a few days late is used.
add_packages() {
    local root=$1
    shift
    {
        in_root "$root" apt-get -qq -o Acquire::Check-Valid-Until=false update
        in_root "$root" apt-get -qq -y --no-install-recommends install "$@"
    } > "$work/apt.log" 2>&1 || { tail -20 "$work/apt.log"; exit 1; }
}

# try_python SUITE PYTHON: build and try a wheel.
try_python() {
    local suite=$1 python=$2 base=$work/$1 builder=$work/builder bare=$work/bare
    local runtime=() headers=() wheel
    if [ ! -d "$base" ]; then
        debootstrap --variant=minbase "$suite" "$base" > "$work/debootstrap.log" \
            || { tail -20 "$work/debootstrap.log"; exit 1; }
        mkdir -p "$base/dev/shm"
        cp -L /etc/resolv.conf /etc/hosts "$base/etc/"
        cp -L "$certificates" "$base/root/certificates.crt"
        mkdir "$base/root/wheels"
        [ -z "${WHEELS:-}" ] || cp "$WHEELS"/*.whl "$base/root/wheels/"
        # torch-2.13.0+cpu-cp311-….whl gives the line torch==2.13.0+cpu
        find "$base/root/wheels" -name '*.whl' -printf '%f\n' \
            | sed -E 's/^([^-]+)-([^-]+)-.*/\1==\2/' > "$base/root/wheels/versions.txt"
    fi
    rm -rf "$builder" "$bare"
    cp -a "$base" "$bare"
    if [ -d "$python" ]; then
        runtime=(python3) # the libraries that most builds of Python need
        mkdir -p "$bare$python"
        cp -a "$python/." "$bare$python/"
        python=$(ls "$python"/bin/python3.[0-9]*[0-9])
    else
        runtime=("python$python" "python$python-venv")
        headers=("python$python-dev")
        python=/usr/bin/python$python
    fi
    add_packages "$bare" "${runtime[@]}"
    cp -a "$bare" "$builder"
    add_packages "$builder" gcc libc6-dev "${headers[@]}"

    cp "$sdist" "$builder/root/"
    in_root "$builder" "$python" -m venv /root/env
    in_root "$builder" /root/env/bin/pip --quiet download --only-binary :all: \
        --dest /root/requirements "${requirements[@]}" wheel
    NETWORK=none in_root "$builder" /root/env/bin/pip --quiet wheel --no-deps --no-index \
        --find-links /root/requirements --wheel-dir /root/dist "/root/$(basename "$sdist")"
    echo "built without a network from $(basename "$sdist") and" \
        "$(in_root "$builder" ls /root/requirements | sed 's/-[^-]*-[^-]*-[^-]*$//' | xargs)"

    mkdir -p "$bare/try/deploy/packaging" "$bare/try/data" "$bare/try/docs"
    cp "$builder"/root/dist/*.whl "$bare/try/"
    cp "$repo/deploy/packaging/try_wheel.py" "$bare/try/deploy/packaging/"
    cp "$repo/README.md" "$bare/try/"
    cp "$repo/data/sample.fasta" "$bare/try/data/"
    cp "$repo/docs/tutorial.ipynb" "$bare/try/docs/"
    cp -r "$repo/examples" "$bare/try/"
    wheel=$(basename "$bare"/try/*.whl)
    in_root "$bare" "$python" /try/deploy/packaging/try_wheel.py "/try/$wheel" \
        "${options[@]}"
}

# The source distribution of the committed files, made as users would make it from a clone.
git clone --quiet "$repo" "$work/clone"
mapfile -t requirements < <(python3 -c "
import tomllib
print(*tomllib.load(open('$repo/pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')")
python3 -m venv "$work/env"
"$work/env/bin/pip" --quiet install build 2> "$work/pip.log" || { cat "$work/pip.log"; exit 1; }
"$work/env/bin/python" -m build --sdist --outdir "$work" "$work/clone" > "$work/build.log" 2>&1 \
    || { tail -20 "$work/build.log"; exit 1; }
sdist=$(ls "$work"/thdpack-*.tar.gz)

for argument in "$@"; do
    echo "== $argument"
    try_python "${argument%%:*}" "${argument#*:}"
done
