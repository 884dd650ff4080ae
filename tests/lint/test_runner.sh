#!/usr/bin/env bash
# fail_always: tests/run.sh must report every failure.  It runs here on small projects that fail,
# and on some whose tests fail only now and then.
set -u
runner=$(cd "$(dirname "$0")/.." && pwd)/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_bad=0
# Builds in the background would get no processor beside other tests, which have them all.
mkdir "$work/path" && printf '#!/bin/sh\n' >"$work/path/renice" && chmod +x "$work/path/renice"
PATH=$work/path:$PATH

# expect NAME STATUS LAST_LINE TEXT [ARGUMENT...] < meson.build: run.sh on that project must say
# TEXT, close with LAST_LINE and end with STATUS
languages=
expect()
{
    local name=$1 status=$2 last=$3 text=$4 got
    shift 4
    mkdir -p "$work/$name/tests"
    cp "$runner" "$work/$name/tests/run.sh"
    {
        echo "option('tests', type: 'feature')" && echo "option('fuzz', type: 'feature')"
        echo "option('gpu_arch', type: 'array')"
    } >"$work/$name/meson_options.txt"
    { echo "project('$name'$languages)" && echo "sh = find_program('sh')" && cat; } \
        >"$work/$name/meson.build"
    DPTRAIN_SKIP_DEPS=1 "$work/$name/tests/run.sh" "$@" >"$work/$name/log" 2>&1 </dev/null
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
test('room/fail_always', sh, args: ['-c', 'echo fail_always was here; exit 1'])
test('dies', sh, args: ['-c', 'kill -9 $$'])
test('hangs', sh, args: ['-c', 'sleep 60'], timeout: 1)
test('skips', sh, args: ['-c', 'exit 77'])
MESON

if ! grep -qxF '    room/fail_always (build)' "$work/mixed/log"; then
    echo "mixed: the last lines must name room/fail_always and its folder"
    n_bad=$((n_bad + 1))
fi

expect no_build 1 '0 passed, 1 failed' 'build of build' <<'MESON'
custom_target('broken', output: 'x', command: [sh, '-c', 'exit 1'], build_by_default: true)
test('pass', sh, args: ['-c', 'exit 0'])
MESON

# As ccache does with an object that was compiled without -Werror.
expect warned 1 '0 passed, 1 failed' 'build of build-werror' --werror <<'MESON'
custom_target('warned', output: 'x', build_by_default: true, command: [sh, '-c',
  'touch @OUTPUT@; echo "a.c:1:1: warning: unused variable [-Wunused-variable]" >&2'])
test('pass', sh, args: ['-c', 'exit 0'])
MESON

expect no_setup 1 '0 passed, 1 failed' 'the remedy' <<'MESON'
error('the remedy')
MESON

expect no_test 1 '0 passed, 1 failed' 'no test ran' </dev/null

# counting NAME SCRIPT: a test that counts its runs in the file NAME; SCRIPT finds the number in $n
counting()
{
    echo "test('room/$1', sh, args: ['-c', 'echo >>$1; n=\$(wc -l <$1); $2'])"
}
first_fails='[ $n != 1 ] || { echo first time; exit 1; }'

expect flaky 0 '4 passed, 0 failed' '    room/b: its first output is in build/flaky/' <<MESON
test('pass', sh, args: ['-c', 'exit 0'])
$(for name in a b c; do counting $name "$first_fails"; done)
MESON
for name in a b c; do
    if ! grep -q 'first time' "$work/flaky/build/flaky/room_$name.txt" ||
        [ "$(wc -l <"$work/flaky/build/$name")" != 3 ]; then
        echo "flaky: room/$name must run three times, and its first output must be kept"
        n_bad=$((n_bad + 1))
    fi
done

# With suites meson's log calls a test "PROJECT:SUITE / NAME".
expect suites 0 '2 passed, 0 failed' '    room/a: its first output is in build/flaky/' <<MESON
test('pass', sh, args: ['-c', 'exit 0'], suite: ['e2e', 'once'])
$(counting a "$first_fails" | sed "s/)\$/, suite: 'once')/")
MESON
if ! grep -q 'first time' "$work/suites/build/flaky/room_a.txt"; then
    echo "suites: the first output of room/a must be kept"
    n_bad=$((n_bad + 1))
fi

expect four_flaky 1 '1 passed, 4 failed' '    room/d (build)' <<MESON
test('pass', sh, args: ['-c', 'exit 0'])
$(for name in a b c d; do counting $name "$first_fails"; done)
MESON

expect fails_again 1 '1 passed, 1 failed' '    room/a (build)' <<MESON
$(counting a '[ $n = 2 ] || exit 1')
$(counting b "$first_fails")
MESON

# A test runs again with no test beside it: the two would see each other's file.
expect alone 0 '2 passed, 0 failed' '    room/b: its first output' <<MESON
$(for name in a b; do counting $name "$first_fails; ! ls beside.* && touch beside.$name &&
 sleep 0.3 && rm beside.$name"; done)
MESON

# Tests of a high priority start first, also where they are named.  As many as can run at once wait
# here for each other; if the other test began before one of them, it would run too early.
n=$((3 * $(nproc)))
expect priority 0 "$((n + 1)) passed, 0 failed" 'testing build' '*' <<MESON
wait = 'for i in \$(seq 600); do [ \$(ls begun.* | wc -l) != $n ] || exit 0; sleep 0.1; done; false'
foreach i : range($n)
  test('z@0@'.format(i), sh, args: ['-c', '>begun.@0@; '.format(i) + wait], priority: 10,
    timeout: 100)
endforeach
test('a', sh, args: ['-c', '[ \$(ls begun.* | wc -l) = $n ] && ! ls early || { >early; exit 1; }'])
MESON

# All parts.  One cannot be built, and the others are tested all the same.  The tests that want to
# be alone run when everything is built.
all=$work/all
mkdir -p "$all/tests/fuzz/corpus/x"
echo >"$all/tests/fuzz/corpus/x/seed"
echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' >"$all/tests/fuzz/fuzz_x.c"
echo "executable('fuzz_x', 'fuzz_x.c', link_args: '-fsanitize=fuzzer')" \
    >"$all/tests/fuzz/meson.build"
git -C "$all" init -q && git -C "$all" add tests
languages=", 'c'"
expect all 1 '8 passed, 1 failed' '    meson setup of build-clang' all 1 <<'MESON'
if meson.get_compiler('c').get_id() == 'clang' and get_option('b_sanitize') == 'none'
  error('not by clang')
endif
order = meson.project_source_root() / 'order'
test('base/beside', sh, args: ['-c', 'sleep 0.3; echo beside >>' + order])
test('base/alone', sh, args: ['-c', 'echo alone >>' + order], is_parallel: false)
if get_option('fuzz').enabled()
  subdir('tests/fuzz')
endif
MESON
languages=
if [ "$(uniq -c "$all/order" | tr -s ' \n' ' ')" != ' 3 beside 3 alone ' ]; then
    echo "all: want three tests beside others, then three alone; got:" && cat "$all/order"
    n_bad=$((n_bad + 1))
fi

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
