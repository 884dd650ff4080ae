#!/usr/bin/env bash
# fail_always: tests/run.sh must report what fails.  It runs here on small projects made to fail.
set -u
runner=$(cd "$(dirname "$0")/.." && pwd)/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_bad=0

# expect NAME STATUS LAST_LINE TEXT < meson.build: run.sh on that project must say so
expect()
{
    local name=$1 status=$2 last=$3 text=$4 got
    mkdir -p "$work/$name/tests"
    cp "$runner" "$work/$name/tests/run.sh"
    echo "option('tests', type: 'feature')" >"$work/$name/meson_options.txt"
    { echo "project('$name')" && echo "sh = find_program('sh')" && cat; } >"$work/$name/meson.build"
    DPTRAIN_SKIP_DEPS=1 "$work/$name/tests/run.sh" >"$work/$name/log" 2>&1
    got=$?
    if [ $got != "$status" ] || [ "$(tail -n 1 "$work/$name/log")" != "$last" ] ||
        ! grep -qF -- "$text" "$work/$name/log"; then
        echo "$name: want status $status, '$text' and '$last'; got status $got and:"
        cat "$work/$name/log"
        n_bad=$((n_bad + 1))
    fi
}

expect mixed 1 '1 passed, 3 failed, 1 skipped' 'fail_always was here' <<'MESON'
test('pass', sh, args: ['-c', 'exit 0'])
test('fail_always', sh, args: ['-c', 'echo fail_always was here; exit 1'])
test('dies', sh, args: ['-c', 'kill -9 $$'])
test('hangs', sh, args: ['-c', 'sleep 60'], timeout: 1)
test('skips', sh, args: ['-c', 'exit 77'])
MESON

expect names 1 '0 passed, 1 failed' '    room/fail_always (build)' <<'MESON'
test('room/fail_always', sh, args: ['-c', 'exit 1'])
MESON

expect green 0 '2 passed, 0 failed' 'testing build' <<'MESON'
test('pass', sh, args: ['-c', 'exit 0'])
test('again', sh, args: ['-c', 'exit 0'])
MESON

expect no_build 1 '0 passed, 1 failed' 'build of build' <<'MESON'
custom_target('broken', output: 'x', command: [sh, '-c', 'exit 1'], build_by_default: true)
test('pass', sh, args: ['-c', 'exit 0'])
MESON

expect no_setup 1 '0 passed, 1 failed' 'the remedy' <<'MESON'
error('the remedy')
MESON

expect no_test 1 '0 passed, 1 failed' 'no test ran' </dev/null

# In a bundle there is a list instead of a build; patterns choose from it.
bundle=$work/bundle
mkdir -p "$bundle/tests" "$bundle/bin"
cp "$runner" "$bundle/tests/run.sh"
printf '#!/bin/sh\n' >"$bundle/bin/dpdriver" && chmod +x "$bundle/bin/dpdriver"
{
    printf "room/pass\t9\tsh -c 'exit 0'\n"
    printf "room/env\t9\tWANTED=yes sh -c '[ \$WANTED = yes ] && [ -x \"\$DPDRIVER\" ]'\n"
    printf "room/fail\t9\tsh -c 'echo fail_always was here; exit 1'\n"
    printf "slow/hangs\t1\tsleep 60\n"
    printf "slow/skips\t9\tsh -c 'exit 77'\n"
} >"$bundle/tests/list"

expect_bundled() # STATUS LAST_LINE TEXT PATTERN...
{
    local status=$1 last=$2 text=$3 got
    shift 3
    "$bundle/tests/run.sh" "$@" >"$bundle/log" 2>&1
    got=$?
    if [ $got != "$status" ] || [ "$(tail -n 1 "$bundle/log")" != "$last" ] ||
        ! grep -qF -- "$text" "$bundle/log"; then
        echo "bundle $*: want status $status, '$text' and '$last'; got status $got and:"
        cat "$bundle/log"
        n_bad=$((n_bad + 1))
    fi
}

expect_bundled 1 '2 passed, 2 failed, 1 skipped' 'fail_always was here'
expect_bundled 0 '2 passed, 0 failed' 'ok: room/env' room/pass 'room/e*'
expect_bundled 0 '0 passed, 0 failed, 1 skipped' 'skipped: slow/skips' slow/skips
expect_bundled 1 '0 passed, 1 failed' 'no test is named like: nothing' nothing

exit $((n_bad > 0))
