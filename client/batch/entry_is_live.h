// Conditions in SQL that several statements about batches share.
#ifndef GPUCTL_CLIENT_BATCH_ENTRY_IS_LIVE_H_
#define GPUCTL_CLIENT_BATCH_ENTRY_IS_LIVE_H_

// True for an entry `e` whose run `r` (a LEFT JOIN) may still do something: it is being started,
// its end is not known, or gpuctl keep resumes it.
#define GPUCTL_ENTRY_IS_LIVE                                                    \
  "(e.state = 'starting' OR (e.state = 'started' AND r.run_id IS NOT NULL AND " \
  "(r.end_state IS NULL OR (r.end_cause = 'preempted' AND e.followed < e.resumes))))"

// Selects the ids of all such entries. It begins at the entries and runs that are live, and so does
// not grow with those that are over.
#define GPUCTL_LIVE_ENTRY_IDS                                                                  \
  "SELECT entry_id FROM batch_entries WHERE state = 'starting' "                               \
  "UNION SELECT e.entry_id FROM runs r CROSS JOIN batch_attempts a ON a.run_id = r.run_id "    \
  "CROSS JOIN batch_entries e ON e.entry_id = a.entry_id AND e.run_id = r.run_id "             \
  "WHERE r.end_state IS NULL AND e.state = 'started' "                                         \
  "UNION SELECT e.entry_id FROM batch_entries e CROSS JOIN runs r ON r.run_id = e.run_id "     \
  "WHERE e.state = 'started' AND e.outcome = '' AND e.followed < e.resumes AND r.end_cause = " \
  "'preempted'"

#endif  // GPUCTL_CLIENT_BATCH_ENTRY_IS_LIVE_H_
