// The progress of a transfer, for people: one line that is rewritten on a terminal, a new line now
// and then elsewhere, nothing for short transfers.
#ifndef GPUCTL_CLIENT_TRANSFER_TRANSFER_BAR_H_
#define GPUCTL_CLIENT_TRANSFER_TRANSFER_BAR_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/runs/context.h"
#include "common/transfer/transfer.h"

namespace gpuctl {

// Returns "main.py 61 % [#####---] 12.3 MB of 20.1 MB, 5.1 MB/s, 2 s left, 17 files left", cut to
// `width` columns.
std::string TransferLine(absl::string_view what, const TransferCount& count, absl::Duration passed,
                         int width);

// The line's state; for one thread at a time.
class TransferBar {
 public:
  TransferBar(CommandContext& context, std::string what, bool quiet);
  ~TransferBar() { Finish(); }
  TransferBar(const TransferBar&) = delete;
  TransferBar& operator=(const TransferBar&) = delete;

  void Update(const TransferCount& count);
  // Removes the line.
  void Finish();

 private:
  CommandContext& context_;
  const std::string what_;
  const bool for_caller_;  // kProgressVariable is set
  const bool quiet_;
  const absl::Duration begin_;
  absl::Duration drawn_;
  bool on_screen_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRANSFER_TRANSFER_BAR_H_
