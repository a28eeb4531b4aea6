#include "client/transfer/tree_transfer.h"

#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/terminal/console.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// Number of connections per transfer; a new one continues where a broken one ended.
constexpr int kTrials = 3;

absl::StatusOr<TransferStream> OpenStream(LinkFactory& links, const std::string& command) {
  ASSIGN_OR_RETURN(std::unique_ptr<AgentStream> stream, links.RunAgent(command));
  const absl::Duration round_trip = stream->RoundTrip();
  return TransferStream{std::move(stream), round_trip};
}

TransferOptions OptionsFor(LinkFactory& links, const std::string& command, TransferBar& bar,
                           const TransferStyle& style) {
  TransferOptions options;
  options.open = [&links, command] { return OpenStream(links, command); };
  options.streams = style.streams;
  options.progress = [&bar](const TransferCount& count) { bar.Update(count); };
  return options;
}

void Trace(CommandContext& context, absl::string_view verb, const TransferCount& count,
           absl::Duration took) {
  if (!context.trace) return;
  context.Trace(absl::StrCat(verb, ": ", count.bytes, " bytes, ", count.files, " files, ",
                             count.streams, " streams, ", absl::ToInt64Milliseconds(took), " ms"));
}

// A file may change without its time (a mapped one, or a time that was set back). The remembered
// hash would be wrong in every try, so the next one reads all files.
void ForgetHashes(CommandContext& context, const std::string& root) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) return;
  unlink(paths->WorkdirHashes(root).c_str());
  unlink(paths->DataHashes(root).c_str());
}

}  // namespace

absl::StatusOr<TransferStream> OpenReceiver(LinkFactory& links) {
  return OpenStream(links, "receive");
}

absl::StatusOr<PushOutcome> Push(CommandContext& context, LinkFactory& links,
                                 const std::string& root, const Manifest& manifest,
                                 const PushTarget& target, const TransferStyle& style) {
  ASSIGN_OR_RETURN(const TransferStream stream, OpenReceiver(links));
  return PushOn(context, links, stream, root, manifest, target, style);
}

absl::StatusOr<PushOutcome> PushOn(CommandContext& context, LinkFactory& links,
                                   TransferStream stream, const std::string& root,
                                   const Manifest& manifest, const PushTarget& target,
                                   const TransferStyle& style) {
  TransferBar bar(context, style.what, style.quiet);
  TransferOptions options = OptionsFor(links, "receive", bar, style);
  bool announced = style.announce.empty();
  options.progress = [&](const TransferCount& count) {
    if (!announced) context.Say(style.announce);
    announced = true;
    bar.Update(count);
    if (style.observe) style.observe(count);
  };
  const absl::Duration begin = context.clock.SinceBoot();
  absl::StatusOr<PushOutcome> outcome =
      PushTree(stream, root, manifest, target, context.clock, options);
  for (int trial = 1; trial < kTrials && absl::IsUnavailable(outcome.status()); ++trial) {
    stream = TransferStream();
    ASSIGN_OR_RETURN(stream, OpenReceiver(links));
    // A job that goes on writing to an older version must not spoil every trial.
    options.use_older = trial + 1 < kTrials;
    outcome = PushTree(stream, root, manifest, target, context.clock, options);
  }
  bar.Finish();
  if (outcome.ok()) Trace(context, "push", outcome->sent, context.clock.SinceBoot() - begin);
  if (absl::IsAborted(outcome.status())) {
    ForgetHashes(context, root);
    return WithHint(WithFault(absl::FailedPreconditionError(outcome.status().message()),
                              LinkFault::kFileChanged),
                    "leave these files alone for a moment and try again; what was sent is kept");
  }
  return outcome;
}

absl::StatusOr<Pulled> Pull(CommandContext& context, LinkFactory& links, const PullSubject& subject,
                            const std::string& parent, const TransferStyle& style) {
  TransferBar bar(context, style.what, style.quiet);
  TransferOptions options = OptionsFor(links, "send", bar, style);
  const absl::Duration begin = context.clock.SinceBoot();
  absl::StatusOr<Pulled> pulled;
  for (int trial = 0; trial < kTrials; ++trial) {
    ASSIGN_OR_RETURN(const TransferStream stream, OpenStream(links, "send"));
    options.use_older = trial + 1 < kTrials;
    pulled = PullTree(stream, subject, parent, context.clock, options);
    if (!absl::IsUnavailable(pulled.status())) break;
  }
  bar.Finish();
  if (pulled.ok()) Trace(context, "pull", pulled->received, context.clock.SinceBoot() - begin);
  return pulled;
}

}  // namespace gpuctl
