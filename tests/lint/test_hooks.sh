#!/usr/bin/env bash
# The hooks of tests/hooks, and what they run: on a small tree of its own, git commits what keeps
# the rules, and refuses sources out of form, a breach of tests/lint, and a long subject.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for tool in git clang-format; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
mkdir -p "$work/tests"
cp "$top/.clang-format" "$work/" && cp -r "$top/tests/run.sh" "$top/tests/hooks" "$work/tests/"
mkdir "$work/tests/lint" && cp "$top/tests/lint/lint.py" "$work/tests/lint/"
mkdir "$work/driver" && cat >"$work/driver/main.c" <<'C'
/* main - a source that keeps
 * the rules. */
int x;
C
cd "$work" || exit 1
git init -q . && git config core.hooksPath tests/hooks
git config user.name a && git config user.email a
n_bad=0

# commit STATUS TEXT SUBJECT: git commit of all there is must end so, and say TEXT
commit()
{
    local got
    git add -A
    git commit -q --allow-empty -m "$3" >log.txt 2>&1
    got=$?
    if [ $got != "$1" ] || ! grep -qF -- "$2" log.txt; then
        echo "commit '$3': want status $1 and '$2'; got status $got and:" && cat log.txt
        n_bad=$((n_bad + 1))
    fi
    rm -f log.txt
}

commit 0 '2 passed, 0 failed' 'tests: a tree that keeps the rules'
commit 0 '2 passed' "$(printf 'x%.0s' {1..72})"
commit 1 'commit-msg: 73 characters, at most 72' "$(printf 'x%.0s' {1..73})"
commit 0 '2 passed' "$(printf 'short\n\n%s' "$(printf 'y%.0s' {1..90})")"
echo 'int  x ;' >tests/a.c
commit 1 'format: clang-format -i the files above' 'tests: out of form'
echo 'int x; // TO''DO' >tests/a.c
commit 1 '    lint' 'tests: a breach'
git rm -qf tests/a.c
tests/run.sh format nothing >log.txt && n_bad=$((n_bad + 1))
grep -q 'nothing: want format and lint alone' log.txt || { cat log.txt; n_bad=$((n_bad + 1)); }
echo "$n_bad wrong"
[ $n_bad = 0 ]
