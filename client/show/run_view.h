// Shows a run: its output and, on a terminal, the panel below it. Reads the mirror; uses no links
// or threads.
#ifndef GPUCTL_CLIENT_SHOW_RUN_VIEW_H_
#define GPUCTL_CLIENT_SHOW_RUN_VIEW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/runs/run_status.h"
#include "client/show/panel.h"
#include "client/show/shown_range.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/drawn_rows.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/panel_terminal.h"

namespace gpuctl {

// Chooses what is shown of a job's bytes.
class OutputFilter {
 public:
  virtual ~OutputFilter() = default;
  // Returns up to which byte of the output Choose may be asked by now.
  virtual int64_t Readable(const Lifecycle& lifecycle) = 0;
  // Takes the bytes at `offset`, and returns those to show; at the end, what is left.
  virtual absl::StatusOr<std::string> Choose(int64_t offset, absl::string_view bytes) = 0;
  virtual absl::StatusOr<std::string> End() = 0;
};

struct RunViewOptions {
  bool panel = false;       // on a terminal that can animate; else plain bytes
  bool show_output = true;  // false in JSON modes
  // First offset to show; earlier bytes are not shown.
  int64_t begin = 0;
  // True to wait for the node's display tail before showing the mirror.
  bool await_tail = false;
  OutputFilter* filter = nullptr;  // without a panel; null: everything is shown
};

class RunView {
 public:
  RunView(CommandContext& context, const RunRow& row, MirrorReader& mirror, RunViewOptions options);

  // Adds the node's newest output, which the mirror does not have yet.
  void AddTail(int64_t offset, absl::string_view data);
  // Tells that the tail has come, or will not come: from now on the mirror is shown. Bytes before
  // the tail that the mirror has already are not shown.
  void StopAwaitingTail();
  bool awaiting_tail() const { return await_tail_; }
  // Adds a remark of gpuctl's, above the panel or on stderr.
  void AddNotice(absl::string_view text, Tone tone = Tone::kPlain);

  // Shows new output; writes at most about a MiB. Returns early when `wake_fd` becomes readable.
  // Returns true when there is more to show at once. UNAVAILABLE: the reader of the output is gone.
  absl::StatusOr<bool> Update(const PanelState& link_state, int wake_fd);
  // Prints the last lines and removes the panel.
  absl::Status Finish();
  // Stop and restart the panel around a stop by Ctrl-Z.
  absl::Status Suspend();
  void Resume() {
    if (options_.panel) terminal_.Start();
  }

  int64_t shown_to() const { return shown_.next(); }

 private:
  absl::StatusOr<bool> CollectOutput();
  absl::Status Flush(int wake_fd);
  absl::Status Take(int64_t offset, absl::string_view data);
  PanelState FillPanel(PanelState state);
  void TellLoss();
  // Adds a line of the job's, for above the panel.
  void Log(absl::string_view line) { log_.push_back(SanitizeLine(line)); }

  CommandContext& context_;
  const RunRow& row_;
  MirrorReader& mirror_;
  RunViewOptions options_;
  bool await_tail_;
  bool drop_partial_line_;  // the shown output begins in the middle of a line
  ShownRange shown_;
  PanelTerminal terminal_;
  LineAssembler lines_;
  DrawnRows rows_;
  int64_t told_loss_ = 0;         // bytes and lines that the node could not store
  std::vector<std::string> log_;  // safe lines for above the panel
  bool unbegun_ = false;          // pending_ is a frame of which nothing was written
  std::string pending_;  // not yet written to stdout: frames with a panel, else the job's bytes
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SHOW_RUN_VIEW_H_
