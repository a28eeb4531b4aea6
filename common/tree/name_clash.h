// Different names that are one name on some file systems, because of case or Unicode form.
#ifndef GPUCTL_COMMON_TREE_NAME_CLASH_H_
#define GPUCTL_COMMON_TREE_NAME_CLASH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/tree/manifest.h"

namespace gpuctl {

// The differences between names that a file system ignores.
struct NameFolding {
  bool letter_case = false;   // "A" and "a"
  bool unicode_form = false;  // "é" as one character, and as an e with an accent after it
  bool any() const { return letter_case || unicode_form; }
};

// Returns how the file system of the open directory folds names. It makes and removes an empty file
// to find out; when it cannot make one, the answer is no folding.
NameFolding ProbeNameFolding(int dir_fd);

// Returns a text that is equal for all names that are one name under `folding`. It uses Unicode's
// full case folding without rules of single languages (ß is SS, ı is not I), and canonical
// decomposition. Bytes that are not UTF-8 stay as they are. A file system may fold a little less
// (HFS+ tells ß from SS) or more (HFS+ does not see zero-width characters).
std::string FoldedName(absl::string_view name, const NameFolding& folding);

// Returns FAILED_PRECONDITION, with both names, when two entries of the manifest are one name under
// `folding`. There the second would overwrite the first.
absl::Status CheckNameClashes(const Manifest& manifest, const NameFolding& folding);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_NAME_CLASH_H_
