// What the text of a Python script says of how it is run and what it saves. Pure.
#ifndef GPUCTL_CLIENT_GUESS_PYTHON_SCRIPT_H_
#define GPUCTL_CLIENT_GUESS_PYTHON_SCRIPT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

struct PythonScript {
  bool has_inline_dependencies = false;  // a header as of PEP 723
  bool uses_accelerate = false;
  bool uses_hf_trainer = false;  // of transformers or trl
  bool uses_lightning = false;
  bool uses_torch_distributed = false;  // a process group, but none of the three above
  bool is_program = false;              // __main__, or a parser of arguments
  // Patterns of its checkpoints, relative to where it runs, and the words of the script that say
  // so.
  std::vector<std::string> checkpoints;
  std::string saved_by;
};

PythonScript ReadPythonScript(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_GUESS_PYTHON_SCRIPT_H_
