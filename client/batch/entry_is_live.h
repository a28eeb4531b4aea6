// A condition in SQL that several statements about batches share.
#ifndef GPUCTL_CLIENT_BATCH_ENTRY_IS_LIVE_H_
#define GPUCTL_CLIENT_BATCH_ENTRY_IS_LIVE_H_

// True for an entry `e` whose run `r` (a LEFT JOIN) may still do something: it is being started,
// its end is not known, or gpuctl keep resumes it.
#define GPUCTL_ENTRY_IS_LIVE                                                    \
  "(e.state = 'starting' OR (e.state = 'started' AND r.run_id IS NOT NULL AND " \
  "(r.end_state IS NULL OR (r.end_cause = 'preempted' AND e.followed < e.resumes))))"

#endif  // GPUCTL_CLIENT_BATCH_ENTRY_IS_LIVE_H_
