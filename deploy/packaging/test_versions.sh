#!/usr/bin/env bash
# Run the tests with other versions of the dependencies than those in constraints.txt:
#
#     make test-lowest                      # the lowest versions that pyproject.toml allows
#     make test-newest                      # the newest versions
#     make test-lowest TESTS=tests/unit PYTHON=python3.12 TORCH=torch==2.13.0+cpu
#
# The script copies the repository's files to .venv-lowest/ or .venv-newest/, makes a virtual
# environment there, and runs the tests in the copy. So the kernels, too, are compiled by the lowest
# or newest versions of Cython and pyarrow, and the kernels of the working tree stay.
#
# "Lowest" applies to packages that pyproject.toml names. Their own dependencies are the newest that
# fit. TORCH replaces the requirement of torch. Without it, the index's build is installed, which on
# Linux includes CUDA libraries (5.9 GB).
#
# Usage: test_versions.sh lowest|newest PYTHON TORCH TESTS
set -euo pipefail
cd "$(dirname "$0")/../.."
refuse() {
    echo "test_versions.sh: $*" >&2
    exit 2
}
[ $# -eq 4 ] && [[ $1 =~ ^(lowest|newest)$ ]] || refuse "expected lowest or newest, PYTHON, TORCH" \
    "and TESTS. Run instead: make test-lowest, or: make test-newest"
versions=$1 python=$2 torch=$3
read -ra tests <<< "$4"
folder=$PWD/.venv-$versions
copy=$folder/thdpack

rm -rf "$folder"
"$python" -m venv "$folder"
mkdir "$copy"
# In a container of GitHub Actions, another user owns the repository.
git -c safe.directory="$PWD" ls-files -z --cached --others --exclude-standard --deduplicate \
    | xargs -0 cp --parents --target-directory "$copy"
pip=("$folder/bin/python" -m pip --disable-pip-version-check install -qq)
"${pip[@]}" uv

# One list of exact versions, for the requirements of the build, of thdpack and of every extra. The
# extra `gpu` is left out, because Transformer Engine can be compiled only with CUDA.
"$folder/bin/python" - > "$folder/build.in" << 'END'
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
END
override=()
if [ -n "$torch" ]; then
    echo "$torch" > "$folder/torch.in"
    override=(--override "$folder/torch.in")
fi
extras=()
for extra in report service gcs ray s3 train hf dev; do extras+=(--extra "$extra"); done
[ "$versions" = newest ] && resolution=highest || resolution=lowest-direct
"$folder/bin/uv" pip compile --quiet --no-header --resolution "$resolution" "${extras[@]}" \
    --python "$folder/bin/python" ${PIP_FIND_LINKS:+--find-links "$PIP_FIND_LINKS"} \
    "${override[@]}" --output-file "$folder/versions.txt" \
    pyproject.toml "$folder/build.in"
"${pip[@]}" --no-compile --no-deps --requirement "$folder/versions.txt"
"${pip[@]}" --no-deps --no-build-isolation --editable "$copy"

echo "versions: $folder/versions.txt"
cd "$copy"
exec "$folder/bin/pytest" "${tests[@]}"
