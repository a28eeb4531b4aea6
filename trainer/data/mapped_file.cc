#include "trainer/data/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

// What the handler of SIGBUS knows of a mapping. It may run at any moment, so that `begin` is set
// last and cleared first.
struct Slot {
  std::atomic<const char*> begin{nullptr};
  size_t size = 0;
  int fd = -1;
  const char* path = nullptr;
};

constexpr int kSlots = 16;
Slot slots[kSlots];
std::mutex slots_mutex;

void Say(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody listens
}

// Calls only what a signal handler may call.
void EndWithWords(const Slot& slot) {
  struct stat info {};
  const bool cut = ::fstat(slot.fd, &info) == 0 && static_cast<size_t>(info.st_size) < slot.size;
  Say("gpuctl-trainer: read data ");
  Say(slot.path);
  Say(cut ? ": it was cut short while it was in use\n" : ": its disk cannot be read\n");
  ::_exit(static_cast<int>(cut ? ExitCode::kBadData : ExitCode::kIo));
}

void OnBusError(int signal, siginfo_t* info, void*) {
  if (info->si_code <= 0) {  // a process sent it
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  const char* const at = static_cast<const char*>(info->si_addr);
  for (const Slot& slot : slots) {
    const char* const begin = slot.begin.load();
    if (begin != nullptr && at >= begin && at < begin + slot.size) EndWithWords(slot);
  }
  ::signal(signal, SIG_DFL);  // the access comes again, and ends the process
}

// Returns the slot of a mapping; -1: all are in use.
int Watch(const void* begin, size_t size, int fd, const std::string& path) {
  const std::lock_guard<std::mutex> lock(slots_mutex);
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots[i];
    if (slot.begin.load() != nullptr) continue;
    slot.size = size;
    slot.fd = fd;
    slot.path = ::strdup(Printable(path).c_str());
    slot.begin.store(static_cast<const char*>(begin));
    return i;
  }
  return -1;
}

void Unwatch(int number) {
  const std::lock_guard<std::mutex> lock(slots_mutex);
  Slot& slot = slots[number];
  slot.begin.store(nullptr);
  ::free(const_cast<char*>(std::exchange(slot.path, nullptr)));
}

}  // namespace

void TellOfUnreadableFiles() {
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  if (!Exists(path)) throw DataError("read data " + path + ": no such file");
  const int fd = OpenRegularFile(path);
  struct stat info {};
  if (::fstat(fd, &info) == 0) size_ = static_cast<size_t>(info.st_size);
  void* const mapped = size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0) : nullptr;
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    // Without addresses for it the file is no better the next time.
    throw Error(ExitCode::kIo, "map " + path + ": " + std::strerror(error));
  }
  fd_ = fd;
  bytes_ = mapped;
  if (mapped != nullptr) slot_ = Watch(mapped, size_, fd, path);
}

MappedFile::~MappedFile() {
  if (slot_ >= 0) Unwatch(slot_);
  if (bytes_ != nullptr) ::munmap(bytes_, size_);
  ::close(fd_);
}

void MappedFile::CheckWhole() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw IoError("stat", path_, errno);
  if (static_cast<size_t>(info.st_size) >= size_) return;
  throw DataError("read data " + path_ + ": it was cut short while it was in use");
}

}  // namespace gpuctl::trainer
