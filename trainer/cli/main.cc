// gpuctl-trainer: see `gpuctl-trainer --help` and README.md.

#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/cli/allocator.h"
#include "trainer/cli/commands.h"
#include "trainer/data/mapped_file.h"
#include "trainer/ranks/group.h"
#include "trainer/step/out_of_memory.h"

namespace {

using gpuctl::trainer::Error;
using gpuctl::trainer::ExitCode;

// Of several processes one that fails cannot wait for the others' operations to end.
int Ended(int code) {
  if (gpuctl::trainer::MustEndAtOnce()) gpuctl::trainer::EndAtOnce(code);
  return code;
}

int Fail(ExitCode code, const std::string& message, const std::string& hint) {
  std::fflush(stdout);
  std::fprintf(stderr, "gpuctl-trainer: %s\n", message.c_str());
  if (!hint.empty()) std::fprintf(stderr, "HINT: %s\n", hint.c_str());
  return Ended(static_cast<int>(code));
}

// Returns the exit code of a command that came to its end. What these print is their result.
int Finished(int code, const std::string& command) {
  const bool printed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  for (const char* prints : {"eval", "generate", "inspect", "bench", "preflight"}) {
    if (printed || code != 0 || command != prints) continue;
    return Fail(ExitCode::kIo, command + ": standard output did not take all of it", "");
  }
  return code;
}

int OutOfMemory(const std::string& command, const std::exception& error) {
  if (dynamic_cast<const std::system_error*>(&error) != nullptr) {
    return Fail(ExitCode::kTryAgain,
                "start a thread: the system has no memory, or no number, for it",
                command == "train" ? "lower train.threads, or raise the limit (ulimit -u)" : "");
  }
  return Fail(ExitCode::kTryAgain, "allocate: out of memory",
              command == "train" ? "lower train.micro_batch" : "");
}

// A library that finds no memory in a destructor ends the process here.
[[noreturn]] void Terminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    std::fputs("gpuctl-trainer: allocate: out of memory\n", stderr);
    std::_Exit(static_cast<int>(ExitCode::kTryAgain));
  } catch (...) {
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  std::set_terminate(Terminate);
  try {
    gpuctl::trainer::TuneAllocator();
    gpuctl::trainer::TellOfUnreadableFiles();
    const std::vector<std::string> words(argv + 1, argv + argc);
    return Finished(gpuctl::trainer::RunCommand(words), command);
  } catch (const Error& error) {
    return Fail(error.code(), error.what(), error.hint());
  } catch (const c10::Error& error) {
    if (gpuctl::trainer::IsOutOfMemory(error)) return OutOfMemory(command, error);
    return Fail(ExitCode::kBug, error.what_without_backtrace(), "please report this");
  } catch (const std::exception& error) {
    if (gpuctl::trainer::IsOutOfMemory(error)) return OutOfMemory(command, error);
    return Fail(ExitCode::kBug, error.what(), "please report this");
  } catch (...) {
    return Fail(ExitCode::kBug, "unknown failure", "please report this");
  }
}
