// The parts of a Follower that other threads use. Only the files of the Follower include this.
#ifndef GPUCTL_CLIENT_STREAMS_FOLLOWER_LIVE_H_
#define GPUCTL_CLIENT_STREAMS_FOLLOWER_LIVE_H_

#include <memory>

#include "client/link/link.h"
#include "client/streams/mirror.h"
#include "common/base/mutex.h"

namespace gpuctl {

struct FollowerLive {
  Mutex mutex;
  CondVar changed;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  Link* link ABSL_GUARDED_BY(mutex) = nullptr;
  bool suspended ABSL_GUARDED_BY(mutex) = false;
  bool released ABSL_GUARDED_BY(mutex) = false;           // Follow does not use the mirror
  std::shared_ptr<Mirror> parked ABSL_GUARDED_BY(mutex);  // the mirror, while a link is made

  // True when Follow must rest, or end.
  bool resting() {
    MutexLock lock(mutex);
    return suspended || stop;
  }
  bool stopped() {
    MutexLock lock(mutex);
    return stop;
  }
  // Sets the link that Stop breaks; null for none.
  void SetLink(Link* current) {
    MutexLock lock(mutex);
    link = current;
    if ((stop || suspended) && link != nullptr) link->Break();
  }
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_FOLLOWER_LIVE_H_
