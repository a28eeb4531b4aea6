#include "client/programs/bundle_delivery.h"

#include <future>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/base/allocation_step.h"
#include "client/base/exit_codes.h"
#include "client/programs/node_scripts.h"
#include "client/programs/publish_script.h"
#include "common/base/ids.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/packing/whole_frames.h"

namespace gpuctl {
namespace {

// Free space, in KiB, below which a disk counts as full.
constexpr int64_t kFullBelowKb = 1024;
constexpr int64_t kMostProgramBytes = int64_t{256} << 20;

std::string LastLine(absl::string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  return std::string(text.substr(text.find_last_of('\n') + 1));
}

absl::Status CannotRun(absl::string_view message) {
  return WithFault(absl::FailedPreconditionError(message), LinkFault::kAgentCannotRun);
}

absl::Status Failed(const NodeAnswer& answer) {
  const std::string message =
      absl::StrCat("deliver the agent: exit ", answer.exit_code, ": ", LastLine(answer.err));
  if (answer.exit_code != kNotHeldExit) return CannotRun(message);
  return WithFault(absl::FailedPreconditionError(message), LinkFault::kNotHeld);
}

// The install of one bundle.
class Installation {
 public:
  Installation(const RunOnNode& run, const std::string& root, const Bundle& bundle,
               std::string uname)
      : run_(run),
        root_(root),
        bundle_(bundle),
        uname_(std::move(uname)),
        partial_(absl::StrCat(RootWord(root), "/bin/.partial-", RandomHex(6))) {}

  // Sends the bundle into a new directory, where it is checked and published.
  absl::Status Install() {
    const absl::Status status = Send();
    if (status.ok()) return status;
    const bool full = FaultOf(status) == LinkFault::kAgentCannotRun && IsFull();
    // No agent that could sweep it away may ever run there.
    (void)Script(absl::StrCat("rm -rf ", partial_));
    return full ? WithFault(status, LinkFault::kNoRoomForAgent) : status;
  }

 private:
  std::string Word(absl::string_view name) const { return absl::StrCat(partial_, "/", name); }

  absl::StatusOr<NodeAnswer> Run(const std::string& script, absl::string_view input) {
    return run_(ShellCommand(script), input);
  }

  // Runs a step of the delivery.
  absl::Status Script(const std::string& script, absl::string_view input = "") {
    ASSIGN_OR_RETURN(const NodeAnswer answer, Run(script, input));
    return answer.exit_code == 0 ? absl::OkStatus() : Failed(answer);
  }

  // Sends a file. `before` runs first, in the same round trip.
  absl::Status SendFile(absl::string_view name, absl::string_view content,
                        absl::string_view before = "") {
    const std::string word = Word(name);
    return Script(absl::StrCat(before, "cat > ", word, " && chmod 700 ", word), content);
  }

  absl::Status Send() {
    ASSIGN_OR_RETURN(const std::string agent,
                     ReadFileToString(bundle_.agent_path, kMostProgramBytes));
    ASSIGN_OR_RETURN(const std::string shim,
                     ReadFileToString(bundle_.shim_path, kMostProgramBytes));
    // Most of the shim is in the agent, too. It is packed while the agent is on its way.
    std::future<std::string> packed =
        std::async(std::launch::async, [&] { return PackAgainst(shim, agent); });
    RETURN_IF_ERROR(SendFile("gpuctl-agent", agent,
                             absl::StrCat("umask 077; mkdir -p ", partial_, " && echo ",
                                          bundle_.version, " > ", partial_, "/version && ")));
    std::string roots;
    if (!bundle_.roots_path.empty()) {
      ASSIGN_OR_RETURN(roots, ReadFileToString(bundle_.roots_path, kMostProgramBytes));
    }
    const std::string check = CheckScript(
        partial_, bundle_,
        PublishScript(partial_, absl::StrCat(RootWord(root_), "/bin/", bundle_.digest)));
    // Each command costs round trips, so all that is left goes with one.
    ASSIGN_OR_RETURN(NodeAnswer answer,
                     Run(absl::StrCat(UnpackScript(partial_, bundle_, roots.size()), check),
                         absl::StrCat(roots, packed.get())));
    if (answer.exit_code == kUnpacksNothing) {
      if (!bundle_.roots_path.empty()) RETURN_IF_ERROR(SendFile("roots.pem", roots));
      RETURN_IF_ERROR(SendFile("gpuctl-shim", shim));
      ASSIGN_OR_RETURN(answer, Run(check, ""));
    }
    if (answer.exit_code == kUnpackFailed) return Failed(answer);
    return CheckHashes(answer);
  }

  // An agent that was damaged on the way does not run or does not print its own hash.
  absl::Status CheckHashes(const NodeAnswer& answer) const {
    if (HasHashesOf(bundle_, answer.out)) {
      // It was not damaged; it could not be put into its place.
      return answer.exit_code == 0 ? absl::OkStatus() : Failed(answer);
    }
    if (answer.exit_code != 0) {
      return CannotRun(absl::StrCat("run the agent on the node (", uname_, "): exit ",
                                    answer.exit_code, ": ", LastLine(answer.err)));
    }
    return WithFault(absl::DataLossError("deliver the agent: it arrived damaged"),
                     LinkFault::kAgentCannotRun);
  }

  // True when `df` on the node says that its root's disk is full. The messages of its shell and
  // programs do not tell this: they are in the node's language.
  bool IsFull() {
    const absl::StatusOr<NodeAnswer> said = Run(absl::StrCat("df -Pk ", RootWord(root_)), "");
    if (!said.ok()) return false;
    const std::optional<int64_t> free_kb = FreeKbOf(said->out);
    return free_kb.has_value() && *free_kb < kFullBelowKb;
  }

  const RunOnNode& run_;
  const std::string& root_;
  const Bundle& bundle_;
  const std::string uname_;
  const std::string partial_;  // the new directory's path on the node, as a shell word
};

}  // namespace

absl::StatusOr<Bundle> DeliverBundle(const RunOnNode& run, const std::string& root,
                                     NodeBundles& bundles) {
  // A bundle that cannot be described matters only to a node that needs it.
  std::vector<Bundle> described;
  for (const NodePlatform platform : bundles.programs().platforms()) {
    absl::StatusOr<Bundle> bundle = bundles.For(platform);
    if (bundle.ok()) described.push_back(*std::move(bundle));
  }
  // No greeting of the node's shell contains it.
  const std::string mark = absl::StrCat("gpuctl-", RandomHex(8));
  ASSIGN_OR_RETURN(const NodeAnswer said, run(ShellCommand(LookScript(root, described, mark)), ""));
  if (said.exit_code != 0) return Failed(said);
  const NodeLook look = ParseLook(said.out, mark);
  const absl::StatusOr<NodePlatform> platform = PlatformOfUname(look.uname);
  if (!platform.ok()) {
    return WithExitCode(WithHint(platform.status(), "use a machine with Linux on x86-64 or arm64"),
                        kExitUsage);
  }
  ASSIGN_OR_RETURN(const Bundle bundle, bundles.For(*platform));
  if (absl::c_linear_search(look.digests, bundle.digest)) return bundle;
  RETURN_IF_ERROR(Installation(run, root, bundle, look.uname).Install());
  return bundle;
}

}  // namespace gpuctl
