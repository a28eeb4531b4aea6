#!/bin/bash
# The job of a soak round. What it does it also writes into a journal of its own, which gpuctl does
# not know, so that the round knows the truth.
#   job.sh JOURNAL LINES PAUSE_S CODE ON_TERM FAILURES
# ON_TERM: save (exits with 3), ignore, default. FAILURES: so many first attempts exit with 75.
journal=$1 lines=$2 pause=$3 code=$4 on_term=$5 failures=$6
attempt=$GPUCTL_ATTEMPT
exec 9>> "$journal.lock" 8<> "$journal.fifo"
flock -n 9 || echo "overlap $attempt $$" >> "$journal"
echo "start $attempt $$" >> "$journal"
finish() {
  echo "end $attempt $1" >> "$journal"
  exit "$1"
}
case $on_term in
  save) trap 'echo "term $attempt" >> "$journal"; echo "saved $attempt"; finish 3' TERM ;;
  ignore) trap '' TERM ;;
esac
mkdir -p out
if [ "$failures" -ge "$attempt" ]; then code=75; fi
for ((i = 1; i <= lines; i++)); do
  echo "line $attempt $i"
  echo "printed $attempt $i" >> "$journal"
  if [ "$i" -eq 3 ]; then
    for n in 1 2 3; do echo "artifact $n of attempt $attempt"; done > out/result
    tmp=$GPUCTL_CHECKPOINT_DIR/.tmp-$attempt
    mkdir "$tmp"
    echo "weights $attempt" > "$tmp/w"
    sum=$(sha256sum < "$tmp/w")
    size=$(stat -c %s "$tmp/w")
    printf '{"format":1,"step":%d,"files":[{"path":"w","size":%d,"sha256":"%s"}]}' \
      "$attempt" "$size" "${sum%% *}" > "$tmp/manifest.json"
    mv "$tmp" "$GPUCTL_CHECKPOINT_DIR/$(printf step-%08d "$attempt")" &&
      echo "saved $attempt" >> "$journal"
  fi
  read -r -t "$pause" -u 8 _
done
finish "$code"
