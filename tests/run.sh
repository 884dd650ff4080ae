#!/usr/bin/env bash
# run.sh - build and run dptrain's tests.  Installs what they need first (deploy/deps.sh --tests).
#
#   tests/run.sh                every test, in the release build that quickstart.sh uses (build/)
#   tests/run.sh NAME...        the tests whose names match, such as base/err or 'e2e/*'
#   tests/run.sh quick          all but the slow ones (a whole installation in an empty Debian)
#   tests/run.sh clang          built by clang, but not end to end (build-clang/)
#   tests/run.sh asan           under ASan and UBSan               (build-asan/)
#   tests/run.sh tsan           what has threads, under clang TSan (build-tsan/)
#   tests/run.sh fuzz [SECONDS] every libFuzzer target for so long, 20 s (build-fuzz/)
#   tests/run.sh sim [N]        a million schedules of the protocol, or N, of each kind under a fake
#                               network
#   tests/run.sh soak [MINUTES] ranks lost, frozen and added at random for so long, 30
#   tests/run.sh shake [TIMES] [NAME...]  some threads and processes made slow at random, that many
#                               times, 10: what holds only by luck fails (tests/shake)
#   tests/run.sh format         clang-format on every source, changing nothing
#   tests/run.sh lint           the house's rules: includes, guards, sizes
#   tests/run.sh gpu [OPTION...]  what needs a GPU (tests/gpu/suite.py), also in a bundle; exit
#                               status 77 without one; --help and --list tell more
#   in a bundle (deploy/bundle.sh) only: nothing, NAME..., gpu; what it holds is in tests/list
#   tests/run.sh all            all of the above but sim, soak, shake, gpu, and suite `long`
#   --werror                    before any of these: warnings are errors (build-...-werror/)
#
# Tests of suite `slow` are run by gcc's build alone, and so are those of suite `once`, of which
# another compiler would say the same.
#
# The last line is "N passed, N failed", with ", N skipped" where some were; it counts meson tests,
# fuzz targets, kinds of schedules, and format as one.  A build that fails counts as one failure.
# Exit status 1 if any.
set -u
cd "$(dirname "$0")/.." || exit 1

passed=0 failed=0 skipped=0
failures=()
suffix=
options=()

# As the daemons have it (common/daemon/process.c): oneDNN's threads do not spin while they wait,
# which beside other tests takes more time than all that is computed.
export OMP_WAIT_POLICY=passive

# Tests of these rooms start threads of their own, or feed those who do.
threaded_rooms='base session net coll train data report daemon'

say() { printf '\n== %s\n' "$*"; }

add_failure() # NAME
{
    failed=$((failed + 1))
    failures+=("$1")
}

configure() # DIR BUILDTYPE [MESON OPTION...]
{
    local dir=$1 buildtype=$2 wanted
    shift 2
    wanted="--buildtype=$buildtype $* -Dtests=enabled ${options[*]-}"
    say "building $dir ($wanted)"
    # shellcheck disable=SC2086 # $wanted is several options, none with a blank
    if [ ! -f "$dir/build.ninja" ]; then
        meson setup "$dir" $wanted >"$dir.log" 2>&1
    elif [ "$(cat "$dir/run.options" 2>/dev/null)" != "$wanted" ]; then
        meson configure "$dir" $wanted >"$dir.log" 2>&1
    fi || { cat "$dir.log" >&2; rm -f "$dir.log"; add_failure "meson setup of $dir"; return 1; }
    rm -f "$dir.log"
    echo "$wanted" >"$dir/run.options"
}

build() # DIR [TARGET...]
{
    ninja -k 0 -C "$@" </dev/null || { add_failure "build of $1"; return 1; }
}

configure_and_build() # DIR BUILDTYPE [MESON OPTION...]
{
    configure "$@" && build "$1"
}

# count_meson DIR: add up the test log that `meson test` has just written
count_meson()
{
    local dir=$1 kind name n_before=$((passed + failed + skipped))
    while read -r kind name; do
        case $kind in
        passed) passed=$((passed + 1)) ;;
        skipped) skipped=$((skipped + 1)) && echo "skipped: $name" ;;
        *) add_failure "$name ($dir)" ;;
        esac
    done < <(python3 - "$dir/meson-logs/testlog.json" <<'PY'
import json, os, sys
kinds = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
if os.path.exists(sys.argv[1]):
    for line in open(sys.argv[1], encoding="utf-8"):
        test = json.loads(line)
        print(kinds.get(test["result"], "failed"), test["name"])
PY
    )
    [ $((passed + failed + skipped)) -gt $n_before ] || add_failure "no test ran in $dir"
}

# run_tests DIR [MESON TEST ARGUMENT...]
run_tests()
{
    local dir=$1 status n_failed=$failed
    shift
    say "testing $dir"
    rm -f "$dir/meson-logs/testlog.json"
    # One more than there are processors: many tests wait for deadlines most of the time.
    meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes $(($(nproc) + 1)) "$@" \
        </dev/null
    status=$?
    count_meson "$dir"
    [ $status = 0 ] || [ $failed -gt $n_failed ] || add_failure "meson test in $dir: status $status"
}

# names_like DIR PATTERN...: the tests of DIR whose names match one of the shell patterns
names_like()
{
    local dir=$1 name pattern
    shift
    meson introspect "$dir" --tests | python3 -c '
import json, sys
for name in sorted({test["name"] for test in json.load(sys.stdin)}): print(name)' |
        while read -r name; do
            for pattern in "$@"; do
                # shellcheck disable=SC2053 # a pattern is meant
                [[ $name == $pattern ]] && echo "$name" && break
            done
        done
}

# targets_of DIR NAME...: what ninja has to build in DIR for these tests
targets_of()
{
    meson introspect "$1" --tests --targets | python3 -c '
import json, os, sys
top, names = os.path.realpath(sys.argv[1]), set(sys.argv[2:])
known = json.load(sys.stdin)
files = {target["id"]: target["filename"] for target in known["targets"]}
wanted = {id for test in known["tests"] if test["name"] in names for id in test["depends"]}
for path in sorted(path for id in wanted for path in files[id]): print(os.path.relpath(path, top))
' "$@"
}

do_gcc() # [MESON TEST ARGUMENT...]
{
    configure_and_build "build$suffix" release && run_tests "build$suffix" "$@"
}

do_named() # PATTERN...
{
    local names
    configure_and_build "build$suffix" release || return
    mapfile -t names < <(names_like "build$suffix" "$@")
    if [ ${#names[@]} = 0 ]; then
        add_failure "no test is named like: $* (meson test -C build$suffix --list names all)"
        return
    fi
    run_tests "build$suffix" "${names[@]}"
}

do_clang()
{
    CC=clang CXX=clang++ configure_and_build "build-clang$suffix" release &&
        run_tests "build-clang$suffix" --no-suite slow --no-suite once --no-suite e2e
}

# GCC's warnings are unreliable under its sanitizers (its manual says so): never errors here.
do_asan()
{
    local options=()
    configure_and_build "build-asan$suffix" debugoptimized \
        -Db_sanitize=address,undefined -Db_lundef=false || return
    ASAN_OPTIONS=abort_on_error=1:detect_stack_use_after_return=1:strict_string_checks=1 \
        UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1 DPTRAIN_PATIENCE=240 \
        run_tests "build-asan$suffix" --no-suite slow --no-suite once --timeout-multiplier 4
}

do_tsan()
{
    local names patterns=() targets room
    CC=clang CXX=clang++ configure "build-tsan$suffix" debugoptimized \
        -Db_sanitize=thread -Db_lundef=false || return
    for room in $threaded_rooms; do patterns+=("$room/*"); done
    mapfile -t names < <(names_like "build-tsan$suffix" "${patterns[@]}")
    mapfile -t targets < <(targets_of "build-tsan$suffix" "${names[@]}")
    build "build-tsan$suffix" "${targets[@]}" || return
    TSAN_OPTIONS=halt_on_error=1:abort_on_error=1:suppressions=$PWD/tests/tsan.supp \
        DPTRAIN_PATIENCE=240 \
        run_tests "build-tsan$suffix" --no-suite slow --no-suite once --timeout-multiplier 8 \
        "${names[@]}"
}

# Each target runs for SECONDS from its seeds (tests/fuzz/corpus/NAME for fuzz_NAME); what it dies
# of stays in build-fuzz/crashes/.
do_fuzz() # SECONDS [LIBFUZZER OPTION...]
{
    local dir=build-fuzz$suffix seconds=$1 targets name
    shift
    CC=clang CXX=clang++ configure "$dir" debugoptimized -Dfuzz=enabled -Db_lundef=false \
        -Db_sanitize=address,undefined -Dc_args=-fsanitize=fuzzer-no-link || return
    mapfile -t targets < <(ninja -C "$dir" -t targets all |
        sed -n 's,^\(tests/fuzz/fuzz_[a-z0-9_]*\): .*,\1,p' | sort -u)
    [ ${#targets[@]} -gt 0 ] || { add_failure "no fuzz target in $dir"; return; }
    build "$dir" "${targets[@]}" || return
    mkdir -p "$dir/crashes"
    for name in "${targets[@]##*/fuzz_}"; do
        fuzz_one "$dir" "$name" "$seconds" "$@"
    done
}

fuzz_one() # DIR NAME SECONDS [LIBFUZZER OPTION...]
{
    local dir=$1 name=$2 seconds=$3 seeds=tests/fuzz/corpus/$2 work
    shift 3
    say "fuzzing $name for $seconds s"
    [ -d "$seeds" ] || { add_failure "fuzz/$name: no seeds in $seeds"; return; }
    work=$(mktemp -d)
    mkdir "$work/found"
    if UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        "$dir/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 "$@" \
        -artifact_prefix="$dir/crashes/$name-" "$work/found" "$seeds" \
        </dev/null >"$work/log" 2>&1; then
        passed=$((passed + 1))
        grep -E 'number_of_executed_units|new_units_added|DONE' "$work/log"
    else
        tail -n 100 "$work/log"
        add_failure "fuzz/$name"
    fi
    rm -rf "$work"
}

# A schedule that breaks an invariant is printed with the command that shows it again.
do_sim() # N
{
    local kind program=build$suffix/tests/session/session_sim
    [[ $1 =~ ^[1-9][0-9]*$ ]] || { add_failure "sim $1: want how many schedules"; return; }
    configure "build$suffix" release && build "build$suffix" tests/session/session_sim || return
    for kind in plain elastic; do
        say "$1 schedules, $kind"
        if "$program" --$kind --seeds "$1"; then
            passed=$((passed + 1))
        else
            add_failure "sim $kind"
        fi
    done
}

do_soak() # MINUTES
{
    configure_and_build "build$suffix" release || return
    say "soak for $1 minutes"
    if DPDRIVER=$PWD/build$suffix/driver/dpdriver DPFOLLOWER=$PWD/build$suffix/follower/dpfollower \
        python3 -u tests/e2e/soak.py "$1"; then
        passed=$((passed + 1))
    else
        add_failure "soak: DPTRAIN_SEED of its first line chooses the same again"
    fi
}

# Most of the time they sleep, so many may run side by side.
do_shake() # TIMES [PATTERN...]
{
    local times=$1 names=() dir=build$suffix
    shift
    [[ $times =~ ^[1-9][0-9]*$ ]] || { add_failure "shake $times: want how many times"; return; }
    configure_and_build "$dir" release || return
    if [ $# -gt 0 ]; then
        mapfile -t names < <(names_like "$dir" "$@")
        [ ${#names[@]} -gt 0 ] || { add_failure "no test is named like: $*"; return; }
    fi
    LD_PRELOAD=$PWD/$dir/tests/shake/shake.so run_tests "$dir" --repeat "$times" \
        --num-processes $((3 * $(nproc))) --timeout-multiplier 6 \
        --no-suite slow --no-suite once --no-suite long "${names[@]}"
}

do_format()
{
    local files
    say "format"
    mapfile -t files < <(git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh')
    if clang-format --dry-run -Werror "${files[@]}"; then
        passed=$((passed + 1))
    else
        add_failure "format: clang-format -i the files above"
    fi
}

do_lint()
{
    say "lint"
    if python3 tests/lint/lint.py; then passed=$((passed + 1)); else add_failure lint; fi
}

# In a bundle (deploy/bundle.sh) its programs, else those of the release build.
do_gpu()
{
    case " $* " in
    *" --list "* | *" --help "*) exec python3 tests/gpu/suite.py "$@" ;;
    esac
    if [ -x bin/dpdriver ]; then
        exec python3 tests/gpu/suite.py --bundle . "$@"
    fi
    configure "build$suffix" release >&2 && build "build$suffix" gpu-suite driver/dpdriver \
        follower/dpfollower >&2 || finish
    exec python3 tests/gpu/suite.py --build "build$suffix" "$@"
}

# Of a bundle, which needs no build: the tests of tests/list whose names match.
do_bundled() # [PATTERN...]
{
    local name seconds command pattern log status start
    log=$(mktemp)
    [ $# -gt 0 ] || set -- '*'
    export DPDRIVER=$PWD/bin/dpdriver DPFOLLOWER=$PWD/bin/dpfollower
    while IFS=$'\t' read -r name seconds command <&3; do
        for pattern in "$@"; do
            # shellcheck disable=SC2053 # a pattern is meant
            [[ $name == $pattern ]] && break
        done
        # shellcheck disable=SC2053
        [[ $name == $pattern ]] || continue
        start=$SECONDS
        eval "timeout -k 10 $((seconds * ${DPTRAIN_TIMEOUT_MULTIPLIER:-1})) env $command" \
            </dev/null >"$log" 2>&1
        status=$?
        case $status in
        0) passed=$((passed + 1)) && echo "ok: $name ($((SECONDS - start)) s)" ;;
        77) skipped=$((skipped + 1)) && echo "skipped: $name: $(tail -n 1 "$log")" ;;
        *) tail -n 40 "$log" && echo "FAILED: $name: status $status" && add_failure "$name" ;;
        esac
    done 3<tests/list
    rm -f "$log"
    [ $((passed + failed + skipped)) -gt 0 ] || add_failure "no test is named like: $*"
}

# Run one part and say what it came to; not in the closing line's form, which is the total's.
part() # FUNCTION [ARGUMENT...]
{
    local p=$passed f=$failed s=$skipped start=$SECONDS
    "$@"
    echo "-- ${1#do_} took $((SECONDS - start)) s:" \
        "passed $((passed - p)), failed $((failed - f)), skipped $((skipped - s))"
}

do_all()
{
    part do_format
    part do_gcc --no-suite long # holds the lint, too
    part do_clang
    part do_asan
    part do_tsan
    part do_fuzz "$1" -seed=1 # the same inputs each time, as far as the clock lets it come
}

finish()
{
    if [ ${#failures[@]} -gt 0 ]; then
        printf '\nfailed:\n'
        printf '    %s\n' "${failures[@]}"
    fi
    echo
    if [ $skipped -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
    else
        echo "$passed passed, $failed failed"
    fi
    [ $failed = 0 ]
    exit
}

# A Python with torch (Debian's) and safetensors (which Debian lacks), for tests/interop.  Without a
# way to get it, or with DPTRAIN_SKIP_DEPS=1, that test is skipped, and says so.
find_torch()
{
    local venv=$PWD/build-torch
    [ -z "${DPTRAIN_TORCH_PYTHON:-}${DPTRAIN_SKIP_DEPS:-}" ] || return 0
    if ! "$venv/bin/python" -c 'import torch, safetensors' 2>/dev/null; then
        { /usr/bin/python3 -m venv --system-site-packages "$venv" &&
            "$venv/bin/python" -m pip install -q safetensors; } >"$venv.log" 2>&1 </dev/null ||
            { echo "run.sh: no safetensors for Python: $(tail -n 1 "$venv.log")"; return 0; }
        rm -f "$venv.log"
    fi
    export DPTRAIN_TORCH_PYTHON=$venv/bin/python
}

# A bundle has no deps.sh, and needs none.
if [ "${DPTRAIN_SKIP_DEPS:-}" != 1 ] && [ -f deploy/deps.sh ]; then
    deploy/deps.sh --tests || { add_failure deps.sh; finish; }
fi

if [ "${1:-}" = --werror ]; then
    suffix=-werror
    options+=(-Dwerror=true)
    shift
fi
trap 'add_failure interrupted; finish' INT TERM

what=${1:-}
if [ -x bin/dpdriver ] && [ "$what" != gpu ] && [[ $what != -* ]]; then
    do_bundled "$@"
    finish
fi
case $what in
lint | format | sim | soak | gpu | -*) ;;
*) find_torch ;;
esac
case $what in
'') do_gcc ;;
quick) do_gcc --no-suite slow ;;
fuzz | all) do_$what "${2:-20}" ;;
sim) do_sim "${2:-1000000}" ;;
soak) do_soak "${2:-30}" ;;
shake) do_shake "${2:-10}" "${@:3}" ;;
gpu) shift && do_gpu "$@" ;;
clang | asan | tsan | format | lint) do_$what ;;
-h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' tests/run.sh && exit ;;
-*) echo "run.sh: unknown option $what; tests/run.sh --help" >&2 && exit 2 ;;
*) do_named "$@" ;;
esac
finish
