#!/usr/bin/env bash
# Makes this checkout ready: `scripts/setup.sh` for running frazil, `scripts/setup.sh --dev` for its tests as well.
#
# Safe to repeat: a stamp in .venv holds the hash of everything that set-up depends on, and while it matches there is
# nothing to do. Each step is one timed line; what the steps print goes to .setup.log.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

venv=.venv
log=.setup.log
profile=run
lock=requirements.txt
if [[ ${1:-} == --dev ]]; then
    profile=dev
    lock=requirements-dev.txt
fi

# ---- what the terminal shows -------------------------------------------------------------------------------------

die() { # die MESSAGE TRY...
    printf 'Error: %s\n' "$1" >&2
    shift
    printf 'Try:   %s\n' "$@" >&2
    exit 1
}

step() { # step LABEL TRY COMMAND...: run the command with its output in the log, show one line and the time it took
    local label=$1 try=$2 began=$SECONDS started=${EPOCHREALTIME:-$SECONDS} ticker='' status=0 said
    shift 2
    printf '\n== %s: %s\n' "$label" "$*" >>"$log"
    said=$(wc -l <"$log")
    if [[ -t 1 ]]; then
        (
            while :; do
                printf '\r  … %-46s %4d s' "$label" $((SECONDS - began))
                sleep 1
            done
        ) &
        ticker=$!
    fi
    # The lock (fd 9) stays with this script: a server that a package starts on installation would hold it for ever.
    "$@" >>"$log" 2>&1 </dev/null 9>&- || status=$?
    if [[ -n $ticker ]]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        printf '\r'
    fi
    if ((status != 0)); then
        printf '  ✗ %s\n' "$label"
        tail -n "+$((said + 1))" "$log" | tail -n 15 | sed 's/^/    /' >&2
        die "\"$label\" failed (exit $status); everything it said is in $log." "$try"
    fi
    printf '  ✓ %-46s %6s s\n' "$label" \
        "$(awk -v a="$started" -v b="${EPOCHREALTIME:-$SECONDS}" 'BEGIN { printf "%.1f", b - a }')"
}

retried() { # retried COMMAND...: three times in all, for what a network that stumbles may break
    local pause
    for pause in 5 30; do
        "$@" && return
        printf '== again in %s s: %s\n' "$pause" "$*"
        sleep "$pause"
    done
    "$@"
}

# ---- system packages ---------------------------------------------------------------------------------------------

as_root() {
    if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

may_install() { # is this a Debian-like system where we are allowed to install packages without asking?
    command -v apt-get >/dev/null || return 1
    ((EUID == 0)) || sudo -n true 2>/dev/null
}

system_install() { # the package lists of a fresh machine are empty or old, so refresh them first
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
    as_root "${apt[@]}" update && as_root "${apt[@]}" install -y --no-install-recommends "$@"
}

need_package() { # need_package LABEL WHAT_IS_MISSING PACKAGE
    may_install || die "$2" "sudo apt-get install $3   (or your system's package of that name), then run this again"
    step "$1" "run by hand: sudo apt-get install $3" retried system_install "$3"
}

# ---- Python ------------------------------------------------------------------------------------------------------

python_fits() { # by running it: a version manager's stand-in exists for versions that are not installed
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3}; do
        if python_fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

make_environment() {
    local python version
    if python_fits "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python) || die "no Python 3.11 or 3.12 found (looked for: ${PYTHON:-python3.11, python3.12, python3})." \
        "install Python 3.11 (Debian: sudo apt-get install python3.11 python3.11-venv)" \
        "or name one: make setup PYTHON=/path/to/python3.11"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        need_package "Python's venv module" "$python has no venv module." "python$version-venv"
    fi
    step "Python $version environment in $venv" "rm -rf $venv, then run this again" "$python" -m venv --clear "$venv"
}

install_packages() { # joined by &&: a failing command in a function that is tested does not end the function
    # The installer and the build backend come first, out of the same lock. Then nothing needs to be resolved (the lock
    # is complete: --no-deps) and nothing is built with tools that no hash covers (--no-build-isolation; Spark comes
    # as source). pip is slower, but knows the machine's pip.conf: it takes over where uv does not run or not get through.
    local pip=("$venv/bin/python" -m pip install --disable-pip-version-check --no-deps)
    # Bytecode now, not at the first start: the gateway must be up in three seconds.
    local uv=("$venv/bin/uv" pip install --python "$venv/bin/python" --no-deps --no-build-isolation --compile-bytecode)
    if [[ -s /etc/ssl/certs/ca-certificates.crt ]]; then
        uv+=(--system-certs) # behind a company's proxy only the system knows whom to trust
    fi
    awk '/^[a-z]/ { on = /^(uv|setuptools)==/ } on' "$lock" >"$venv/installer.txt" &&
        "${pip[@]}" --require-hashes -r "$venv/installer.txt" &&
        { "${uv[@]}" --require-hashes -r "$lock" || "${pip[@]}" --no-build-isolation --require-hashes -r "$lock"; } &&
        { "${uv[@]}" --editable . || "${pip[@]}" --no-build-isolation --editable .; }
}

# ---- Java and its jars -------------------------------------------------------------------------------------------

java_program() { # Spark looks at JAVA_HOME first, so we do
    if [[ -n ${JAVA_HOME:-} ]]; then echo "$JAVA_HOME/bin/java"; else command -v java; fi
}

java_fits() {
    local java major
    java=$(java_program) && [[ -x $java ]] || return 1
    major=$("$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1)
    [[ -n $major ]] && ((major >= 17))
}

need_java() {
    java_fits && return
    need_package "Java 17" "Spark needs Java 17 or newer, and $(java_program || echo java) is missing or older." \
        openjdk-17-jre-headless
    java_fits || die "Java 17 is installed, but ${JAVA_HOME:+JAVA_HOME or }the java on the PATH leads elsewhere." \
        "export JAVA_HOME=$(echo /usr/lib/jvm/java-17-openjdk-*), then run this again"
}

# ---- PostgreSQL, for the tests only ------------------------------------------------------------------------------

postgres_present() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

need_postgres() {
    postgres_present && return
    need_package "PostgreSQL server" "the tests start a real PostgreSQL server, and there is none." postgresql
}

# ---- the stamp ---------------------------------------------------------------------------------------------------

fingerprint() { # fingerprint PROFILE LOCK
    "$venv/bin/python" - "$1" "$2" pyproject.toml scripts/setup.sh scripts/fetch_jars.py frazil/pipeline/session.py \
        frazil/pipeline/class_archive.py <<'PY'
import hashlib, pathlib, sys
digest = hashlib.sha256(f"{sys.argv[1]} {sys.version}".encode())
for path in map(pathlib.Path, sys.argv[2:]):
    digest.update(path.read_bytes() if path.exists() else b"absent")
print(digest.hexdigest())
PY
}

ready() { # ready PROFILE LOCK: the stamp matches, and what lives outside of .venv is still there
    local jar
    [[ -x $venv/bin/frazil && -s $venv/setup.$1.jars ]] || return 1
    [[ $(cat "$venv/setup.$1.stamp" 2>/dev/null) == "$(fingerprint "$1" "$2")" ]] || return 1
    while read -r jar; do
        [[ -f $jar ]] || return 1
    done <"$venv/setup.$1.jars"
    [[ -x $(java_program) ]] || return 1
    [[ $1 != dev ]] || postgres_present
}

already_done() {
    ready "$profile" "$lock" || { [[ $profile == run ]] && ready dev requirements-dev.txt; }
}

# ---- the story ---------------------------------------------------------------------------------------------------

already_done && exit 0
if command -v flock >/dev/null; then # two set-ups at a time would undo each other's work: the second one waits
    exec 9>.setup.lock
    flock 9
    already_done && exit 0
fi

echo "Setting up frazil (details in $log)"
: >"$log"
jar_sets=()
make_environment
step "Python packages ($(grep -c '==' "$lock"), locked)" "check the network, then run this again" retried install_packages
need_java
if [[ $profile == dev ]]; then
    need_postgres
    jar_sets=(--s3 --postgres)
fi
step "Spark jars" "check the network, then run this again" \
    retried "$venv/bin/python" scripts/fetch_jars.py ${jar_sets[@]+"${jar_sets[@]}"} --list "$venv/setup.$profile.jars"
# Only a quicker start: where it cannot be made, frazil runs without.
step "Spark class archive" "" bash -c "$venv/bin/python -m frazil.pipeline.class_archive || true"
fingerprint "$profile" "$lock" >"$venv/setup.$profile.stamp"
