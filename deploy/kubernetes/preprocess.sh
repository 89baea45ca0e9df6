#!/usr/bin/env bash
# Build a dataset with Jobs on Kubernetes. Run this script on a machine with kubectl:
#     INPUTS="s3://corpora/*.fasta.gz" DATASET=s3://corpora/uniref90 SECRET=thdpack-store \
#         IMAGE=registry/thdpack-cpu:0.1.0 deploy/kubernetes/preprocess.sh
# The script starts a Job for each stage of the build, one after another, and waits for each:
#     plan     one pod
#     map      at most SIZE pods
#     link     at most SIZE pods, only with --clusters or --sample-clusters in OPTIONS
#     draw     at most SIZE pods, only with --sample-clusters in OPTIONS
#     reduce   at most SIZE pods
#     commit   one pod with COMMIT_CPUS cores
# To resume after a failure or Ctrl-C, run the same command again. Finished tasks are then skipped.
# If thdpack refuses an option or input (exit code 2), correct it first.
# Variables:
#     INPUTS, OPTIONS  inputs and options of `thdpack plan-tasks`. Globs reach thdpack unexpanded.
#                      Quote a word with spaces: INPUTS="'s3://my corpora/*.gz' s3://more/b.fasta"
#     DATASET          URL of the dataset, or a folder below MOUNT
#     IMAGE            image of deploy/containers/cpu.Containerfile, target cpu, in your registry
#     SECRET           name of a Secret with the store's keys, which become environment variables:
#                      kubectl create secret generic thdpack-store \
#                          --from-literal=AWS_ACCESS_KEY_ID=… --from-literal=AWS_SECRET_ACCESS_KEY=…
#                      For a store other than AWS's, add --from-literal=AWS_ENDPOINT_URL=https://….
#     SERVICE_ACCOUNT  service account of the pods, for stores that give access by role
#     CLAIM, MOUNT     PersistentVolumeClaim for inputs or a dataset on a shared folder, and the
#                      folder where pods see it (default: /data). All nodes must be able to write to
#                      it at once (ReadWriteMany), as user 10001.
#     NAMESPACE        namespace of the Jobs (default: that of the current context)
#     SIZE             largest number of pods of a Job (default: 100). If a stage has more tasks,
#                      each pod runs every SIZE-th task.
#     PARALLELISM      largest number of pods at once (default: SIZE)
#     MEMORY           memory of a pod (default: 2Gi)
#     COMMIT_CPUS, COMMIT_MEMORY  cores (default: 4) and memory (default: 2Gi for each core) of the
#                      commit
#     POLL             seconds between two looks at a Job (default: 5)
# The other settings of the pods are in job.yaml, beside this script. The Jobs need Kubernetes 1.29
# or later. The script needs kubectl 1.20 or later, and bash 3.2 or later. It was tested with
# programs that replace kubectl, or the API server, and run each pod as a process. It was never run
# on a cluster (docs/guides/clusters.md).
set -euo pipefail

MOUNT=${MOUNT:-/data}
MOUNT=${MOUNT%/}
SIZE=${SIZE:-100}
PARALLELISM=${PARALLELISM:-$SIZE}
MEMORY=${MEMORY:-2Gi}
COMMIT_CPUS=${COMMIT_CPUS:-4}
POLL=${POLL:-5}
JOB=
REMEDY="Then run the same command again to resume: it skips the tasks that have finished"

refuse() {
    echo "preprocess.sh: $*" >&2
    exit 2
}
fail() {
    echo "preprocess.sh: $*" >&2
    exit 1
}
kube() { kubectl ${NAMESPACE:+--namespace "$NAMESPACE"} "$@"; }
shown() { echo "kubectl ${NAMESPACE:+--namespace $NAMESPACE }$*"; } # a command for the user

interrupted() {
    trap - INT TERM
    echo >&2
    [ -z "$JOB" ] || echo "preprocess.sh: interrupted. The Job $JOB continues in the cluster, but" \
        "no other Job of this build will start. To stop it, run: $(shown delete job "$JOB"). To" \
        "resume, run the same command again" >&2
    exit 130
}
trap interrupted INT TERM

words() { # TEXT NAME: print the words of TEXT, one in a line. Quotes and \ have their usual meaning
    xargs printf '%s\n' <<< "$1" 2> /dev/null || refuse "$2 has a quote without its partner: $1"
}
local_path() { # WORD: succeed if WORD is a local path and not a URL
    case "$1" in file://*) ;; *://*) return 1 ;; esac
}
check_place() { # WORD NAME: refuse a path that pods cannot read
    local path=${1#@}
    local_path "$path" || return 0
    [ -n "${CLAIM:-}" ] || refuse "$2 is a local path, $path, and pods cannot see the files of" \
        "this machine. Give a URL, such as s3://…, or set CLAIM to a PersistentVolumeClaim that" \
        "holds the files, and give their path below $MOUNT"
    case "${path#file://}" in
    "$MOUNT"/*) ;;
    *) refuse "$2 is $path, but pods see the claim $CLAIM at $MOUNT: give a path below $MOUNT" ;;
    esac
}
check_number() { # VALUE NAME
    case "$1" in '' | *[!0-9]* | 0*) refuse "$2 is '$1', expected a whole number from 1" ;; esac
}
check_memory() { # VALUE NAME
    [[ $1 =~ ^([0-9]{7,}|[0-9]+(\.[0-9]+)?(Mi|Gi|Ti|M|G|T))$ && $1 =~ [1-9] ]] ||
        refuse "$2 is '$1', expected a size such as 2Gi or 500Mi"
}
json() { # print a JSON list of the lines of standard input; $$ is a $ that Kubernetes keeps
    sed 's/\\/\\\\/g; s/"/\\"/g; s/\$/$$/g; s/^/"/; s/$/"/' | paste -s -d , - | sed 's/.*/[&]/'
}
checksum() { printf '%s\n' "$@" | cksum | awk '{ print $1 }'; }

manifest() { # NAME COMPLETIONS ARGS CPUS MEMORY: print the Job
    NAME=$1 COMPLETIONS=$2 ARGS=$3 CPUS=$4 MEMORY=$5 \
        PARALLELISM=$(($2 < PARALLELISM ? $2 : PARALLELISM)) \
        awk '
        /# only with [A-Z_]+$/ && ENVIRON[$NF] == "" { next }
        { sub(/ # only with [A-Z_]+$/, "") }
        {
            while (match($0, /__[A-Z]+(_[A-Z]+)*__/)) {
                value = ENVIRON[substr($0, RSTART + 2, RLENGTH - 4)]
                printf "%s%s", substr($0, 1, RSTART - 1), value
                $0 = substr($0, RSTART + RLENGTH)
            }
            print
        }' "$TEMPLATE"
}

JOB_STATE='{.status.succeeded}|{.status.failedIndexes}|'
JOB_STATE+='{.status.conditions[?(@.status=="True")].type}|'
JOB_STATE+='{.status.conditions[?(@.type=="Failed")].message}'
POD_STATES='{range .items[*]}{.metadata.name}|'
POD_STATES+='{.metadata.labels.batch\.kubernetes\.io/job-completion-index}|{.status.phase}|'
POD_STATES+='{.status.containerStatuses[*].state.waiting.reason}|'
POD_STATES+='{.status.conditions[?(@.reason=="Unschedulable")].reason}|'
POD_STATES+='{.status.containerStatuses[*].state.terminated.reason}|'
POD_STATES+='{.status.containerStatuses[*].state.terminated.exitCode}{"\n"}{end}'

job_state() { # print the state of the Job, or nothing if there is no such Job
    kube get job "$JOB" --ignore-not-found -o "jsonpath=$JOB_STATE"
}
pod_states() { # print a line for each pod of the Job, the oldest pod first
    kube get pods --selector "job-name=$JOB" --sort-by=.metadata.creationTimestamp \
        -o "jsonpath=$POD_STATES"
}
succeeded_pod() { pod_states | awk -F '|' '$3 == "Succeeded" { pod = $1 } END { print pod }'; }

run_job() { # NAME COMPLETIONS ARGS CPUS MEMORY: run a Job, or join the same Job, and wait for it
    JOB=$1
    local state errors reason
    errors=$(mktemp)
    if ! state=$(job_state 2> "$errors"); then
        reason=$(tail -n 1 "$errors")
        rm -f "$errors"
        fail "kubectl cannot read Jobs${reason:+ ($reason)}. Check the cluster and your rights" \
            "with: $(shown get jobs)"
    fi
    rm -f "$errors"
    case "$state" in
    *'|'*Complete*'|'* | *'|'*Failed*'|'*) # replaced, because files of its tasks may be gone
        kube delete job "$JOB" --cascade=foreground > /dev/null
        state=
        ;;
    esac
    if [ -n "$state" ]; then
        echo "$JOB runs already; waiting for it"
    else
        manifest "$@" | kube create -f - > /dev/null || fail "kubectl did not create the Job $JOB"
        echo "$JOB started, pods: $2"
    fi
    wait_for_job "$2"
}

wait_for_job() { # COMPLETIONS
    local state done_before=0 unanswered=0 looks=0 said='' succeeded indexes types message
    while true; do
        if state=$(job_state); then
            unanswered=0
        else
            unanswered=$((unanswered + 1))
            [ "$unanswered" -lt 60 ] || fail "the cluster does not answer. The Job $JOB may still" \
                "run. Run the same command again to resume"
        fi
        if [ "$unanswered" -eq 0 ]; then
            [ -n "$state" ] || fail "the Job $JOB was deleted. Run the same command again to resume"
            IFS='|' read -r succeeded indexes types message <<< "$state"
            case " $types " in
            *' Complete '*) return ;;
            *' Failed '*) report_failure "$message" "$indexes" ;;
            esac
            if [ "${succeeded:-0}" -ne "$done_before" ]; then
                done_before=$succeeded
                echo "$JOB: $succeeded of $1 pods done"
            fi
            looks=$((looks + 1))
            notice_waiting_pod "$looks"
        fi
        # in the background, because a signal interrupts `wait` at once
        sleep "$POLL" > /dev/null 2>&1 &
        wait $!
    done
}

notice_waiting_pod() { # LOOKS: say once why a pod does not start; changes `said` of the caller
    local pods pod reason
    pods=$(pod_states) || return 0
    if [ -z "$pods" ] && [ "$1" -eq 4 ]; then
        echo "$JOB has no pod yet; to see why, run: $(shown describe job "$JOB")" >&2
    fi
    IFS='|' read -r pod reason <<< "$(awk -F '|' '$3 == "Pending" {
        reason = $5 != "" ? $5 : $4
        if (reason != "" && reason != "ContainerCreating") { print $1 "|" reason; exit }
    }' <<< "$pods")"
    if [ -n "$reason" ] && [ "$reason" != "$said" ]; then
        said=$reason
        echo "$JOB: the pod $pod does not start ($reason); to see why, run:" \
            "$(shown describe pod "$pod")" >&2
    fi
}

report_failure() { # MESSAGE INDEXES: print the log of the pod that failed, and exit
    local failed pod reason code
    failed=$(pod_states | awk -F '|' -v index_="${2%%[,-]*}" '
        $3 == "Failed" && (index_ == "" || $2 == index_) { pod = $1 "|" $6 "|" $7 }
        END { print pod }')
    IFS='|' read -r pod reason code <<< "$failed"
    [ -n "$pod" ] || fail "the Job $JOB failed: $1. To see why, run:" \
        "$(shown describe job "$JOB"). $REMEDY"
    echo "The pod $pod ended with ${reason:-an error}. The last lines of its log:" >&2
    kube logs "$pod" --tail=20 | sed 's/^/    /' >&2 || true
    [ "$code" != 2 ] || fail "the Job $JOB failed, because thdpack refused an option or input" \
        "(exit code 2). For the whole log, run: $(shown logs "$pod"). Correct INPUTS, OPTIONS or" \
        "DATASET, and run the script again"
    case "$reason" in
    OOMKilled) fail "the Job $JOB failed, because a pod needed more memory than its limit. Set" \
        "MEMORY or, for the commit, COMMIT_MEMORY to more. $REMEDY" ;;
    *) fail "the Job $JOB failed: $1. For the whole log, run: $(shown logs "$pod"). Repair the" \
        "cause. $REMEDY" ;;
    esac
}

[ -n "${INPUTS:-}" ] && [ -n "${DATASET:-}" ] && [ -n "${IMAGE:-}" ] || refuse "set INPUTS," \
    "DATASET and IMAGE, for example: INPUTS='s3://corpora/*.fasta.gz'" \
    "DATASET=s3://corpora/uniref90 IMAGE=registry/thdpack-cpu:0.1.0 deploy/kubernetes/preprocess.sh"
command -v kubectl > /dev/null || refuse "kubectl is not in PATH, and this script needs it." \
    "Without Kubernetes: thdpack preprocess INPUTS --out DATASET"
TEMPLATE=$(dirname "${BASH_SOURCE[0]}")/job.yaml
check_number "$SIZE" SIZE
check_number "$PARALLELISM" PARALLELISM
check_number "$COMMIT_CPUS" COMMIT_CPUS
check_memory "$MEMORY" MEMORY
[[ $POLL =~ ^[0-9]*\.?[0-9]+$ && $POLL =~ [1-9] ]] || refuse "POLL is '$POLL', expected seconds"
COMMIT_MEMORY=${COMMIT_MEMORY:-$((COMMIT_CPUS * 2))Gi}
check_memory "$COMMIT_MEMORY" COMMIT_MEMORY
case "$MOUNT" in
/*) ;;
*) refuse "MOUNT is '${MOUNT:-/}', expected the path of a folder from /, such as /data" ;;
esac
INPUT_WORDS=$(words "$INPUTS" INPUTS)
OPTION_WORDS=$([ -z "${OPTIONS:-}" ] || words "$OPTIONS" OPTIONS)
! printf '%s' "${INPUTS}${OPTIONS:-}$DATASET$MOUNT" | tr '\n' ' ' | grep -q '[[:cntrl:]]' ||
    refuse "INPUTS, OPTIONS, DATASET or MOUNT has a tab or another control character"
while IFS= read -r WORD; do check_place "$WORD" INPUTS; done <<< "$INPUT_WORDS"
check_place "$DATASET" DATASET
export SERVICE_ACCOUNT=${SERVICE_ACCOUNT:-} SECRET=${SECRET:-} CLAIM=${CLAIM:-} IMAGE MOUNT

PLAN_ARGS=$(printf '%s\n' plan-tasks "$INPUT_WORDS" --out "$DATASET" \
    ${OPTION_WORDS:+"$OPTION_WORDS"} | json)
run_job "thdpack-plan-$(checksum "$PLAN_ARGS")" 1 "$PLAN_ARGS" 1 "$MEMORY"
PLAN=$(kube logs "$(succeeded_pod)")
grep -v '  thdpack \|  deploy/' <<< "$PLAN" || true # without the commands that this script runs
DIGEST=$(awk 'NF == 2 && $1 == "plan" { print $2 }' <<< "$PLAN")
[ -n "$DIGEST" ] || fail "the log of the Job $JOB names no plan. OPTIONS must not have --dry-run" \
    "or --log-json"
# The name has a checksum of DATASET, because equal builds to two places have the same plan.
BUILD=$(cut -c 1-8 <<< "$DIGEST")-$(checksum "$DIGEST" "$DATASET")

for STAGE in map link draw reduce; do
    TASKS=$(awk -v stage=$STAGE '$1 == stage && NF == 3 && $3 ~ /^task/ { print $2 }' <<< "$PLAN")
    [ -n "$TASKS" ] || continue
    PODS=$((TASKS < SIZE ? TASKS : SIZE))
    ARGS=$(printf '%s\n' run-task "$DATASET" --plan "$DIGEST" --stage $STAGE --array-size $PODS |
        json)
    run_job "thdpack-$STAGE-$BUILD" $PODS "${ARGS%]},\"--index\",\"\$(JOB_COMPLETION_INDEX)\"]" \
        1 "$MEMORY"
done
COMMIT_ARGS=$(printf '%s\n' commit "$DATASET" --plan "$DIGEST" --workers "$COMMIT_CPUS" | json)
run_job "thdpack-commit-$BUILD" 1 "$COMMIT_ARGS" "$COMMIT_CPUS" "$COMMIT_MEMORY"
kube logs "$(succeeded_pod)"
