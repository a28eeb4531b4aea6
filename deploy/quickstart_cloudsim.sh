# shellcheck shell=bash
# ./quickstart --cloudsim: shows how gpuctl rents machines, without an account. It simulates the
# three markets and their machines on this machine; every price below is play money. ./quickstart
# sources this file, which uses its functions and settings.

# Shows a command as it is typed, runs it and stores its output; the exit code must be $1.
expect_exit() {
  local want=$1 code=0
  shift
  printf '\n$ %s' "${1##*/}"
  printf ' %q' "${@:2}"
  printf '\n'
  "$@" 2>&1 | tee "$place/heard" || code=${PIPESTATUS[0]}
  [ "$code" -eq "$want" ] || fail "exit code $code instead of $want"
}
# Fails unless the last output matches an extended regular expression.
must_say() { grep -Eq -- "$1" "$place/heard" || fail "nothing in it says: $1"; }

# Sends a control request to the simulator: method, route, body. Prints the reply's body.
simulator() {
  local line body=${3:-}
  exec 8<>"/dev/tcp/127.0.0.1/${url##*:}"
  printf '%s /_sim/%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
    "$1" "$2" "${#body}" "$body" >&8
  read -r line <&8
  case $line in *" 200 "*) ;; *) fail "the simulator refuses $2: $line" ;; esac
  sed '1,/^\r*$/d' <&8
  exec 8<&- 8>&-
}

start_simulator() {
  mkfifo "$place/parent"
  "$bin/gpuctl-cloudsim" --dir "$place/cloud" --no-rate-limits --boot-s 1 --parent-fd 0 \
    <"$place/parent" >"$place/ready" &
  simulator_pid=$!
  # The simulator ends with this script, however the script ends.
  exec 7>"$place/parent"
  until grep -q '"url"' "$place/ready"; do
    kill -0 "$simulator_pid" 2>/dev/null || fail "gpuctl-cloudsim did not start"
    sleep 0.1
  done
  url=$(sed -n 's/.*"url": *"\([^"]*\)".*/\1/p' "$place/ready")
  local market upper
  for market in runpod lambda vast; do
    upper=$(tr '[:lower:]' '[:upper:]' <<<"$market")
    export "GPUCTL_${upper}_URL=$url/$market" "GPUCTL_${upper}_API_KEY=sim-$market-key"
    echo "export GPUCTL_${upper}_URL=$url/$market"
    echo "export GPUCTL_${upper}_API_KEY=sim-$market-key"
  done
}

stop_simulator() {
  exec 7>&- 2>/dev/null || true
  [ -z "${simulator_pid:-}" ] || wait "$simulator_pid" || true
  simulator_pid=
}

write_training() {
  mkdir "$place/work"
  cat >"$place/work/train.sh" <<'END'
# A minimal model that does all that gpuctl expects: metrics, checkpoints, and saving when stopped.
step=0
save() {
  [ ! -e "$GPUCTL_CHECKPOINT_DIR/step-$(printf %08d "$step")" ] || return 0
  mkdir -p ".tmp-$step" && echo "weights of step $step" >".tmp-$step/model.bin"
  local sum
  sum=$(sha256sum <".tmp-$step/model.bin")
  printf '{"format":1,"step":%d,"files":[{"path":"model.bin","size":%d,"sha256":"%s"}]}' \
    "$step" "$(wc -c <".tmp-$step/model.bin")" "${sum%% *}" >".tmp-$step/manifest.json"
  mv ".tmp-$step" "$GPUCTL_CHECKPOINT_DIR/step-$(printf %08d "$step")"
}
trap 'echo "told to stop at step $step: saving"; save; exit 0' TERM
while [ "$step" -lt "$1" ]; do
  step=$((step + 1))
  # Sleep in the background, so that a signal interrupts the wait at once.
  sleep 0.1 &
  wait $!
  loss=$(awk -v s="$step" 'BEGIN { printf "%.4f", 0.5 + 4 / (1 + s / 12) }')
  printf '{"step":%d,"total_steps":%d,"loss":%s}\n' "$step" "$1" "$loss" >"$GPUCTL_METRICS"
  [ $((step % 20)) -ne 0 ] || { echo "step $step loss $loss"; save; }
done
END
}

tour_of_renting() {
  bin=$checkout/build/dev/bin
  place=$(mktemp -d)
  simulator_pid=
  leave() {
    stop_simulator
    rm -rf "$place"
  }
  trap leave EXIT
  [ -n "$state" ] || state=$place/private
  export GPUCTL_STATE_DIR=$state/state GPUCTL_CONFIG_DIR=$state/config GPUCTL_CACHE_DIR=$state/cache
  export GPUCTL_KEY_STORE=file
  unset GPUCTL_NODE_ROOT

  say "2. Three rental markets, simulated on this machine; all money is play money"
  start_simulator
  write_training
  cd "$place/work"

  next "asks all three what an RTX 4090 costs"
  say "3. Offers"
  expect_exit 0 "$gpuctl" offers --gpu RTX4090
  must_say 'RTX-4090 .* runpod' && must_say 'RTX-4090 .* vast'

  next "shows what a launch would do"
  say "4. The plan: machine, limits, price. Nothing is rented yet"
  expect_exit 0 "$gpuctl" launch --gpu RTX4090 --time 10m --dry-run -- bash train.sh 120
  must_say '^limits ' && must_say ' cost .* at most' && must_say '^price .*\$0\.30 per hour'
  [ "$(simulator GET books | grep -c '"id"')" -eq 0 ] || fail "a dry run rented something"

  next "rents one. The cheapest is gone meanwhile: the next one is taken"
  say "5. Launch; somebody else has just taken the cheapest machine"
  simulator POST faults '{"service":"vast","route":"create","fault":"offer_gone"}' >/dev/null
  expect_exit 0 "$gpuctl" launch --gpu RTX4090 --time 10m --name first -d -y -- bash train.sh 120
  must_say 'is ready'

  next "looks at it"
  say "6. What it costs, what it may cost, and when it stops"
  expect_exit 0 "$gpuctl" ps
  must_say '^NAME .*\$/H +SPENT +CAP +STOPS' && must_say '^first-1 .*\$0\.[0-9]+ '
  expect_exit 0 "$gpuctl" instances
  must_say 'ours'
  expect_exit 0 "$gpuctl" attach first
  must_say 'first-1 exited with code 0'

  next "brings the checkpoint home"
  say "7. Pull"
  expect_exit 0 "$gpuctl" pull first
  [ -s "$place/work/first-1/step-00000120/model.bin" ] || fail "the checkpoint is not here"
  must_say 'verified'

  next "runs against limits"
  say "8. Eight H100: 20 cents are too little for a start; a job that reaches its limit can save"
  expect_exit 2 "$gpuctl" launch --gpu H100:8 --cost 0.20 -y -- bash train.sh 100000
  must_say 'do not pay for'
  expect_exit 119 "$gpuctl" launch --gpu H100:8 --cost 5 --time 20s --grace 3s --name budget --pull \
    --down -y -- bash train.sh 100000
  must_say 'told to stop' && must_say 'limit'
  saved=$(find "$place/work/budget-1" -name model.bin | wc -l)
  [ "$saved" -gt 0 ] || fail "the run that reached its limit left no checkpoint here"

  next "gives the first machine back"
  say "9. Down: until the market itself says that it is gone"
  expect_exit 0 "$gpuctl" down first -y
  must_say 'is gone; it cost'
  expect_exit 0 "$gpuctl" instances
  must_say 'nothing bills'
  expect_exit 0 "$gpuctl" reap
  must_say 'no leaks'

  # The markets' own records, not those of gpuctl.
  simulator GET books >"$place/books"
  [ "$(grep -o '"alive": *true' "$place/books" | wc -l)" -eq 0 ] || fail "something still bills"
  [ "$(grep -o '"alive": *false' "$place/books" | wc -l)" -eq 2 ] || fail "not two machines rented"
  cat <<END

== The same with real machines
  gpuctl login runpod        or lambda, vast, digitalocean, shadeform, huggingface; tries the key
  gpuctl offers --gpu H100   what there is
  gpuctl launch --gpu H100 --time 6h --cost 20 -- python3 train.py
END
}
