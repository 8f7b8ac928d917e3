# The demo: a real Codex home goes in, answers by meaning come out. It keeps to a data folder of its own.
set -eu
cd "$(dirname "$0")/.."
export MEMSVC_DATA_DIR="$PWD/.demo"

# Show a command as one would type it, then run it.
run() {
    printf '\n$'
    for word in "$@"; do
        case $word in
            *" "*) printf ' "%s"' "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$@"
}

# The clean-up is not part of what is shown, but nothing may stay behind, whatever happens.
trap 'memsvc down >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM
memsvc down >/dev/null 2>&1 || true
[ ! -L "$MEMSVC_DATA_DIR/postgres" ] || rm -rf "$(readlink -f "$MEMSVC_DATA_DIR/postgres")" # see docs/operations.md
rm -rf "$MEMSVC_DATA_DIR"

run memsvc up
run memsvc import codex tests/data/codex/0.135.0/05-checkpointed
run memsvc status
run memsvc recall --scope all --limit 2 "why did listing trees time out"
run memsvc recall --scope all --limit 2 "how often do we back up the database, and how long are backups kept"
run memsvc recall --scope all --limit 2 "what should I check before flashing the board"
run memsvc down
