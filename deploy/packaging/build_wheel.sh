#!/usr/bin/env bash
# Build the source distribution and a wheel of it into dist/, and check both:
#
#     make wheel                        # or: deploy/packaging/build_wheel.sh [PYTHON]
#
# The wheel is for the version and the machine of PYTHON. It is not a manylinux wheel: these are
# built by cibuildwheel, in the container of the manylinux project (.github/workflows/wheels.yml).
# The script takes about one minute. It needs a package index, a C compiler and readelf.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/env"
run() { "$work/env/bin/python" -m "$@"; }
run pip --disable-pip-version-check install -qq build twine check-wheel-contents
rm -rf dist
run build --outdir dist . > "$work/build.log" 2>&1 || { tail -20 "$work/build.log"; exit 1; }
run twine check --strict dist/*
run check_wheel_contents dist/*.whl

# The kernels include a header of pyarrow, but must not need pyarrow's libraries. Otherwise the wheel
# would work with one version of pyarrow only.
run zipfile --extract dist/*.whl "$work/wheel"
find "$work/wheel" -name '*.so' -exec readelf --dynamic {} + > "$work/needed"
if grep NEEDED "$work/needed" | grep -vE '\[(libc|libm|libpthread)\.so\.[0-9]+\]'; then
    echo 'a kernel needs the libraries above' >&2
    exit 1
fi
ls -sh dist
