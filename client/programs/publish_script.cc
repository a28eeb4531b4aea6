#include "client/programs/publish_script.h"

#include "absl/strings/str_cat.h"
#include "common/files/files.h"

namespace gpuctl {

std::string PublishScript(const std::string& partial, const std::string& final_dir) {
  // When another process is faster between these commands, mv puts ours into its directory.
  return absl::StrCat("if test -d ", final_dir, "; then rm -rf ", partial, "; else mv ", partial,
                      " ", final_dir, " && rm -rf ", final_dir, "/", BaseName(partial), "; fi");
}

}  // namespace gpuctl
