#include "trainer/interchange/publish.h"

#include <unistd.h>

#include <exception>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

// Returns `path` without slashes at its end.
std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Each process has a name of its own, so that two of them do not write into one file.
std::string TemporaryName(const std::string& path) {
  return path + ".partial-" + std::to_string(::getpid());
}

void SyncParent(const std::string& path) {
  const size_t slash = path.rfind('/');
  SyncDirectory(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
}

void TryToRemove(const std::string& path) {
  try {
    RemoveTree(path);
  } catch (const std::exception&) {
    // The error that led here is the one to tell.
  }
}

}  // namespace

NewFile::NewFile(const std::string& path) : path_(path), temporary_(TemporaryName(path)) {
  if (path.empty() || path.back() == '/' || IsDirectory(path)) {
    throw ConfigError("write \"" + path + "\": it is a folder, and must be a file");
  }
  // The new file takes the place of what is there, also of a device.
  if (Exists(path) && !IsFile(path)) {
    throw ConfigError("write \"" + path + "\": something else than a file is there");
  }
  file_ = std::make_unique<OutputFile>(temporary_);
}

NewFile::~NewFile() {
  if (file_ == nullptr) return;
  file_.reset();
  TryToRemove(temporary_);
}

void NewFile::Write(const void* bytes, size_t size) {
  file_->Write(bytes, size);
  written_ += size;
}

void NewFile::Publish() {
  file_->Close();
  Rename(temporary_, path_);
  file_.reset();
  SyncParent(path_);
}

NewFolder::NewFolder(const std::string& path)
    : path_(WithoutSlashes(path)), temporary_(TemporaryName(path_)) {
  if (path_.empty() || Exists(path_)) {
    throw ConfigError("write \"" + path_ + "\": something is there already",
                      "name a folder that does not exist");
  }
  MakeDirectory(temporary_);
}

NewFolder::~NewFolder() {
  if (!published_) TryToRemove(temporary_);
}

void NewFolder::Publish() {
  SyncDirectory(temporary_);
  Rename(temporary_, path_);
  published_ = true;
  SyncParent(path_);
}

}  // namespace gpuctl::trainer
