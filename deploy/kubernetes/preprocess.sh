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
# If thdpack refuses an option or input (exit code 2), correct it first. If a pod cannot start, for
# example because of a wrong IMAGE, the script says why, and waits. If you then stop it with Ctrl-C,
# and run it with other settings, it replaces the Job that still has the old settings.
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

FOLDER=${BASH_SOURCE[0]%/*}
[ "$FOLDER" != "${BASH_SOURCE[0]}" ] || FOLDER=.
TEMPLATE=$FOLDER/job.yaml
for FILE in settings.sh job.yaml; do
    [ -r "$FOLDER/$FILE" ] || {
        echo "preprocess.sh: $FOLDER/$FILE is missing: copy the whole folder deploy/kubernetes" >&2
        exit 2
    }
done
# shellcheck source=deploy/kubernetes/settings.sh
. "$FOLDER/settings.sh"
JOB=
RUNNING= # the Job that the script waits for
ERRORS=$(mktemp) # what kubectl wrote last to standard error
trap 'rm -f "$ERRORS"' EXIT

fail() {
    echo "preprocess.sh: $*" >&2
    exit 1
}
kube() { kubectl ${NAMESPACE:+--namespace "$NAMESPACE"} "$@" 2> "$ERRORS"; }
because() { # print what kubectl said last, in parentheses
    local said
    said=$(tail -n 1 "$ERRORS")
    echo "${said:+ ($said)}"
}
shown() { echo "kubectl ${NAMESPACE:+--namespace $NAMESPACE }$*"; } # a command for the user
remedy() { # print what to do after the cause of a failure was repaired
    case "$JOB" in
    thdpack-plan-*) echo "No task has started. Run this script again" ;;
    *) echo "Then run the same command again to resume: it skips the tasks that have finished" ;;
    esac
}

interrupted() {
    trap - INT TERM
    echo >&2
    if [ -n "$RUNNING" ]; then
        echo "preprocess.sh: interrupted. The Job $RUNNING continues in the cluster, but no other" \
            "Job of this build will start. To stop it, run: $(shown delete job "$RUNNING"). To" \
            "resume, run the same command again" >&2
    else
        echo "preprocess.sh: interrupted, while this script waited for no Job. To resume, run the" \
            "same command again" >&2
    fi
    exit 130
}
trap interrupted INT TERM

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

JOB_STATE='{.metadata.labels.settings}|{.status.succeeded}|{.status.failedIndexes}|'
JOB_STATE+='{.status.conditions[?(@.status=="True")].type}|'
JOB_STATE+='{.status.conditions[?(@.type=="Failed")].message}'
POD_STATES='{range .items[*]}{.metadata.name}|'
POD_STATES+='{.metadata.labels.batch\.kubernetes\.io/job-completion-index}|{.status.phase}|'
POD_STATES+='{.status.containerStatuses[*].state.waiting.reason}|'
POD_STATES+='{.status.conditions[?(@.reason=="Unschedulable")].reason}|'
POD_STATES+='{.status.containerStatuses[*].state.terminated.reason}|'
POD_STATES+='{.status.containerStatuses[*].state.terminated.exitCode}|'
POD_STATES+='{.status.reason}{"\n"}{end}'

job_state() { # print the state of the Job, or nothing if there is no such Job
    kube get job "$JOB" --ignore-not-found -o "jsonpath=$JOB_STATE"
}
pod_states() { # print a line for each pod of the Job, the oldest pod first
    kube get pods --selector "job-name=$JOB" --sort-by=.metadata.creationTimestamp \
        -o "jsonpath=$POD_STATES"
}
log_of_job() { # print the log of the pod that succeeded
    local pods pod
    pods=$(pod_states) || return
    pod=$(awk -F '|' '$3 == "Succeeded" { pod = $1 } END { print pod }' <<< "$pods")
    [ -n "$pod" ] || { echo "its pod was deleted" > "$ERRORS" && return 1; }
    kube logs "$pod"
}

run_job() { # NAME COMPLETIONS ARGS CPUS MEMORY: run a Job, or join the same Job, and wait for it
    JOB=$1
    local state
    SETTINGS=$(SETTINGS='' manifest "$@" | cksum | awk '{ print $1 }')
    state=$(job_state) || fail "kubectl cannot read Jobs$(because). Check the cluster and your" \
        "rights with: $(shown get jobs). Then run the same command again"
    case "$state" in
    '') ;;
    *'|'*Complete*'|'* | *'|'*Failed*'|'*) replace_job ;; # files of its tasks may be gone
    "$SETTINGS|"*) ;;
    *)
        echo "$JOB runs with other settings; replacing it"
        replace_job
        ;;
    esac
    RUNNING=$JOB
    if [ -n "$state" ]; then
        echo "$JOB runs already; waiting for it"
    else
        (export SETTINGS && manifest "$@" | kube create -f - > /dev/null) ||
            fail "kubectl did not create the Job $JOB$(because). Repair the cause (your rights:" \
                "$(shown auth can-i create jobs)). $(remedy)"
        echo "$JOB started, pods: $2"
    fi
    wait_for_job "$2"
    RUNNING=
}

replace_job() { # delete the Job; changes `state` of the caller
    kube delete job "$JOB" --cascade=foreground > /dev/null || fail "kubectl did not delete the" \
        "Job $JOB, which has to be replaced$(because). Delete it with:" \
        "$(shown delete job "$JOB"). Then run the same command again"
    state=
}

wait_for_job() { # COMPLETIONS
    local state done_before=0 unanswered=0 looks=0 said='' succeeded indexes types message
    while true; do
        if state=$(job_state); then
            unanswered=0
        else
            unanswered=$((unanswered + 1))
            [ "$unanswered" -ne 1 ] || echo "kubectl cannot read $JOB$(because); trying again" >&2
            [ "$unanswered" -lt 60 ] || fail "kubectl could not read the Job $JOB 60" \
                "times$(because). The Job may still run. Run the same command again to resume"
        fi
        if [ "$unanswered" -eq 0 ]; then
            [ -n "$state" ] || fail "the Job $JOB was deleted. Run the same command again to resume"
            IFS='|' read -r _ succeeded indexes types message <<< "$state"
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
    if [ -n "$reason" ] && [[ $said != *"|$reason|"* ]]; then # ErrImagePull alternates
        said+="|$reason|"
        echo "$JOB: the pod $pod does not start ($reason), and the script waits for it. To see" \
            "why, run: $(shown describe pod "$pod"). If a setting is wrong, press Ctrl-C, and run" \
            "the script with the right one" >&2
    fi
}

report_failure() { # MESSAGE INDEXES: print the log of the pod that failed, and exit
    local failed pod reason code remedy
    remedy=$(remedy)
    failed=$(pod_states | awk -F '|' -v index_="${2%%[,-]*}" '
        $3 == "Failed" && (index_ == "" || $2 == index_) {
            pod = $1 "|" ($8 != "" ? $8 : $6) "|" $7
        }
        END { print pod }') || true
    IFS='|' read -r pod reason code <<< "$failed"
    [ -n "$pod" ] || fail "the Job $JOB failed: $1. To see why, run:" \
        "$(shown describe job "$JOB"). Repair the cause. $remedy"
    echo "The pod $pod ended with ${reason:-an error}. The last lines of its log:" >&2
    kube logs "$pod" --tail=20 | sed 's/^/    /' >&2 || true
    [ "$code" != 2 ] || fail "the Job $JOB failed, because thdpack refused an option or input" \
        "(exit code 2). For the whole log, run: $(shown logs "$pod"). Correct INPUTS, OPTIONS or" \
        "DATASET, and run the script again"
    case "$reason" in
    Evicted) fail "the Job $JOB failed, because a pod was evicted, for example because it needed" \
        "more disk space than the sizeLimit in $TEMPLATE. To see why, run:" \
        "$(shown describe pod "$pod"). Repair the cause. $remedy" ;;
    OOMKilled) fail "the Job $JOB failed, because a pod needed more memory than its limit. Set" \
        "MEMORY or, for the commit, COMMIT_MEMORY to more. $remedy" ;;
    *) fail "the Job $JOB failed: $1. For the whole log, run: $(shown logs "$pod"). Repair the" \
        "cause. $remedy" ;;
    esac
}

export SERVICE_ACCOUNT=${SERVICE_ACCOUNT:-} SECRET=${SECRET:-} CLAIM=${CLAIM:-} IMAGE MOUNT

PLAN_ARGS=$(printf '%s\n' plan-tasks "$INPUT_WORDS" --out "$DATASET" \
    ${OPTION_WORDS:+"$OPTION_WORDS"} | json)
run_job "thdpack-plan-$(checksum "$PLAN_ARGS")" 1 "$PLAN_ARGS" 1 "$MEMORY"
PLAN=$(log_of_job) || fail "kubectl cannot read the log of the Job $JOB$(because). Check your" \
    "rights with: $(shown auth can-i get pods --subresource=log). Then run the same command again"
grep -v '  thdpack \|  deploy/' <<< "$PLAN" || true # without the commands that this script runs
DIGEST=$(awk 'NF == 2 && $1 == "plan" { print $2 }' <<< "$PLAN")
[ -n "$DIGEST" ] || fail "the log of the Job $JOB names no plan. Set IMAGE to the image of" \
    "deploy/containers/cpu.Containerfile, target cpu, and run the script again"
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
log_of_job || echo "the dataset is complete, but kubectl cannot read the log of $JOB$(because)" >&2
