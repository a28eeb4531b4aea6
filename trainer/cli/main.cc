// gpuctl-trainer: see `gpuctl-trainer --help` and README.md.

#include <c10/util/Exception.h>

#include <cstdio>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/cli/commands.h"
#include "trainer/step/device.h"
#include "trainer/step/out_of_memory.h"

namespace {

using gpuctl::trainer::Error;
using gpuctl::trainer::ExitCode;

int Fail(ExitCode code, const std::string& message, const std::string& hint) {
  std::fflush(stdout);
  std::fprintf(stderr, "gpuctl-trainer: %s\n", message.c_str());
  if (!hint.empty()) std::fprintf(stderr, "HINT: %s\n", hint.c_str());
  return static_cast<int>(code);
}

int OutOfMemory() {
  return Fail(ExitCode::kTryAgain, "allocate: out of memory",
              "lower train.micro_batch; the result stays the same");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    gpuctl::trainer::TuneAllocator();
    return gpuctl::trainer::RunCommand(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const Error& error) {
    return Fail(error.code(), error.what(), error.hint());
  } catch (const c10::Error& error) {
    if (gpuctl::trainer::IsOutOfMemory(error)) return OutOfMemory();
    return Fail(ExitCode::kBug, error.what_without_backtrace(), "please report this");
  } catch (const std::exception& error) {
    if (gpuctl::trainer::IsOutOfMemory(error)) return OutOfMemory();
    return Fail(ExitCode::kBug, error.what(), "please report this");
  } catch (...) {
    return Fail(ExitCode::kBug, "unknown failure", "please report this");
  }
}
