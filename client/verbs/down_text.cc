#include "client/verbs/down_text.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/batch/batch_store.h"
#include "client/bill/lease_view.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/verbs/batch_text.h"

namespace gpuctl {
namespace {

// A machine may have had hundreds of runs.
std::string JoinedTexts(const std::vector<std::string>& texts) {
  constexpr size_t kMost = 3;
  const size_t shown = texts.size() > kMost ? kMost - 1 : texts.size();
  const std::string first =
      absl::StrJoin(texts.begin(), texts.begin() + static_cast<ptrdiff_t>(shown), "; ");
  if (shown == texts.size()) return first;
  return absl::StrCat(first, "; and ", texts.size() - shown, " more of the kind");
}

}  // namespace

std::string NotHomeOn::Wanted() const { return JoinedTexts(wanted); }

std::string NotHomeOn::All() const {
  std::vector<std::string> all = wanted;
  all.insert(all.end(), others.begin(), others.end());
  return JoinedTexts(all);
}

std::string NameOfMachine(const Lease& lease) {
  return lease.instance_id.empty() ? lease.label : lease.instance_id;
}

std::string MachineAndPrice(const Lease& lease) {
  return absl::StrCat(NameOfMachine(lease), " (", FormatGpus(lease.gpu_name, lease.gpu_count), ", ",
                      FormatUsdPerHour(lease), "/h at ", lease.provider, ")");
}

std::string LossText(const NotHomeOn& told, const std::vector<std::string>& live) {
  const std::string missing = told.All();
  std::string text = !missing.empty() ? absl::StrCat("Not at home, and lost then: ", missing)
                     : told.unknown   ? "Results that were not pulled are lost then"
                                      : "Its results are at home";
  if (live.empty()) return absl::StrCat(text, ".");
  const char* saves =
      live.size() == 1 ? "what it saves as it stops" : "what they save as they stop";
  // What a live job has not finished writing is in no list.
  if (missing.empty() && !told.unknown) {
    return absl::StrCat("Complete checkpoints are at home; all else is lost, also ", saves, ".");
  }
  return absl::StrCat(text, "; so is ", saves, ".");
}

std::string EndQuestion(const Lease& lease, const std::vector<std::string>& live) {
  return absl::StrCat("End ", MachineAndPrice(lease),
                      live.empty() ? absl::StrCat(" of ", RunOf(lease))
                                   : absl::StrCat(" and stop ", FirstFew(live)),
                      "?");
}

std::string HowToBringAll(CommandContext& context, const Lease& lease, const NotHomeOn& found) {
  const std::string each = absl::StrJoin(found.ways, ", ");
  if (found.ways.size() < 2) return each;
  const absl::StatusOr<std::unique_ptr<BatchStore>> batches = OpenBatches(context);
  std::set<std::string> ids;
  for (const LeaseUse& use : lease.uses) {
    const absl::StatusOr<std::optional<Entry>> entry =
        batches.ok() ? (*batches)->FindEntry(use.run_name) : batches.status();
    ids.insert(entry.ok() && entry->has_value() ? (*entry)->batch_id : "");
  }
  if (!batches.ok() || ids.size() != 1) return each;
  const absl::StatusOr<std::vector<Batch>> all = (*batches)->List(/*open_only=*/false);
  for (const Batch& batch : all.ok() ? *all : std::vector<Batch>()) {
    if (batch.batch_id == *ids.begin()) {
      return absl::StrCat("gpuctl pull --batch ", batch.name, " brings them");
    }
  }
  return each;
}

void TellOfBatches(CommandContext& context, const std::string& only) {
  const absl::StatusOr<std::unique_ptr<BatchStore>> batches = OpenBatches(context);
  if (!batches.ok()) return;
  const absl::StatusOr<std::vector<Batch>> open = (*batches)->List(/*open_only=*/true);
  if (!open.ok()) return;
  for (const Batch& batch : *open) {
    if (!only.empty() && batch.name != only) continue;
    const absl::StatusOr<std::vector<Entry>> entries = (*batches)->Entries(batch.batch_id);
    if (!batch.rents || !entries.ok()) continue;
    const auto waiting = std::count_if(entries->begin(), entries->end(), [](const Entry& entry) {
      return entry.state == EntryState::kWaiting;
    });
    if (waiting == 0) continue;
    context.Say(
        absl::StrCat("batch ", batch.name, " will rent again: ", waiting, " of its runs wait"),
        Tone::kAlarm);
    context.Hint(absl::StrCat("gpuctl cancel ", batch.name));
  }
}

}  // namespace gpuctl
