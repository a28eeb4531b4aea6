// Asks a node whether the built-in trainer can be compiled there: trainer/build.sh --check.
#ifndef GPUCTL_CLIENT_TRAINER_TORCH_CHECK_H_
#define GPUCTL_CLIENT_TRAINER_TORCH_CHECK_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/link/link.h"

namespace gpuctl {

struct TorchAnswer {
  bool can_build = false;
  bool has_cuda = false;  // the torch that it would be compiled for can use GPUs
  std::string text;  // "torch 2.9.1 in /…, g++ … 12.2.0", or why it cannot be compiled there
  std::string fix;   // what would help; "" when it can
};

// Finds the answer in what the check printed; a login shell may print more. FAILED_PRECONDITION
// when there is none.
absl::StatusOr<TorchAnswer> ParseTorchAnswer(absl::string_view printed);

// Runs `script`, the content of build.sh, on the node. Of the job's variables `env` it gets those
// that choose Python, torch and compiler. UNAVAILABLE as OpenSshSession; FAILED_PRECONDITION when
// the node's shell gave no answer.
absl::StatusOr<TorchAnswer> AskForTorch(LinkFactory& links, absl::string_view script,
                                        const std::map<std::string, std::string>& env);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRAINER_TORCH_CHECK_H_
