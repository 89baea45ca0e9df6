# Settings of preprocess.sh: their defaults and checks. preprocess.sh sources this file.
# shellcheck shell=bash

MOUNT=${MOUNT:-/data}
MOUNT=${MOUNT%/}
SIZE=${SIZE:-100}
PARALLELISM=${PARALLELISM:-$SIZE}
MEMORY=${MEMORY:-2Gi}
COMMIT_CPUS=${COMMIT_CPUS:-4}
POLL=${POLL:-5}

refuse() {
    echo "preprocess.sh: $*" >&2
    exit 2
}
words() { # TEXT NAME: print the words of TEXT, one in a line. Quotes and \ have their usual meaning
    xargs printf '%s\n' <<< "$1" 2> /dev/null || refuse "$2 has a quote without its partner: $1"
}
check_characters() { # NAME...: refuse control characters, and a newline inside, in these settings
    local name value
    for name in "$@"; do
        value=${!name:-}
        case "$name" in INPUTS | OPTIONS) value=${value//$'\n'/ } ;; esac
        case "$value" in
        *$'\r'*) refuse "$name contains a carriage return. If a file sets it, save the file with" \
            "Unix line endings" ;;
        *[[:cntrl:]]*) refuse "$name contains a newline, a tab or another control character" ;;
        esac
    done
}
check_name() { # NAME: refuse a value that Kubernetes accepts as the name of no object
    local value=${!1:-} names='^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'
    [ -z "$value" ] || [[ ${#value} -le 253 && $value =~ $names ]] || refuse "$1 is '$value'," \
        "expected a name in Kubernetes: lowercase letters, digits, - and ."
}
check_number() { # VALUE NAME
    case "$1" in
    '' | *[!0-9]* | 0*) refuse "$2 is '$1', expected a whole number from 1" ;;
    ???????*) refuse "$2 is $1, expected at most 999999" ;;
    esac
}
check_memory() { # VALUE NAME
    [[ $1 =~ ^([0-9]{7,}|[0-9]+(\.[0-9]+)?(Mi|Gi|Ti|M|G|T))$ && $1 =~ [1-9] ]] ||
        refuse "$2 is '$1', expected a size such as 2Gi or 500Mi"
}
check_place() { # WORD NAME: refuse a path that pods cannot read
    local path=${1#@}
    case "$path" in
    -) refuse "$2 is -, and pods cannot read the standard input of this script: give a URL" ;;
    file://*) path=${path#file://} ;;
    *:// | *:///*)
        refuse "$2 is $path, a URL without a bucket: write ${path%%:*}://BUCKET/PREFIX"
        ;;
    *://*) return ;;
    esac
    [ -n "${CLAIM:-}" ] || refuse "$2 is a local path, $path, and pods cannot see the files of" \
        "this machine. Give a URL, such as s3://…, or set CLAIM to a PersistentVolumeClaim that" \
        "holds the files, and give their path below $MOUNT"
    case "$path" in
    */../* | */..) ;;
    "$MOUNT"/*) return ;;
    esac
    refuse "$2 is $path, but pods see the claim $CLAIM at $MOUNT: give a path below $MOUNT"
}
check_options() { # OPTION_WORDS: refuse options that a build with Jobs cannot have
    local word option value of=
    while IFS= read -r word; do
        option=${word%%=*} value=${word#*=}
        option=${option//_/-}
        if [ -n "$of" ]; then
            check_file "$word" "$of"
            of=
            continue
        fi
        case "$option" in
        --dry-run | --log-json | --help | -h)
            refuse "OPTIONS has $word, but this script needs the plan that thdpack prints" \
                "without it: remove $word"
            ;;
        --executor | --ray-address | --workers | --scratch | --plan) refuse "OPTIONS has $option," \
            "but Jobs run the tasks of this build: remove $option (settings of the Jobs: SIZE," \
            "PARALLELISM and COMMIT_CPUS)" ;;
        --out) refuse "OPTIONS has --out: remove it, and set DATASET instead" ;;
        --exclude | --metadata | --clusters | --sample-clusters)
            case "$word" in *=*) check_file "$value" "$option" ;; *) of=$option ;; esac
            ;;
        esac
    done <<< "$1"
}
check_file() { # WORD OPTION: refuse a file of an option that pods cannot read
    case "$1" in mmseqs:*)
        refuse "OPTIONS has $2 $1, but MMseqs2 needs all records at once: build with thdpack" \
            "preprocess, or run MMseqs2 yourself and give the table that it writes"
        ;;
    esac
    check_place "$1" "$2 in OPTIONS"
}

[[ ${INPUTS:-} =~ [^[:space:]] && ${DATASET:-} =~ [^[:space:]] && ${IMAGE:-} =~ [^[:space:]] ]] ||
    refuse "set INPUTS, DATASET and IMAGE, for example: INPUTS='s3://corpora/*.fasta.gz'" \
        "DATASET=s3://corpora/uniref90 IMAGE=registry/thdpack-cpu:0.1.0" \
        "deploy/kubernetes/preprocess.sh"
command -v kubectl > /dev/null || refuse "kubectl is not in PATH, and this script needs it." \
    "Without Kubernetes: thdpack preprocess INPUTS --out DATASET"
check_characters INPUTS OPTIONS DATASET IMAGE SECRET SERVICE_ACCOUNT CLAIM MOUNT NAMESPACE SIZE \
    PARALLELISM MEMORY COMMIT_CPUS COMMIT_MEMORY POLL
IMAGES='^[][A-Za-z0-9._:/@-]+$'
[[ $IMAGE =~ $IMAGES && $IMAGE != *://* ]] || refuse "IMAGE is '$IMAGE', expected an" \
    "image such as registry/thdpack-cpu:0.1.0, without blanks, quotes and https://"
check_name SECRET
check_name SERVICE_ACCOUNT
check_name CLAIM
check_name NAMESPACE
check_number "$SIZE" SIZE
check_number "$PARALLELISM" PARALLELISM
check_number "$COMMIT_CPUS" COMMIT_CPUS
check_memory "$MEMORY" MEMORY
[[ $POLL =~ ^[0-9]*\.?[0-9]+$ && $POLL =~ [1-9] ]] || refuse "POLL is '$POLL', expected seconds"
COMMIT_MEMORY=${COMMIT_MEMORY:-$((COMMIT_CPUS * 2))Gi}
check_memory "$COMMIT_MEMORY" COMMIT_MEMORY
case "$MOUNT" in
*[\"\\:]* | */../* | */..)
    refuse "MOUNT is '$MOUNT', expected a path without double quotes, \\, : and .."
    ;;
/scratch | /scratch/*) refuse "MOUNT is $MOUNT, but pods keep their own files in /scratch: choose" \
    "another folder" ;;
/[!/]*) ;;
*) refuse "MOUNT is '${MOUNT:-/}', expected the path of a folder from /, such as /data" ;;
esac
INPUT_WORDS=$(words "$INPUTS" INPUTS)
OPTION_WORDS=$([ -z "${OPTIONS:-}" ] || words "$OPTIONS" OPTIONS)
while IFS= read -r WORD; do check_place "$WORD" INPUTS; done <<< "$INPUT_WORDS"
check_place "$DATASET" DATASET
check_options "$OPTION_WORDS"
