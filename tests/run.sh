#!/usr/bin/env bash
# run.sh - builds and runs dptrain's tests.  First it installs the packages that they need
# (deploy/deps.sh --tests).  With `all` and where tests are named it also installs, by pip into
# build-torch/, PyTorch, torchvision and transformers, which take about 6 GB.  With
# DPTRAIN_SKIP_DEPS=1 it installs nothing.  DPTRAIN_TORCH_PYTHON may name a Python that has these
# three already.
#
#   tests/run.sh                before each commit, six minutes behind a build on two processors:
#                               the release build (build/), all tests but those of suite `long`
#   tests/run.sh NAME...        the tests of build/ whose names match, such as base/err or 'e2e/*'
#   tests/run.sh all [SECONDS]  everything, about 40 minutes: the six parts below, each with its
#                               time, then the 15 slowest tests; each fuzz target gets SECONDS, 20
#   tests/run.sh ci [SECONDS]   what every change must pass (.ci/run): `all` without clang's release
#                               build, the oldest GPU and the tests of suite `rest`, and with ASan
#                               and UBSan for the rooms that read foreign bytes
#
# The parts of `all`; each can be run alone.  `all` builds the later parts in the background while
# it tests the earlier ones.  Tests that want no other test beside them run at the end.
#   tests/run.sh format         clang-format on every source; it changes nothing
#   tests/run.sh gcc            every test, in a release build for the oldest GPU and the H100
#                               (build-all/); deploy/bundle.sh builds for all
#   tests/run.sh clang          built by clang; neither long nor end to end (build-clang/)
#   tests/run.sh asan           under ASan and UBSan (build-asan/)
#   tests/run.sh tsan           the rooms that use threads, under clang's TSan (build-tsan/); four
#                               tests of train/ run one row in four (tests/train/meson.build)
#   tests/run.sh fuzz [SECONDS] every libFuzzer target for so long, 20 s (build-fuzz/)
#
# Not in `all`:
#   tests/run.sh lint           the rules of tests/lint alone; gcc's part has them as a test.
#                               `format lint` does both, as the hook tests/hooks/pre-commit does
#   tests/run.sh sim [N]        N schedules of the protocol, a million, of each kind under a fake
#                               network; session_sim --show SEED tells one, line by line
#   tests/run.sh crowd [N]      N schedules, 1,000, in which ranks of 100,000 are lost while they
#                               train and while the others form
#   tests/run.sh cluster        the tests with real launchers: Slurm, MPICH, Open MPI, torchrun,
#                               sshd, pods of Kubernetes.  It installs what it can (deploy/deps.sh
#                               --cluster), as `all` does; a test tells what it lacks
#   tests/run.sh soak [MINUTES] ranks are lost, frozen and added at random for so long, 30
#   tests/run.sh driver_lost [TIMES]  the driver is killed at random moments of each phase, so many
#                               times in each, 20, and started again, first without and then beside
#                               a standby; DPTRAIN_SEED chooses the same.  Then it is frozen for
#                               30 s, beside a standby
#   tests/run.sh networks [MINUTES]  training over slow, lossy and narrow networks, each for so
#                               long, 5; prints the table of tests/bench/RESULTS.md
#   tests/run.sh shake [TIMES] [NAME...]  the tests so many times, 10, with some threads and
#                               processes slowed down at random (tests/shake): a test that passes
#                               only by luck fails
#   tests/run.sh arm64 [NAME...]  built for arm64 by Debian's cross compiler and run by qemu-user
#                               (build-arm64/): neither long, nor end to end, nor what only gcc's
#                               part runs, nor four that take qemu many minutes; NAME... chooses
#                               among all tests.  It installs what it can (deploy/deps.sh --arm64),
#                               and tells what is missing
#   tests/run.sh gpu [OPTION...]  the tests that need a GPU (tests/gpu/suite.py), also in a bundle;
#                               exit status 77 without a GPU; --help and --list tell more
#
# --werror before any of these makes warnings errors (build-...-werror/).  In a bundle
# (deploy/bundle.sh) there are only: no argument, NAME..., gpu; tests/list names the tests.
# tests/meson.build says what the suites mean.
#
# A meson test that fails is run again, twice, with no test beside it.  If it passes both times it
# counts as passed, and the last lines name it as flaky and the file that keeps its first output.
# More than three flaky tests fail the run.  A crash of a fuzz target is never flaky.
#
# The last line is "N passed, N failed", followed by ", N skipped" if there were any.  It counts
# meson tests, fuzz targets, kinds of schedules, and format as one.  A build that fails counts as
# one failure.  The exit status is 1 if anything failed.
set -u
cd "$(dirname "$0")/.." || exit 1

passed=0 failed=0 skipped=0
failures=()
flaky=()   # "NAME<tab>FILE of its first output" of each
max_flaky=3
times=     # a file: "SECONDS NAME (DIR)" of every meson test
turn=both  # which tests run now: beside (those that may run beside others), alone, or both
builder=   # the process group that builds in the background; see start_builder
suffix=
options=()
emulator=() # the words before `meson test`; see do_arm64

# As the daemons do (common/daemon/process.c): oneDNN's threads sleep while they wait.  Threads that
# spin take more time from the tests beside them than all computation does.
export OMP_WAIT_POLICY=passive

# With ccache, what one clone has compiled serves another in another folder.
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$PWD

# The tests of these rooms start threads of their own.
threaded_rooms='base net coll state step train data report daemon'
# The tests of these rooms, and those by names, read what files and peers sent.
foreign_tests=('base/*' 'config/*' 'job/*' 'inject/*' 'wire/*' 'session/*' 'net/*' 'coll/*' 'data/*'
    'ckpt/*' 'report/*' 'driver/*' 'fuzz/*' e2e/bad_input e2e/strangers)
is_ci=no

say() { printf '\n== %s\n' "$*"; }

add_failure() # NAME
{
    failed=$((failed + 1))
    failures+=("$1")
}

# Builds that are only tested link by lld, in a quarter of the time.
checked()
{
    if command -v ld.lld >/dev/null; then CC_LD=lld CXX_LD=lld "$@"; else "$@"; fi
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

# With --werror an object may come from ccache with its warning alone, because ccache leaves -Werror
# out of account: that is an error, too, but under GCC's sanitizers (build_asan).
build() # DIR [TARGET...]
{
    local log=$1/build.log status=0
    if [ -z "$suffix" ]; then
        ninja -k 0 -C "$@" </dev/null || status=1
    else
        ninja -k 0 -C "$@" </dev/null 2>&1 | tee "$log"
        [ "${PIPESTATUS[0]}" = 0 ] || status=1
        [[ $1 == build-asan* ]] || ! grep -q 'warning: .*\[-W' "$log" || status=1
    fi
    [ $status = 0 ] || add_failure "build of $1"
    return $status
}

configure_and_build() # DIR BUILDTYPE [MESON OPTION...]
{
    configure "$@" && build "$1"
}

# read_log DIR LOG: "KIND SECONDS NAME" of each test in the log that `meson test` has written.  In a
# project with suites the log says "PROJECT:SUITE / NAME"; `meson test` knows the test as NAME.
read_log()
{
    python3 - "$1/meson-logs/$2.json" <<'PY'
import json, os, sys
kinds = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
if os.path.exists(sys.argv[1]):
    for line in open(sys.argv[1], encoding="utf-8"):
        test = json.loads(line)
        name = test["name"].split(" / ", 1)[-1]
        print(kinds.get(test["result"], "failed"), f"{test['duration']:.1f}", name)
PY
}

# keep_output DIR NAME FILE: write what this test of the last run printed
keep_output()
{
    python3 - "$1/meson-logs/testlog.json" "$2" "$3" <<'PY'
import json, os, sys
log, name, to = sys.argv[1:]
os.makedirs(os.path.dirname(to), exist_ok=True)
for test in map(json.loads, open(log, encoding="utf-8")):
    if test["name"].split(" / ", 1)[-1] == name:
        with open(to, "w", encoding="utf-8") as file:
            file.write(f"{name}: {test['result']} after {test['duration']:.1f} s, "
                       f"status {test['returncode']}\n{test.get('stdout', '')}"
                       f"{test.get('stderr', '')}")
PY
}

# passes_alone DIR NAME [OPTION...]: whether this test passes twice with no test beside it
passes_alone()
{
    local dir=$1 name=$2
    shift 2
    say "$name ($dir) failed: running it twice again by itself"
    "${emulator[@]}" meson test -C "$dir" --no-rebuild --print-errorlogs --logbase again \
        --repeat 2 --maxfail 1 --num-processes 1 "$@" "$name" </dev/null
}

# judge_failures DIR [OPTION...] -- NAME...: of the tests that failed, tell the flaky ones from the
# others.  More than max_flaky failures fail the run whatever comes of running them again.
judge_failures()
{
    local dir=$1 test_options=() name file
    shift
    while [ "$1" != -- ]; do test_options+=("$1") && shift; done
    shift
    if [ $((${#flaky[@]} + $#)) -gt $max_flaky ]; then
        [ ${#flaky[@]} = 0 ] || echo "too many failures to take them for flaky: not run again"
        for name in "$@"; do add_failure "$name ($dir)"; done
        return
    fi
    for name in "$@"; do
        file=$dir/flaky/${name//\//_}.txt
        keep_output "$dir" "$name" "$file"
        if passes_alone "$dir" "$name" "${test_options[@]}"; then
            passed=$((passed + 1))
            flaky+=("$name"$'\t'"$file")
        else
            add_failure "$name ($dir)"
        fi
    done
}

# count_tests DIR [OPTION...]: add up the log that `meson test` has just written
count_tests()
{
    local dir=$1 kind seconds name failing=() n_before=$((passed + failed + skipped))
    while read -r kind seconds name; do
        echo "$seconds $name ($dir)" >>"$times"
        case $kind in
        passed) passed=$((passed + 1)) ;;
        skipped) skipped=$((skipped + 1)) && echo "skipped: $name" ;;
        *) failing+=("$name") ;;
        esac
    done < <(read_log "$dir" testlog)
    [ ${#failing[@]} = 0 ] || judge_failures "$@" -- "${failing[@]}"
    [ $((passed + failed + skipped)) -gt $n_before ] || add_failure "no test ran in $dir"
}

# run_at_once DIR [OPTION...] [-- NAME...]: these tests of DIR, or all that the options leave.
run_at_once()
{
    local dir=$1 status n_before=$((failed + ${#flaky[@]})) test_options=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do test_options+=("$1") && shift; done
    [ $# = 0 ] || shift
    say "testing $dir"
    rm -f "$dir/meson-logs/testlog.json"
    # Three times as many as there are processors: many tests wait for deadlines most of the time.
    "${emulator[@]}" meson test -C "$dir" --no-rebuild --print-errorlogs \
        --num-processes $((3 * $(nproc))) "${test_options[@]}" "$@" </dev/null
    status=$?
    count_tests "$dir" "${test_options[@]}"
    [ $status = 0 ] || [ $((failed + ${#flaky[@]})) -gt $n_before ] ||
        add_failure "meson test in $dir: status $status"
}

# run_tests DIR [OPTION...] -- NAME...: those of these tests that $turn chooses
run_tests()
{
    local dir=$1 test_options=() names alone
    shift
    while [ "$1" != -- ]; do test_options+=("$1") && shift; done
    shift
    [ $# -gt 0 ] || { add_failure "no test in $dir"; return; }
    names=$(printf '%s\n' "$@")
    alone=$(names_alone "$dir")
    case $turn in
    both) ;;
    beside) names=$(grep -vxF "$alone" <<<"$names") || return 0 ;;
    alone) names=$(grep -xF "$alone" <<<"$names") || return 0 ;;
    esac
    # shellcheck disable=SC2086 # no name has a blank
    run_at_once "$dir" "${test_options[@]}" -- $names
}

# names_like DIR PATTERN...: the tests of DIR whose names match one of the shell patterns
names_like()
{
    local dir=$1 name pattern
    shift
    names_without "$dir" |
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

# names_without DIR SUITE...: the tests of DIR that are in none of these suites, by their priority.
# `meson test` runs tests in the order in which it is given their names.
names_without()
{
    meson introspect "$1" --tests | python3 -c '
import json, sys
left_out = set(sys.argv[1:])
for _, name in sorted({(-test["priority"], test["name"]) for test in json.load(sys.stdin)
                       if not left_out & {suite.split(":")[-1] for suite in test["suite"]}}):
    print(name)' "${@:2}"
}

# names_alone DIR: the tests of DIR that run with no other test beside them
names_alone()
{
    meson introspect "$1" --tests | python3 -c '
import json, sys
for name in sorted({test["name"] for test in json.load(sys.stdin) if not test["is_parallel"]}):
    print(name)'
}

# build_for DIR NAME...: what these tests need
build_for()
{
    local targets
    mapfile -t targets < <(targets_of "$@")
    build "$1" "${targets[@]}"
}

do_default()
{
    configure_and_build "build$suffix" release && run_at_once "build$suffix" --no-suite long
}

# A part PART has the functions build_PART and test_PART.
do_part() # PART [ARGUMENT...]
{
    "build_$1" && "test_$1" "${@:2}"
}

build_gcc()
{
    if [ $is_ci = no ]; then
        configure_and_build "build-all$suffix" release -Dgpu_arch=80,90a
    else
        # The system's linker makes the release build of chroot/quickstart.
        checked configure "build-all$suffix" release -Dgpu_arch=90a && build "build-all$suffix"
    fi
}

# The suite that `ci` leaves to `all`, or one that no test has.
suite_left_to_all() { if [ $is_ci = yes ]; then echo rest; else echo none; fi; }

test_gcc()
{
    local names
    mapfile -t names < <(names_without "build-all$suffix" "$(suite_left_to_all)")
    run_tests "build-all$suffix" -- "${names[@]}"
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
    run_at_once "build$suffix" -- "${names[@]}"
}

# Of the GPU plugin clang compiles the C files; its kernels are nvcc's in gcc's part.
build_clang()
{
    local dir=build-clang$suffix names objects
    CC=clang CXX=clang++ checked configure "$dir" release || return
    mapfile -t objects < <(ninja -C "$dir" -t targets all |
        sed -n 's,^\(common/plugin/.*\.c\.o\): .*,\1,p')
    [ ${#objects[@]} = 0 ] || build "$dir" "${objects[@]}" || return
    mapfile -t names < <(names_of_clang)
    build_for "$dir" "${names[@]}"
}

names_of_clang() { names_without "build-clang$suffix" once long e2e; }

test_clang()
{
    local names
    mapfile -t names < <(names_of_clang)
    run_tests "build-clang$suffix" -- "${names[@]}"
}

# GCC's warnings are unreliable under its sanitizers, as its manual says, and never errors here.
# Without detect_stack_use_after_return: up to version 13 GCC aligns the vectors on ASan's own stack
# to 32 bytes (its bug 110027), so code with vectors of 64 bytes ends by SIGSEGV.
# With -O1 it compiles in two thirds of the time of -O2, and checks as much.
build_asan()
{
    local options=() dir=build-asan$suffix names
    checked configure "$dir" debugoptimized -Doptimization=1 \
        -Db_sanitize=address,undefined -Db_lundef=false || return
    mapfile -t names < <(names_of_asan)
    build_for "$dir" "${names[@]}"
}

names_of_asan()
{
    local dir=build-asan$suffix kept
    kept=$(names_without "$dir" once)
    if [ $is_ci = no ]; then
        echo "$kept"
    else
        names_like "$dir" "${foreign_tests[@]}" | grep -xF "$kept"
    fi
}

test_asan()
{
    local dir=build-asan$suffix names
    mapfile -t names < <(names_of_asan)
    ASAN_OPTIONS=abort_on_error=1:strict_string_checks=1 \
        UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1 DPTRAIN_PATIENCE=240 \
        run_tests "$dir" --timeout-multiplier 4 -- "${names[@]}"
}

build_tsan()
{
    local names dir=build-tsan$suffix
    CC=clang CXX=clang++ checked configure "$dir" debugoptimized \
        -Db_sanitize=thread -Db_lundef=false || return
    mapfile -t names < <(names_of_tsan)
    build_for "$dir" "${names[@]}"
}

names_of_tsan()
{
    local patterns=() room dir=build-tsan$suffix kept
    for room in $threaded_rooms; do patterns+=("$room/*"); done
    kept=$(names_without "$dir" once)
    names_like "$dir" "${patterns[@]}" | grep -xF "$kept"
}

test_tsan()
{
    local names dir=build-tsan$suffix
    mapfile -t names < <(names_of_tsan)
    TSAN_OPTIONS=halt_on_error=1:abort_on_error=1:suppressions=$PWD/tests/tsan.supp \
        DPTRAIN_PATIENCE=240 run_tests "$dir" --timeout-multiplier 8 -- "${names[@]}"
}

build_fuzz()
{
    local dir=build-fuzz$suffix targets
    CC=clang CXX=clang++ checked configure "$dir" debugoptimized -Dfuzz=enabled -Db_lundef=false \
        -Db_sanitize=address,undefined -Dc_args=-fsanitize=fuzzer-no-link || return
    mapfile -t targets < <(fuzz_targets)
    [ ${#targets[@]} -gt 0 ] || { add_failure "no fuzz target in $dir"; return 1; }
    build "$dir" "${targets[@]}"
}

fuzz_targets()
{
    ninja -C "build-fuzz$suffix" -t targets all |
        sed -n 's,^\(tests/fuzz/fuzz_[a-z0-9_]*\): .*,\1,p' | sort -u
}

# Each target runs for SECONDS from its seeds (tests/fuzz/corpus/NAME for fuzz_NAME), as many at a
# time as there are processors.  The input that a target crashes on stays in build-fuzz/crashes/.
test_fuzz() # SECONDS [LIBFUZZER OPTION...]
{
    local dir=build-fuzz$suffix seconds=$1 targets name work
    shift
    mapfile -t targets < <(fuzz_targets)
    mkdir -p "$dir/crashes"
    work=$(mktemp -d)
    say "fuzzing ${#targets[@]} targets for $seconds s each"
    for name in "${targets[@]##*/fuzz_}"; do
        [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
        { fuzz_one "$dir" "$name" "$work" "$seconds" "$@" && touch "$work/$name.passed"; } &
    done
    wait
    for name in "${targets[@]##*/fuzz_}"; do count_fuzzed "$name" "$work"; done
    rm -rf "$work"
}

fuzz_one() # DIR NAME WORK SECONDS [LIBFUZZER OPTION...]
{
    local dir=$1 name=$2 work=$3 seconds=$4 seeds=tests/fuzz/corpus/$2
    shift 4
    [ -d "$seeds" ] || { echo "no seeds in $seeds" >"$work/$name.log"; return 1; }
    mkdir "$work/$name"
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        "$dir/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 "$@" \
        -artifact_prefix="$dir/crashes/$name-" "$work/$name" "$seeds" \
        </dev/null >"$work/$name.log" 2>&1
}

count_fuzzed() # NAME WORK
{
    echo "fuzz/$1:"
    if [ -e "$2/$1.passed" ]; then
        passed=$((passed + 1))
        grep -E 'number_of_executed_units|new_units_added|DONE' "$2/$1.log"
    else
        tail -n 100 "$2/$1.log"
        add_failure "fuzz/$1"
    fi
}

# A schedule that breaks an invariant is printed with the command that shows it again.
do_sim() # N
{
    local kind program=build$suffix/tests/session/session_sim
    [[ $1 =~ ^[1-9][0-9]*$ ]] || { add_failure "sim $1: want how many schedules"; return; }
    configure "build$suffix" release && build "build$suffix" tests/session/session_sim || return
    for kind in plain elastic leaders standby audit; do
        say "$1 schedules, $kind"
        if "$program" --$kind --seeds "$1"; then
            passed=$((passed + 1))
        else
            add_failure "sim $kind"
        fi
    done
}

# As many processes as processors, with a part of the schedules each; each needs 2 GiB of memory.
do_crowd() # N
{
    local dir=build$suffix n=$1 k children=() program status=0
    program=$dir/tests/session/test_session_crowd_many
    [[ $n =~ ^[1-9][0-9]*$ ]] || { add_failure "crowd $n: want how many schedules"; return; }
    configure "$dir" release && build "$dir" tests/session/test_session_crowd_many || return
    say "$n schedules of 100,000 ranks"
    for ((k = 0; k < $(nproc) && k < n; k++)); do
        "$program" $(((n + $(nproc) - 1 - k) / $(nproc))) $((1 + k * n)) &
        children+=($!)
    done
    for k in "${children[@]}"; do wait "$k" || status=1; done
    if [ $status = 0 ]; then passed=$((passed + 1)); else add_failure crowd; fi
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

do_driver_lost() # TIMES
{
    [[ $1 =~ ^[1-9][0-9]*$ ]] || { add_failure "driver_lost $1: want how many times"; return; }
    configure_and_build "build$suffix" release || return
    say "the driver is killed $1 times in each phase"
    export DPTRAIN_KILLS=$1 DPDRIVER=$PWD/build$suffix/driver/dpdriver \
        DPFOLLOWER=$PWD/build$suffix/follower/dpfollower
    if python3 -u tests/e2e/test_driver_lost.py DriverLost.test_killed_in_each_phase \
        DriverLost.test_killed_beside_a_standby &&
        python3 -u tests/e2e/test_standby.py Standby.test_frozen_for_half_a_minute; then
        passed=$((passed + 1))
    else
        add_failure driver_lost
    fi
}

do_networks() # MINUTES
{
    local dir=build$suffix
    configure "$dir" release && build "$dir" driver/dpdriver follower/dpfollower \
        tests/e2e/router || return
    say "each network for $1 minutes"
    if DPDRIVER=$PWD/$dir/driver/dpdriver DPFOLLOWER=$PWD/$dir/follower/dpfollower \
        DPTRAIN_ROUTER=$PWD/$dir/tests/e2e/router python3 -u tests/e2e/test_networks.py "$1"; then
        passed=$((passed + 1))
    else
        add_failure networks
    fi
}

# The tests sleep most of the time, so many run side by side.  None is run again: a test that fails
# once has shown what was looked for.
do_shake() # TIMES [PATTERN...]
{
    local times=$1 names=() dir=build$suffix max_flaky=-1
    shift
    [[ $times =~ ^[1-9][0-9]*$ ]] || { add_failure "shake $times: want how many times"; return; }
    configure_and_build "$dir" release || return
    if [ $# -gt 0 ]; then
        mapfile -t names < <(names_like "$dir" "$@")
        [ ${#names[@]} -gt 0 ] || { add_failure "no test is named like: $*"; return; }
    fi
    LD_PRELOAD=$PWD/$dir/tests/shake/shake.so run_at_once "$dir" --repeat "$times" \
        --num-processes $((3 * $(nproc))) --timeout-multiplier 6 --no-suite once --no-suite long \
        -- "${names[@]}"
}

# Each of these takes many minutes by qemu, so they run only if they are asked for by name.  The
# first three train LeNet, whose convolutions oneDNN computes by plain C on arm64: 2 s a step.  The
# threads of the last one take turns by sched_yield.
long_on_arm64='train/equal train/forms train/shares coll/nccl_stop'

# qemu-user takes 5 to 30 times as long as the processor.
do_arm64() # [PATTERN...]
{
    local dir=build-arm64$suffix folder=build-arm64-root tool name names
    for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64-static; do
        command -v $tool >/dev/null && continue
        skipped=$((skipped + 1))
        echo "skipped: arm64: no $tool here: deploy/deps.sh --arm64"
        return
    done
    deploy/arm64.sh $folder || { add_failure "deploy/arm64.sh $folder"; return; }
    configure "$dir" release --cross-file $folder/arm64.ini || return
    mapfile -t names < <(names_of_arm64 "$dir" "$@")
    [ ${#names[@]} -gt 0 ] || { add_failure "no test is named like: $*"; return; }
    build_for "$dir" "${names[@]}" || return
    emulator=(tests/emulated.sh $folder/root)
    DPTRAIN_PATIENCE=600 run_at_once "$dir" --timeout-multiplier 8 -- "${names[@]}"
    [ $# = 0 ] || return
    for name in $long_on_arm64; do
        skipped=$((skipped + 1))
        echo "skipped: $name: many minutes by qemu; tests/run.sh arm64 $name"
    done
}

names_of_arm64() # DIR [PATTERN...]
{
    local dir=$1
    shift
    if [ $# -gt 0 ]; then
        names_like "$dir" "$@"
    else
        # shellcheck disable=SC2086 # several words
        names_without "$dir" once long e2e | grep -vxF "$(printf '%s\n' $long_on_arm64)"
    fi
}

do_format()
{
    say "format"
    command -v clang-format >/dev/null ||
        { add_failure "format: no clang-format; deploy/deps.sh --tests has it"; return; }
    if git ls-files -z '*.c' '*.h' '*.cc' '*.cu' '*.cuh' |
        xargs -0 -r -n 50 -P "$(nproc)" clang-format --dry-run -Werror; then
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

# Runs the programs of a bundle (deploy/bundle.sh) in it, else those of the release build.
do_gpu()
{
    if [ -x bin/dpdriver ]; then
        exec python3 tests/gpu/suite.py --bundle . "$@"
    fi
    case " $* " in
    *" --list "* | *" --help "*) exec python3 tests/gpu/suite.py "$@" ;;
    esac
    configure "build$suffix" release >&2 && build "build$suffix" gpu-suite driver/dpdriver \
        follower/dpfollower >&2 || finish
    exec python3 tests/gpu/suite.py --build "build$suffix" "$@"
}

# In a bundle, where nothing is built: runs the tests of tests/list whose names match.
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

# Run a part and say its result, not in the form of the closing line, which has the total.
part() # NAME FUNCTION [ARGUMENT...]
{
    local p=$passed f=$failed s=$skipped start=$SECONDS
    "${@:2}"
    echo "-- $1 took $((SECONDS - start)) s:" \
        "passed $((passed - p)), failed $((failed - f)), skipped $((skipped - s))"
}

# Build these parts in the background.  Tests that wait for deadlines leave the processors idle half
# of the time, and the builds take that time: they have the lowest priority.  They are a process
# group of their own, which `finish` can end.
start_builder() # PART...
{
    build_logs=$(mktemp -d)
    set -m
    coproc BUILDER { build_parts "$@"; }
    set +m
    builder=$BUILDER_PID
    exec {built}<&"${BUILDER[0]}" # bash closes its own descriptor when the process ends
}

# Writes a line for each part: the failure, or nothing.
build_parts() # PART...
{
    local part failures=() # not those of format, which the parent has counted
    renice -n 19 "$BASHPID" >/dev/null
    for part; do
        "build_$part" >"$build_logs/$part" 2>&1
        echo "${failures[*]-}"
        failures=()
    done
}

# Wait until the builder has built the part, then run its tests.
test_built() # PART [ARGUMENT...]
{
    local failure
    read -r failure <&"$built" || failure="the builder has ended before $1"
    cat "$build_logs/$1"
    if [ -n "$failure" ]; then
        add_failure "$failure"
        unbuilt+=" $1"
    else
        "test_$1" "${@:2}"
    fi
}

# The tests that want no other test beside them want no build there, either.
test_alone() # PART...
{
    local part turn=alone
    for part; do [[ " $unbuilt " == *" $part "* ]] || "test_$part"; done
}

do_all() # SECONDS PART...
{
    local part turn=beside unbuilt= seconds=$1
    shift
    part format do_format
    start_builder "$@" fuzz
    for part; do part "$part" test_built "$part"; done # tests/lint is in gcc's
    part fuzz test_built fuzz "$seconds" -seed=1 # the same inputs, as far as the clock lets it
    part 'those alone' test_alone "$@"
    printf '\nthe 15 slowest tests, in seconds:\n'
    sort -rn "$times" | head -n 15
}

tell_flaky()
{
    local entry
    for entry in "${flaky[@]}"; do
        printf '\nthe end of %s:\n' "${entry#*$'\t'}"
        tail -n 40 "${entry#*$'\t'}"
    done
    printf '\nflaky (failed once, then passed twice by itself; to be mended before new work):\n'
    for entry in "${flaky[@]}"; do
        echo "    ${entry%$'\t'*}: its first output is in ${entry#*$'\t'}"
    done
}

finish()
{
    [ -z "$builder" ] || { kill -- "-$builder"; rm -rf "$build_logs"; } 2>/dev/null
    rm -f "$times"
    [ ${#flaky[@]} = 0 ] || tell_flaky
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

# For the tests that compare with PyTorch, torchvision and transformers: a Python with these.  Where
# it cannot be had, and with DPTRAIN_SKIP_DEPS=1, those tests are skipped and say so.  It is
# installed only if `install` is given, since it takes gigabytes.
find_torch() # [install]
{
    local venv=$PWD/build-torch wanted=tests/interop/requirements.txt
    [ -z "${DPTRAIN_TORCH_PYTHON:-}${DPTRAIN_SKIP_DEPS:-}" ] || return 0
    if ! cmp -s $wanted "$venv/installed.txt"; then
        [ "${1:-}" = install ] || return 0
        say "installing PyTorch, torchvision and transformers into build-torch, once"
        { /usr/bin/python3 -m venv --clear "$venv" &&
            "$venv/bin/python" -m pip install -q --retries 1 -r $wanted; } \
            >"$venv.log" 2>&1 </dev/null ||
            { echo "run.sh: no PyTorch: $(tail -n 1 "$venv.log")"; rm -rf "$venv"; return 0; }
        rm -f "$venv.log"
        cp $wanted "$venv/installed.txt"
    fi
    export DPTRAIN_TORCH_PYTHON=$venv/bin/python
}

# For backend/onednn3: a oneDNN 3.x beside Debian's 2.x.  Where it cannot be had, and with
# DPTRAIN_SKIP_DEPS=1, that test is skipped and says so.
find_onednn3()
{
    local venv=$PWD/build-onednn3
    [ -z "${DPTRAIN_ONEDNN3:-}${DPTRAIN_SKIP_DEPS:-}" ] || return 0
    if [ ! -f "$venv/include/oneapi/dnnl/dnnl_version.h" ]; then
        { /usr/bin/python3 -m venv "$venv" &&
            "$venv/bin/python" -m pip install -q --retries 1 onednn-devel-cpu-gomp; } \
            >"$venv.log" 2>&1 </dev/null ||
            { echo "run.sh: no oneDNN 3.x: $(tail -n 1 "$venv.log")"; return 0; }
        rm -f "$venv.log"
    fi
    export DPTRAIN_ONEDNN3=$venv
}

times=$(mktemp)
# A bundle has no deps.sh, and needs none.
if [ "${DPTRAIN_SKIP_DEPS:-}" != 1 ] && [ -f deploy/deps.sh ]; then
    deploy/deps.sh --tests || { add_failure deps.sh; finish; }
fi

if [ "${1:-}" = --werror ]; then
    suffix=-werror
    options+=(-Dwerror=true)
    # So these objects also serve the builds of chroot/quickstart, whose warnings are no errors.
    export CCACHE_IGNOREOPTIONS=-Werror
    shift
fi
trap 'add_failure interrupted; finish' INT TERM

what=${1:-}
if [ -x bin/dpdriver ] && [ "$what" != gpu ] && [[ $what != -* ]]; then
    do_bundled "$@"
    finish
fi
case $what in
lint | format | sim | crowd | soak | driver_lost | networks | arm64 | gpu | clang | tsan | fuzz) ;;
-*) ;;
'') find_torch ;;
*) find_torch install ;;
esac
case $what in
gcc | all | ci) find_onednn3 ;;
esac
case ${DPTRAIN_SKIP_DEPS:-}$what in
arm64) deploy/deps.sh --arm64 || echo "run.sh: a cross build for arm64 lacks packages" >&2 ;;
cluster | all) deploy/deps.sh --cluster || echo "run.sh: some launchers are missing" >&2 ;;
esac
case $what in
'') do_default ;;
all) do_all "${2:-20}" gcc clang asan tsan ;;
ci) is_ci=yes && do_all "${2:-20}" gcc asan tsan ;;
fuzz) do_part fuzz "${2:-20}" ;;
sim) do_sim "${2:-1000000}" ;;
crowd) do_crowd "${2:-1000}" ;;
cluster) do_named e2e/launch e2e/slurm e2e/hosts e2e/ssh e2e/kubernetes ;;
soak) do_soak "${2:-30}" ;;
driver_lost) do_driver_lost "${2:-20}" ;;
networks) do_networks "${2:-5}" ;;
shake) do_shake "${2:-10}" "${@:3}" ;;
arm64) shift && do_arm64 "$@" ;;
gpu) shift && do_gpu "$@" ;;
gcc | clang | asan | tsan) do_part "$what" ;;
format | lint)
    for what; do
        case $what in
        format | lint) do_$what ;;
        *) add_failure "$what: want format and lint alone" ;;
        esac
    done
    ;;
-h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' tests/run.sh && exit ;;
-*) echo "run.sh: unknown option $what; tests/run.sh --help" >&2 && exit 2 ;;
*) do_named "$@" ;;
esac
finish
