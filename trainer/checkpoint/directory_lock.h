// Keeps a second trainer out of a checkpoint directory.

#ifndef TRAINER_CHECKPOINT_DIRECTORY_LOCK_H_
#define TRAINER_CHECKPOINT_DIRECTORY_LOCK_H_

#include <string>

namespace gpuctl::trainer {

// Holds an flock(2) of the directory itself, so that nothing lies there because of it, and it ends
// with the process, however that ends. A file system without such locks lets everyone in.
class DirectoryLock {
 public:
  // Takes the lock of a directory that is there; of "" or a missing one it takes none. Throws
  // Error(kBadConfig) when another process holds it, Error(kIo).
  explicit DirectoryLock(std::string path);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  // Makes the directory, and takes its lock, if the constructor took none. Throws like the
  // constructor.
  void MakeAndTake();

 private:
  void Take();

  const std::string path_;
  int fd_ = -1;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_DIRECTORY_LOCK_H_
