# debian_packages.sh - the parts that debian.sh and debian_cuda.sh share: packages of deploy/debian
# are built, checked, and installed in an empty Debian.  It is sourced behind debian_root.sh, and
# defines functions.
old_version=0.0.1

# Builds the packages with these settings of the environment beside the usual ones.
build_here() # FOLDER [SETTING...]
{
    command -v dh >/dev/null && command -v dpkg-buildpackage >/dev/null ||
        skip 'no debhelper: apt-get install debhelper dpkg-dev'
    env DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)" "${@:2}" \
        "$source/deploy/debian/build" "$1" >"$1/build.log" 2>&1 ||
        { tail -n 40 "$1/build.log" && fail 'deploy/debian/build'; }
}

check_lint() # FOLDER
{
    local said
    if ! command -v lintian >/dev/null; then
        echo 'no lintian here: not asked'
        return
    fi
    said=$(lintian --allow-root --fail-on error,warning --display-info --tag-display-limit 0 \
        "$1"/dptrain_*.changes 2>&1) || fail "lintian: $said"
    [ -z "$said" ] || fail "lintian: $said"
    echo 'lintian: nothing'
}

# The packages as an older version, which these follow.
make_old() # FOLDER OLD PACKAGE...
{
    local deb folder name
    mkdir -p "$2"
    for name in "${@:3}"; do
        deb=$(echo "$1/${name}"_*.deb)
        folder=$2/$name
        dpkg-deb -R "$deb" "$folder" &&
            sed -i "s/^Version: .*/Version: $old_version/
                s/(= $(dpkg-deb -f "$deb" Version))/(= $old_version)/" "$folder/DEBIAN/control" &&
            dpkg-deb -Zgzip -b "$folder" "$2/" >/dev/null && rm -r "$folder" ||
            fail "an older $deb"
    done
}

# All that has the name of a program or of the packages.
find_ours() # ROOT
{
    inside "$1" find / -xdev \
        \( -path /proc -o -path /packages -o -path /old -o -path /tmp \) -prune -o \
        \( -iname '*dptrain*' -o -name '*dpdriver*' -o -name '*dpfollower*' \
        -o -name 'dpstandby*' \) -print
}

expect_version() # ROOT VERSION PACKAGE...
{
    local got name
    for name in "${@:3}"; do
        got=$(inside "$1" dpkg-query -W -f '${Version} ${db:Status-Status}\n' "$name") || got=none
        [ "$got" = "$2" ] || fail "$name is $got, want $2"
    done
}

install_folder() # ROOT FOLDER
{
    inside "$1" sh -ec 'apt-get -qq install -y --no-install-recommends /"$1"/*.deb' sh "$2" \
        >"$1/apt.log" 2>&1 || { tail -n 30 "$1/apt.log" && fail "apt-get install $2"; }
}
