#include "provisioning/rental/start_script.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/release/near_function.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

// The script for containers. Everything is in a subshell, so that the provider's own script goes on
// undisturbed.
constexpr absl::string_view kContainer = R"sh(#!/bin/sh
(
trap "" HUP
umask 077
r=@ROOT@
mkdir -p "$r"
# Nothing else restarts the guard in a container.
while :; do
g=$r/bin/current/gpuctl-agent
[ -x "$g" ] && "$g" guard --root "$r"
sleep 5
done &
v() {
eval "x=\${$1:-}"
[ -n "$x" ] || x=$(tr "\000" "\n" <"${GPUCTL_PID1_ENVIRON:-/proc/1/environ}" | sed -n "s/^$1=//p")
echo "$x"
}
up() { read -r x y </proc/uptime; echo "${x%%.*}"; }
i=$(v @ID@)
k=$(v @KEY@)
m=@METHOD@
b=@BODY@
u=@URL@
t=
for x in curl python3 wget openssl; do
command -v $x >/dev/null || continue
[ $x != wget ] || { wget --help 2>&1 | grep -q -e --method && [ -w /dev/shm ]; } || continue
t="$t${t:+ }$x"
done
h=false
[ -z "$i" ] || [ -z "$k" ] || h=true
echo "{\"tool\":\"${t:-none}\",\"key\":$h,\"deadline_s\":@DEADLINE@}" >"$r/boot.$$"
mv "$r/boot.$$" "$r/boot.json"
# The key goes by pipe, environment or memory, never by an argument.
ask() {
j="Content-Type: application/json"
case $1 in
curl) printf "header = \"Authorization: Bearer %s\"\n" "$k" | curl -sS -m 30 -K - -A gpuctl -X $m -H "$j" -d "$b" "$u" ;;
python3) K=$k M=$m B=$b U=$u python3 - <<"E"
import os,urllib.request as r
e=os.environ
h={"Authorization":"Bearer "+e["K"],"Content-Type":"application/json","User-Agent":"gpuctl"}
r.urlopen(r.Request(e["U"],e["B"].encode(),h,method=e["M"]),timeout=30)
E
;;
wget) f=/dev/shm/gpuctl.$$
printf "header = Authorization: Bearer %s\n" "$k" >$f
wget -q -O - -T 30 -t 1 -U gpuctl --config=$f --method=$m --header="$j" --body-data="$b" "$u"
rm -f $f ;;
openssl) s=${u#https://}
p=/${s#*/}
s=${s%%/*}
n=${s%:*}
case $s in *:*) ;; *) s=$s:443 ;; esac
{ printf "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: gpuctl\r\nAuthorization: Bearer %s\r\n%s\r\nContent-Length: ${#b}\r\nConnection: close\r\n\r\n%s" $m "$p" "$n" "$k" "$j" "$b"; sleep 9; } | openssl s_client -no_ign_eof -verify_return_error -verify_hostname "$n" -servername "$n" -connect "$s" ;;
esac
}
e=$(($(up) + @ALLOWANCE@))
until [ -e "$r/claimed" ]; do
if [ $h = true ] && { [ "$(date +%s)" -ge @DEADLINE@ ] || [ "$(up)" -ge $e ]; }; then
for x in $t; do ask $x; done
sleep 20
fi
sleep 2
done
) </dev/null >/dev/null 2>&1 &
)sh";

// The script that is a container's whole command: the bill ends when it ends. Beside it, the guard
// runs as in other containers.
constexpr absl::string_view kUntilReleased = R"sh(#!/bin/sh
umask 077
r=@ROOT@
mkdir -p "$r"
rm -f "$r/@RELEASED@"
(
trap "" HUP
while :; do
g=$r/bin/current/gpuctl-agent
[ -x "$g" ] && "$g" guard --root "$r"
sleep 5
done
) </dev/null >/dev/null 2>&1 &
l=$!
up() { read -r x y </proc/uptime; echo "${x%%.*}"; }
echo "{\"tool\":\"exit\",\"key\":false,\"deadline_s\":@DEADLINE@}" >"$r/boot.$$"
mv "$r/boot.$$" "$r/boot.json"
e=$(($(up) + @ALLOWANCE@))
until [ -e "$r/@RELEASED@" ]; do
if [ ! -e "$r/claimed" ] && { [ "$(date +%s)" -ge @DEADLINE@ ] || [ "$(up)" -ge $e ]; }; then break; fi
sleep 2
done
kill $l
)sh";

// The seconds after which what makes an allocation's root again, and does nothing, is ended.
constexpr int kStalledS = 300;
// The seconds that the other nodes of an allocation have for their end, after that of the first.
constexpr int kOthersEndS = 150;

// The batch script of a Slurm allocation. Descriptor 9 is its sign of life, and its children do not
// get it. With several nodes, the first one starts the same script on the others, with the word
// "step"; they end when their input does, which is descriptor 8 there.
constexpr absl::string_view kHeld = R"sh(#!/bin/sh
umask 077
export @GRACE_NAME@=@GRACE@
z= h= k= w= i= o=
[ "${1:-}" != step ] || o=$((${SLURM_PROCID:-0} + 1))
stop() { z=1; exec 8<&-; [ -z "$h" ] || kill $h; }
trap stop TERM INT
trap "" HUP
say() { echo "gpuctl: $*" >&2; }
up() { read -r x y </proc/uptime; echo "${x%%.*}"; }
# Waits as a child does, so that a signal is handled at once.
nap() { sleep $1 8<&- 9<&- & wait $!; }
# Makes a directory that is ours alone, or takes one.
own() {
mkdir "$1" 2>/dev/null
[ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] || return
case $(ls -ld "$1") in drwx--[-S]---*) ;; *) return 1 ;; esac
}
@NEAR@# From inside, so that nobody who may rename it can put another one there meanwhile.
a=${@RESULTS@:-}
[ -z "$o" ] || [ -z "$a" ] || { a=$a/@NODE@$o; export @RESULTS@="$a"; }
enter() { cd "$a" && [ -O . ] && case $(ls -ld .) in d????-??-*) ;; *) return 1 ;; esac; }
# Notes why this start ends, for whoever reads what was kept. Where that hangs, it does not wait.
fail() {
k=@FAILED@
say "start $n of job $j: $1"
(enter && mkdir -p again/failed && echo "$1" >"again/failed/.$j-$n" && mv "again/failed/.$j-$n" "again/failed/$j-$n") &
p=$! x=
while kill -0 $p 2>/dev/null && [ "$x" != ........... ]; do nap 1; x=$x.; done
kill -9 $p 2>/dev/null
return 1
}
# True when a client has left something for this first start; false where a minute does not tell: then
# this is a start as any other.
staged() {
[ -n "$a" ] || return
(enter && [ -e "$j-@STAGED@/node_id" ]) &
p=$! x=
while kill -0 $p 2>/dev/null && [ ${#x} -lt 80 ]; do
case $x in ....................*) nap 1 ;; *) nap 0.05 ;; esac
x=$x.
done
! kill -9 $p 2>/dev/null && wait $p
}
# Makes the root again, where Slurm has started the allocation again; at the first start, where a run
# waits for it. A file system that hangs must not cost the whole time of the allocation: what works
# on it uses the processor now and then.
again() {
[ $n != 0 ] || staged || return 0
[ -n "$a" ] || { say "start $n of job $j: nothing was kept"; return 1; }
(
enter || exit 3
[ -x again/bin/current/gpuctl-agent ] || exit 4
exec ./again/bin/current/gpuctl-agent start-again --root "$r" --from "$a"
) &
p=$! x= t=$(up) c=
while kill -0 $p 2>/dev/null; do
{ read -r y </proc/$p/stat; } 2>/dev/null || y=
[ "$x" = "$y" ] || t=$(up)
x=$y
[ $(($(up) - t)) -lt @STALLED@ ] || { kill -9 $p; c=hung; break; }
nap 1
done
[ -n "$c" ] || { wait $p; c=$?; }
case $c in
0) return ;;
# It has told the reason.
1) say "start $n of job $j: there is nothing to go on with" ;;
3) say "start $n of job $j: $a is not there, or others may write to it" ;;
4) fail "the programs of the agent are not in $a/again" ;;
hung) fail "what was kept of it could not be read: the file system hung for @STALLED@ seconds" ;;
*) fail "gpuctl-agent start-again ended with $c" ;;
esac
return 1
}
# Begins the same on the other nodes of the allocation. When they have ended, all of it ends.
others() {
[ -z "$o" ] || return 0
c=${@NODES@:-1}
[ "$c" -gt 1 ] || return 0
[ "${SLURM_JOB_NUM_NODES:-1}" -ge "$c" ] || { say "Slurm gave fewer nodes than $c"; return 1; }
c=$((c - 1))
mkfifo "$r/others" && exec 8<>"$r/others" || return
{
srun -Q --mpi=none --overlap --nodes=$c --ntasks=$c --ntasks-per-node=1 --relative=1 --cpu-bind=none \
--kill-on-bad-exit=0 --wait=0 --export=ALL sh -c "$(cat "$0")" gpuctl step <"$r/others"
kill $$
} 8<&- 9<&- &
w=$!
}
[ -z "$o" ] || { exec 7<&0 </dev/null; { read -r x <&7; kill $$; } & i=$!; exec 7<&-; }
j=${SLURM_JOB_ID:-none}
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || j=${SLURM_ARRAY_JOB_ID:-none}_$SLURM_ARRAY_TASK_ID
n=${SLURM_RESTART_COUNT:-0}
case $j$n in *[!0-9_]*) say "no job of Slurm: SLURM_JOB_ID is $j"; exit 1 ;; esac
s=${GPUCTL_SYSTEM_ROOT:-}/tmp
u=gpuctl-$(id -u)
own "$s/$u" || { say "$s/$u is not a directory of this user alone (0700): somebody else made it"; exit 1; }
r=
for d in "@ROOT@" "${SLURM_TMPDIR:-}" "${TMPDIR:-}" "$s"; do
case $d in "") continue ;; [!/]* | *[!A-Za-z0-9/._+=,:~-]*) say "not a plain absolute path: $d"; continue ;; esac
r=$d/$u/$j-$n
# A directory that nodes share is none for the second of them.
near "$d" && own "$d/$u" && { [ -n "$o" ] || rm -rf "$r"; } && mkdir "$r" && break
say "no place for files of ours: $d"
r=
done
[ -n "$r" ] || exit 1
f=$s/$u/$j-$n.root
mkfifo "$r/@SIGN@" && exec 9<>"$r/@SIGN@" &&
echo "{\"tool\":\"exit\",\"key\":false,\"deadline_s\":$(($(date +%s) + @ALLOWANCE@))}" >"$r/boot.json" &&
echo "{\"job\":\"$j\",\"restart\":$n}" >"$r/@HELD@" &&
again 9<&- &&
echo "$r" >"$f.new" && mv "$f.new" "$f" && others || { rm -rf "$r" "$f"; exit ${k:-1}; }
g=$r/bin/current/gpuctl-agent
e=$(($(up) + @ALLOWANCE@))
until [ -x "$g" ] || [ -n "$z" ] || [ "$(up)" -ge $e ]; do nap 1; done
while [ -x "$g" ]; do
t=$z
"$g" hold --root "$r" --claim-until $e ${z:+--end} 8<&- 9<&- &
h=$!
[ "$t" = "$z" ] || kill $h
# A signal ends a wait before the holder has ended.
while :; do wait $h; c=$?; kill -0 $h 2>/dev/null || break; done
h=
[ $c != 0 ] && [ ! -e "$r/@RELEASED@" ] && [ -z "$t" ] || break
say "the holder ended with $c"
nap 1
done
exec 8<&-
x=
while [ -n "$w" ] && kill -0 $w 2>/dev/null && [ ${#x} -lt @OTHERS@ ]; do nap 1; x=$x.; done
[ -z "$i" ] || kill $i
# Slurm has warned before it preempts, and would take an end before that for one of the job.
ctl() { timeout -k 2 20 scontrol $*; }
q=
[ -z "$z" ] || ! grep -q . "$r/goes_on" 2>/dev/null || ! ctl show job $j | grep -q "PreemptTime=[0-9]" || q=1
# A job may have made directories that nobody may write to, and a client may be there.
rm -rf "$r" "$f" 2>/dev/null || { nap 1; chmod -R u+rwx "$r"; rm -rf "$r" "$f"; }
[ -z "$q" ] || ctl requeue $j
)sh";

// The script for virtual machines, as root. $GPUCTL_SYSTEM_ROOT is a directory that stands for /.
constexpr absl::string_view kMachine = R"sh(#!/bin/sh
r=@ROOT@
d=${GPUCTL_SYSTEM_ROOT:-}
cat >$d/etc/systemd/system/gpuctl-guard.service <<E
[Unit]
Description=gpuctl guard: keeps the agent running and enforces limits
[Service]
User=@USER@
ExecStart=/bin/sh -c "while :; do [ ! -x $r/bin/current/gpuctl-agent ] || $r/bin/current/gpuctl-agent guard --root $r; sleep 5; done"
KillMode=process
Restart=always
RestartSec=5
[Install]
WantedBy=multi-user.target
E
)sh";

constexpr absl::string_view kStartGuard = R"sh(systemctl daemon-reload
systemctl enable --now gpuctl-guard.service
)sh";

// What shuts an unclaimed machine down, also after a restart of the system.
constexpr absl::string_view kDeadline = R"sh(cat >$d/usr/local/sbin/gpuctl-deadline <<"E"
#!/bin/sh
up() { read -r x y </proc/uptime; echo "${x%%.*}"; }
e=$(($(up) + @ALLOWANCE@))
until [ -e @ROOT@/claimed ]; do
if [ "$(date +%s)" -ge @DEADLINE@ ] || [ "$(up)" -ge $e ]; then
@COMMAND@
sleep 20
fi
sleep 2
done
E
chmod 755 $d/usr/local/sbin/gpuctl-deadline
cat >$d/etc/systemd/system/gpuctl-deadline.service <<E
[Unit]
Description=gpuctl deadline: shuts this machine down when nobody claims it
[Service]
ExecStart=/usr/local/sbin/gpuctl-deadline
Restart=on-failure
[Install]
WantedBy=multi-user.target
E
systemctl enable --now gpuctl-deadline.service
)sh";

// The virtual machines, with the user that ssh logs in as and that user's root of the agent.
struct Machine {
  absl::string_view provider;
  absl::string_view user;
  absl::string_view root;
};
constexpr Machine kMachines[] = {
    {"lambda", "ubuntu", "/home/ubuntu/.gpuctl"},
    {"digitalocean", "root", "/root/.gpuctl"},
    {"shadeform", "shadeform", "/home/shadeform/.gpuctl"},
    {"test-shutdown", "root", "/root/.gpuctl"},
};

bool IsPlain(absl::string_view text, absl::string_view also) {
  return std::all_of(text.begin(), text.end(), [also](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(also, c);
  });
}

}  // namespace

absl::StatusOr<std::string> MakeStartScript(const StartScriptOptions& options) {
  const auto refuse = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("make the start script: ", why));
  };
  if (!options.root.empty() && (options.root[0] != '/' || !IsPlain(options.root, "/._-"))) {
    return refuse("the agent's root is not a plain path");
  }
  const ReleaseRoute& route = ReleaseRouteOf(options.provider);
  const int64_t allowance_s = std::max(int64_t{0}, absl::ToInt64Seconds(options.allowance));
  const std::string deadline_s = absl::StrCat(absl::ToUnixSeconds(options.deadline));
  for (const Machine& machine : kMachines) {
    if (machine.provider != options.provider) continue;
    const bool shuts_down = route.way == EndsItself::kByShutdown;
    return absl::StrReplaceAll(absl::StrCat(kMachine, kStartGuard, shuts_down ? kDeadline : ""),
                               {{"@ROOT@", options.root.empty() ? machine.root : options.root},
                                {"@USER@", machine.user},
                                {"@COMMAND@", ShutdownCommand(route)},
                                {"@DEADLINE@", deadline_s},
                                {"@ALLOWANCE@", absl::StrCat(allowance_s)}});
  }
  const std::string root =
      options.root.empty() ? "${GPUCTL_NODE_ROOT:-${HOME:-/root}/.gpuctl}" : options.root;
  if (options.provider == "slurm") {
    const int64_t grace_s = std::max(int64_t{0}, absl::ToInt64Seconds(options.grace));
    return absl::StrReplaceAll(kHeld, {{"@ROOT@", options.root},
                                       {"@HELD@", kHeldFile},
                                       {"@SIGN@", kHeldSignFile},
                                       {"@RELEASED@", kReleasedFile},
                                       {"@RESULTS@", kResultsVariable},
                                       {"@NODE@", kResultsOfNode},
                                       {"@NODES@", kAllocationNodesVariable},
                                       {"@OTHERS@", absl::StrCat(kOthersEndS)},
                                       {"@STAGED@", kStagedWord},
                                       {"@NEAR@", kNearFunction},
                                       {"@GRACE_NAME@", kHoldGraceVariable},
                                       {"@GRACE@", absl::StrCat(grace_s)},
                                       {"@STALLED@", absl::StrCat(kStalledS)},
                                       {"@FAILED@", absl::StrCat(kNotStartedAgainExit)},
                                       {"@ALLOWANCE@", absl::StrCat(allowance_s)}});
  }
  if (route.way == EndsItself::kByExit) {
    return absl::StrReplaceAll(kUntilReleased, {{"@ROOT@", root},
                                                {"@RELEASED@", kReleasedFile},
                                                {"@DEADLINE@", deadline_s},
                                                {"@ALLOWANCE@", absl::StrCat(allowance_s)}});
  }
  if (route.way != EndsItself::kByKey) {
    return refuse(absl::StrCat("no provider is called ", options.provider));
  }
  const absl::string_view base = absl::StripSuffix(options.api_base_url, "/");
  if (!(absl::StartsWith(base, "https://") || absl::StartsWith(base, "http://")) ||
      !IsPlain(base, ":/._-")) {
    return refuse("the provider's address is not a plain one");
  }
  std::string script = absl::StrReplaceAll(
      kContainer,
      {{"@ROOT@", root},
       {"@ID@", route.id_variable},
       {"@KEY@", route.key_variable},
       {"@METHOD@", route.method},
       {"@BODY@", absl::StrCat("\"", absl::StrReplaceAll(route.body, {{"\"", "\\\""}}), "\"")},
       {"@URL@", absl::StrCat(base, ReleasePath(route, "$i"))},
       {"@DEADLINE@", deadline_s},
       {"@ALLOWANCE@", absl::StrCat(allowance_s)}});
  if (script.size() > kStartScriptMaxBytes) return refuse("it is too long");
  return script;
}

}  // namespace gpuctl
