// Manual pages, from what the verbs say of themselves: the same source as --help. Pure.
#ifndef GPUCTL_CLIENT_VERBS_MAN_PAGE_H_
#define GPUCTL_CLIENT_VERBS_MAN_PAGE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/base/flag_set.h"

namespace gpuctl {

struct ManVerb {
  std::string name, group, summary;
  VerbText text;
};

// Return pages of section 1 in the man macros of roff: of one verb, and the overview of all.
std::string ManPageOf(const ManVerb& verb, absl::string_view version);
std::string ManOverview(const std::vector<ManVerb>& verbs, absl::string_view version);

// Returns text so that roff prints it as it is.
std::string EscapeRoff(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_MAN_PAGE_H_
