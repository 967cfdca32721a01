"""Every field of the protocol: its type, its range, its unit. What servers check (`bounds`), and nothing else does, is here.

Lines: field, type (`*N`: a list of at most N, `map(...)*N`: N entries), range, unit. The range of a text is its length in
characters, that of bytes their number. `finite` reals must be numbers; those of `any` may also be NaN or infinite, which is
what a diverged model has. An enumeration takes the values that the protocol names. What is not set is within its range.

The ranges say what can be, not what is usual: who is outside has a defect, or lies. What depends on more than the field (slots
of this job, steps since the last word) is checked where that is known.
"""

from __future__ import annotations

NAMED: dict[str, float] = {
    "AIMASTER": 2**31 - 1,  # starts of one job's AIMaster; ids of commands begin with it
    "ANY": 2**63 - 1,
    "BYTES": 2**50,  # 1 PiB: sums over 8 000 of them stay below 2^63
    "COUNT": 2**40,
    "EPOCH": 2**53,  # of views; numbers of cuts, of scalings, of events
    "FILES": 1_000_000,
    "INDEX": 999_999,  # of a role
    "INT32": 2**31 - 1,
    "LINE": 4_000,  # one line of text
    "LONG": 1_000_000,  # text of many lines
    "MANY": 100_000,
    "MEMBERS": 10_000,
    "MESSAGE": 64 * 2**20,  # what one message may hold
    "NAME": 2_000,
    "PATH": 8_192,
    "RATE": 1e12,
    "RECORDS": 2**50,  # of one file or dataset
    "SECONDS": 1e10,  # 300 years
    "SHARDS": 8_000_000,  # of one file, and damaged records of one shard: more do not fit into a message
    "SLOT": 2**16,
    "STEP": 2**53,  # exact in a double
    "TASK": 2**30,  # one for each start of a PS
    "TIME": 1e12,  # Unix seconds
}

TABLE = """
PsMember
  task                          int                  0..TASK            number
  name                          text                 0..NAME            characters
  address                       text                 0..NAME            characters
  incarnation                   text                 0..NAME            characters
WorkerMember
  name                          text                 0..NAME            characters
  incarnation                   text                 0..NAME            characters
View
  epoch                         int                  0..EPOCH           number
  ps                            message*MEMBERS      -                  -
  slot_map                      int*SLOT             0..TASK            task
  workers                       message*MEMBERS      -                  -
  live                          flag                 -                  -
  generation                    int                  0..EPOCH           number
  marked_slots                  int*SLOT             0..SLOT            slot
  backup_map                    int*SLOT             -1..TASK           task
  cut                           text*MANY            0..NAME            characters
RegisterRequest
  protocol_major                int                  0..1000            version
  protocol_minor                int                  0..1000            version
  job                           text                 0..NAME            characters
  role                          one-of               -                  -
  index                         int                  0..INDEX           number
  incarnation                   text                 0..200             characters
  address                       text                 0..NAME            characters
  pid                           int                  0..INT32           process
  host                          text                 0..NAME            characters
  known_epoch                   int                  0..EPOCH           number
  known_task                    int                  -1..TASK           task
  known_aimaster                int                  0..AIMASTER        number
  aimaster_proof                bytes                0..64              bytes
  tensorflow_version            text                 0..200             characters
  resident_slots                int*SLOT             0..SLOT            slot
  machine                       text                 0..NAME            characters
  pid_namespace                 text                 0..NAME            characters
  known                         message              -                  -
Known
  view                          message              -                  -
  prepared                      message              -                  -
  highest_epoch                 int                  0..EPOCH           number
  highest_task                  int                  -1..TASK           task
  served                        flag                 -                  -
  step                          int                  0..STEP            steps
  live_generation               int                  0..EPOCH           number
  marked_slots                  int*SLOT             0..SLOT            slot
  scaling                       int                  0..EPOCH           number
  moves                         message*MANY         -                  -
  catalogue                     message              -                  -
  remembered                    message*1000         -                  -
  data                          message*MANY         -                  -
  leaving                       flag                 -                  -
DataKnown
  dataset                       text                 0..NAME            characters
  rewinds                       int                  0..COUNT           number
  complete                      int                  0..COUNT           epochs
  held                          message*MANY         -                  -
  trained                       message*FILES        -                  -
  highest_lease                 int                  0..STEP            lease
  replayed_records              int                  0..RECORDS         records
  trained_records               int                  0..RECORDS         records
  skipped_records               int                  0..RECORDS         records
Trained
  epoch                         int                  0..COUNT           number
  first_rank                    int                  0..COUNT           number
  count                         int                  0..COUNT           visits
AgentSettings
  heartbeat_seconds             real                 0..SECONDS         seconds
  ps_heartbeat_limit_seconds    real                 0..SECONDS         seconds
  worker_heartbeat_limit_seconds real                0..SECONDS         seconds
  verify_copies                 flag                 -                  -
  copy_chunk_bytes              int                  0..BYTES           bytes
  dedup                         text                 0..NAME            characters
  standby_sessions_max          int                  0..MEMBERS         sessions
  lease_ahead_seconds           real                 0..SECONDS         seconds
  gazer_seconds                 real                 0..SECONDS         seconds
  trace_seconds                 real                 0..SECONDS         seconds
  trace_budget                  real                 0..1               share
  standby_delay_seconds         real                 0..SECONDS         seconds
  trace_delay_seconds           real                 0..SECONDS         seconds
  end_limit_seconds             real                 0..SECONDS         seconds
  cut                           text                 0..NAME            characters
  bad_records                   text                 0..200             characters
RegisterReply
  aimaster_incarnation          int                  0..AIMASTER        number
  view                          message              -                  -
  task                          int                  -1..TASK           task
  settings                      message              -                  -
  has_evaluator                 flag                 -                  -
  tracked                       map(NAME text)*MANY  0..NAME            characters
  catalogues                    text*1000            0..NAME            characters
  tell                          flag                 -                  -
  aimaster_proof                bytes                0..64              bytes
Variable
  name                          text                 0..NAME            characters
  container                     text                 0..NAME            characters
  dtype                         int                  0..1000            tensorflow.DataType
  shape                         int*254              -1..COUNT          elements
  slot                          int                  0..SLOT            slot
  reference                     flag                 -                  -
  update                        one-of               -                  -
  bitmap                        text                 0..NAME            characters
  bytes                         int                  0..BYTES           bytes
  saved_name                    text                 0..NAME            characters
  slice                         text                 0..LINE            characters
  declared_by                   text                 0..NAME            characters
  generation                    int                  0..EPOCH           number
Catalogue
  variables                     message*MANY         -                  -
  fingerprint                   text                 0..200             characters
  warnings                      text*1000            0..LINE            characters
  global_step                   text                 0..NAME            characters
Heartbeat
  step                          int                  0..STEP            steps
  steps_per_second              real                 0..100000          steps/s
  examples_per_second           real                 0..1000000000      examples/s
  step_seconds                  real                 0..SECONDS         seconds
  rss_bytes                     int                  0..BYTES           bytes
  cpu_seconds                   real                 0..SECONDS         seconds
  gate_waits                    int                  0..COUNT           runs
  training                      flag                 -                  -
  examples                      int                  0..RECORDS         examples
  last_step                     int                  0..STEP            steps
  epoch                         int                  0..EPOCH           number
  step_epoch                    int                  0..EPOCH           number
  step_age_seconds              real                 0..SECONDS         seconds
  crowd                         real                 0..1000000         threads/processor
  late_seconds                  real                 0..SECONDS         seconds
  preparing                     flag                 -                  -
CopyResult
  bytes                         int                  0..BYTES           bytes
  remaining_bytes               int                  0..BYTES           bytes
  seconds                       real                 0..SECONDS         seconds
  variables                     int                  0..COUNT           variables
  checksummed                   int                  0..COUNT           variables
  skipped                       text*MANY            0..NAME            characters
Ack
  command_id                    int                  0..ANY             number
  ok                            flag                 -                  -
  error                         text                 0..LONG            characters
  copy                          message              -                  -
  step                          int                  0..STEP            steps
  files                         message*MANY         -                  -
  backup_json                   text                 0..MESSAGE         characters
PauseReport
  scaling_id                    int                  0..EPOCH           number
  pause_seconds                 real                 0..SECONDS         seconds
  median_step_seconds           real                 0..SECONDS         seconds
  gate_waits                    int                  0..COUNT           runs
  steps                         int                  0..STEP            steps
  cause                         text                 0..LINE            characters
  loss                          flag                 -                  -
MetricsReport
  metrics                       map(NAME real)*1000  any                -
  step                          int                  0..STEP            steps
PsTrouble
  tasks                         int*MEMBERS          0..TASK            task
  error                         text                 0..LONG            characters
  epoch                         int                  0..EPOCH           number
  step                          int                  0..STEP            steps
ModelLive
  generation                    int                  0..EPOCH           number
  step                          int                  0..STEP            steps
  ledger                        bytes                0..MESSAGE         bytes
  fresh                         flag                 -                  -
  cut                           text*MANY            0..NAME            characters
BackupReport
  guard                         int                  0..ANY             number
  slots                         int*SLOT             0..SLOT            slot
  bytes                         int                  0..BYTES           bytes
  full_bytes                    int                  0..BYTES           bytes
  seconds                       real                 0..SECONDS         seconds
  age_seconds                   real                 0..SECONDS         seconds
  first                         flag                 -                  -
  error                         text                 0..LONG            characters
  next_slots                    int*SLOT             0..SLOT            slot
BackupWish
  peer                          flag                 -                  -
  peer_seconds                  real                 0..SECONDS         seconds
  peer_steps                    int                  0..STEP            steps
  disk_path                     text                 0..PATH            characters
  disk_seconds                  real                 0..SECONDS         seconds
BackupFile
  name                          text                 0..PATH            characters
  bytes                         int                  0..BYTES           bytes
  crc32                         int                  0..4294967295      checksum
  slot                          int                  0..SLOT            slot
  rows                          int                  0..COUNT           rows
  raw_bytes                     int                  0..BYTES           bytes
  whole                         flag                 -                  -
DataFile
  path                          text                 0..PATH            characters
  bytes                         int                  0..BYTES           bytes
  records                       int                  0..RECORDS         records
Dataset
  name                          text                 0..NAME            characters
  files                         message*FILES        -                  -
  epochs                        int                  0..COUNT           epochs
  shuffle                       flag                 -                  -
  seed                          int                  -ANY..ANY          seed
  shard_records                 int                  0..RECORDS         records
  reader                        text                 0..LINE            characters
  set_aside                     flag                 -                  -
  purpose                       text                 0..200             characters
Lease
  id                            int                  0..STEP            lease
  kind                          one-of               -                  -
  file                          int                  0..FILES           number
  shard                         int                  -1..COUNT          number
  epoch                         int                  -1..COUNT          number
  first_record                  int                  0..RECORDS         records
  records                       int                  0..RECORDS         records
  begin_byte                    int                  0..BYTES           bytes
  end_byte                      int                  0..BYTES           bytes
  done                          int                  0..RECORDS         records
  seed                          int                  0..18446744073709551615 seed
  rank                          int                  0..COUNT           number
LeaseProgress
  lease                         int                  0..STEP            lease
  done                          int                  0..RECORDS         records
  skipped                       int*SHARDS           0..RECORDS         place
LeaseFailure
  lease                         int                  0..STEP            lease
  error                         text                 0..LONG            characters
Scanned
  lease                         int                  0..STEP            lease
  begins                        int*SHARDS           0..BYTES           bytes
  records                       int*SHARDS           1..RECORDS         records
  end_byte                      int                  0..BYTES           bytes
DataRequest
  sequence                      int                  0..STEP            number
  dataset                       text                 0..NAME            characters
  declare                       message              -                  -
  progress                      message*MANY         -                  -
  returned                      int*MANY             0..STEP            lease
  failed                        message*MANY         -                  -
  scanned                       message*MANY         -                  -
  want                          int                  0..INT32           leases
  replayed_records              int                  0..RECORDS         records
  records_per_second            real                 0..RATE            records/s
  rewinds                       int                  0..COUNT           number
  beyond_records                int                  0..RECORDS         records
  handed_records                int                  0..RECORDS         records
DataReply
  sequence                      int                  0..STEP            number
  dataset                       text                 0..NAME            characters
  state                         one-of               -                  -
  leases                        message*MANY         -                  -
  fenced                        int*MANY             0..STEP            lease
  error                         text                 0..LONG            characters
  rewinds                       int                  0..COUNT           number
  retry_seconds                 real                 0..SECONDS         seconds
  complete                      int                  0..COUNT           epochs
MissingRequest
  incarnation                   text                 0..200             characters
  variables                     text*MANY            0..NAME            characters
  generation                    int                  0..EPOCH           number
  epoch                         int                  0..EPOCH           number
MissingReply
  verdict                       one-of               -                  -
  variables                     text*MANY            0..NAME            characters
PositionRequest
PositionReply
  ledger                        bytes                0..MESSAGE         bytes
ProcessSample
  cpu_seconds                   real                 0..SECONDS         seconds
  rss_bytes                     int                  0..BYTES           bytes
  working_set_bytes             int                  0..BYTES           bytes
  memory_limit_bytes            int                  0..ANY             bytes
  cpu_limit_cores               real                 0..1000000         cores
  throttled_seconds             real                 0..SECONDS         seconds
  oom_kills                     int                  0..COUNT           kills
  received_bytes                int                  0..ANY             bytes
  sent_bytes                    int                  0..ANY             bytes
  open_files                    int                  0..INT32           files
  threads                       int                  0..INT32           threads
  shared_limits                 flag                 -                  -
StepSample
  steps                         int                  0..COUNT           steps
  examples                      int                  0..RECORDS         examples
  median_seconds                real                 0..SECONDS         seconds
  p95_seconds                   real                 0..SECONDS         seconds
  longest_seconds               real                 0..SECONDS         seconds
  gate_wait_seconds             real                 0..SECONDS         seconds
  input_wait_seconds            real                 0..SECONDS         seconds
  histogram                     int*1000             0..COUNT           steps
  training                      flag                 -                  -
  histogram_seconds             real                 0..SECONDS         seconds
Trace
  step                          int                  0..STEP            steps
  epoch                         int                  0..EPOCH           number
  seconds                       real                 0..SECONDS         seconds
  usual_seconds                 real                 0..SECONDS         seconds
  devices                       message*MEMBERS      -                  -
  ops                           message*1000         -                  -
  edges                         message*MEMBERS      -                  -
  slots                         message*SLOT         -                  -
  input_seconds                 real                 0..SECONDS         seconds
DeviceTime
  role                          text                 0..NAME            characters
  busy_seconds                  real                 0..SECONDS         seconds
  op_seconds                    real                 0..SECONDS         seconds
  ops                           int                  0..COUNT           operations
OpTime
  name                          text                 0..LINE            characters
  type                          text                 0..NAME            characters
  role                          text                 0..NAME            characters
  seconds                       real                 0..SECONDS         seconds
  slot                          int                  -1..SLOT           slot
EdgeUse
  source                        text                 0..NAME            characters
  target                        text                 0..NAME            characters
  bytes                         int                  0..BYTES           bytes
  tensors                       int                  0..COUNT           tensors
  seconds                       real                 0..SECONDS         seconds
SlotUse
  slot                          int                  0..SLOT            slot
  lookup_seconds                real                 0..SECONDS         seconds
  update_seconds                real                 0..SECONDS         seconds
  lookup_rows                   int                  0..COUNT           rows
  update_rows                   int                  0..COUNT           rows
  bytes                         int                  0..BYTES           bytes
SlotRows
  slot                          int                  0..SLOT            slot
  rows_touched                  int                  0..COUNT           rows
GazerReport
  interval_seconds              real                 0..SECONDS         seconds
  process                       message              -                  -
  steps                         message              -                  -
  traces                        message*100          -                  -
  touched                       message*SLOT         -                  -
  trouble                       text                 0..LONG            characters
Saved
  step                          int                  0..STEP            steps
Refusal
  reason                        text                 0..LONG            characters
Notice
  code                          text                 0..200             characters
  text                          text                 0..LONG            characters
  remedy                        text                 0..LONG            characters
  mended                        flag                 -                  -
Finished
  left                          flag                 -                  -
  had_session                   flag                 -                  -
  exit_code                     int                  -INT32..INT32      exit code
  error                         text                 0..LONG            characters
PassReport
  json                          text                 0..MESSAGE         characters
AgentMessage
  hello                         message              -                  -
  heartbeat                     message              -                  -
  ack                           message              -                  -
  catalogue                     message              -                  -
  pause                         message              -                  -
  metrics                       message              -                  -
  trouble                       message              -                  -
  live                          message              -                  -
  refusal                       message              -                  -
  finished                      message              -                  -
  passes                        message              -                  -
  backup                        message              -                  -
  backup_wish                   message              -                  -
  data                          message              -                  -
  gazer                         message              -                  -
  notice                        message              -                  -
  saved                         message              -                  -
Hello
  incarnation                   text                 0..200             characters
Publish
  view                          message              -                  -
ScalingNotice
  scaling_id                    int                  0..EPOCH           number
  phase                         one-of               -                  -
Mark
  slots                         int*SLOT             0..SLOT            slot
  tracked                       map(NAME text)*MANY  0..NAME            characters
Prepare
  view                          message              -                  -
  keep_marks                    flag                 -                  -
Pause
  lease_seconds                 real                 0..SECONDS         seconds
Resume
Commit
  view                          message              -                  -
  keep_marks                    flag                 -                  -
Lost
  tasks                         int*MEMBERS          0..TASK            task
  lease_seconds                 real                 0..SECONDS         seconds
Move
  variable                      message              -                  -
  source_task                   int                  -1..TASK           task
Copy
  phase                         one-of               -                  -
  scaling_id                    int                  0..EPOCH           number
  moves                         message*MANY         -                  -
  ps                            message*MEMBERS      -                  -
  tracked                       flag                 -                  -
  guarded                       flag                 -                  -
Destroy
  variables                     message*MANY         -                  -
  keep                          message              -                  -
Track
  variables                     message*MANY         -                  -
Guard
  id                            int                  0..ANY             number
  moves                         message*MANY         -                  -
  ps                            message*MEMBERS      -                  -
  seconds                       real                 0..SECONDS         seconds
  owned                         int*SLOT             0..SLOT            slot
  global_step                   text                 0..NAME            characters
  next_slots                    int*SLOT             0..SLOT            slot
  generation                    int                  0..EPOCH           number
  own_task                      int                  -1..TASK           task
Freeze
Fetch
  moves                         message*MANY         -                  -
  ps                            message*MEMBERS      -                  -
  step                          int                  0..STEP            steps
  global_step                   text                 0..NAME            characters
CallOff
Look
  variables                     message*MANY         -                  -
Refresh
Hold
  lease_seconds                 real                 0..SECONDS         seconds
Promote
  slots                         int*SLOT             0..SLOT            slot
  step                          int                  0..STEP            steps
WriteBackup
  path                          text                 0..PATH            characters
  cut                           int                  0..EPOCH           number
  base                          flag                 -                  -
  variables                     message*MANY         -                  -
  aimaster_incarnation          int                  0..AIMASTER        number
  id                            text                 0..NAME            characters
  parent                        text                 0..NAME            characters
SealBackup
  path                          text                 0..PATH            characters
  cut                           int                  0..EPOCH           number
  manifest_json                 text                 0..MESSAGE         characters
  remove                        text*FILES           0..PATH            characters
RestoreBackup
  path                          text                 0..PATH            characters
  cut                           int                  0..EPOCH           number
  variables                     message*MANY         -                  -
  id                            text                 0..NAME            characters
FindBackup
  path                          text                 0..PATH            characters
  fingerprint                   text                 0..NAME            characters
  job                           text                 0..NAME            characters
  before                        int                  0..EPOCH           number
  most                          int                  0..INT32           manifests
Leave
  reason                        text                 0..LINE            characters
Command
  id                            int                  0..ANY             number
  mark                          message              -                  -
  prepare                       message              -                  -
  pause                         message              -                  -
  resume                        message              -                  -
  commit                        message              -                  -
  copy                          message              -                  -
  destroy                       message              -                  -
  leave                         message              -                  -
  lost                          message              -                  -
  track                         message              -                  -
  guard                         message              -                  -
  refresh                       message              -                  -
  hold                          message              -                  -
  promote                       message              -                  -
  write_backup                  message              -                  -
  seal_backup                   message              -                  -
  restore_backup                message              -                  -
  find_backup                   message              -                  -
  fetch                         message              -                  -
  freeze                        message              -                  -
  call_off                      message              -                  -
  look                          message              -                  -
Remember
  key                           text                 0..NAME            characters
  number                        int                  0..ANY             number
  value                         bytes                0..MESSAGE         bytes
MasterMessage
  aimaster_incarnation          int                  0..AIMASTER        number
  publish                       message              -                  -
  scaling                       message              -                  -
  command                       message              -                  -
  data                          message              -                  -
  remember                      message              -                  -
RoleStatus
  name                          text                 0..NAME            characters
  role                          one-of               -                  -
  state                         text                 0..NAME            characters
  pid                           int                  0..INT32           process
  incarnation                   text                 0..NAME            characters
  heartbeat                     message              -                  -
  heartbeat_age_seconds         real                 0..SECONDS         seconds
  task                          int                  -1..TASK           task
  slots                         int*SLOT             0..SLOT            slot
  bytes                         int                  0..ANY             bytes
  restarts                      int                  0..INT32           starts
  cpu_percent                   real                 0..RATE            percent
  process                       message              -                  -
  gazer                         map(NAME real)*1000  finite             -
  suspect                       text                 0..LINE            characters
SlotStatus
  slot                          int                  0..SLOT            slot
  task                          int                  -1..TASK           task
  bytes                         int                  0..ANY             bytes
  gazer                         map(NAME real)*1000  finite             -
ScalingStatus
  id                            int                  0..EPOCH           number
  kind                          text                 0..NAME            characters
  role                          text                 0..NAME            characters
  from_count                    int                  -1..INT32          pods
  to_count                      int                  -1..INT32          pods
  state                         text                 0..NAME            characters
  detail                        text                 0..LINE            characters
  outcome                       text                 0..NAME            characters
  reason                        text                 0..LONG            characters
  epoch                         int                  0..EPOCH           number
  bytes_moved                   int                  0..ANY             bytes
  bytes_resent                  int                  0..ANY             bytes
  slots_moved                   int                  0..SLOT            slots
  pause_seconds                 real*MEMBERS         0..SECONDS         seconds
  seconds                       real                 0..SECONDS         seconds
  gate_waits                    int                  0..ANY             runs
StatusRequest
DataStatus
  name                          text                 0..NAME            characters
  purpose                       text                 0..NAME            characters
  records                       int                  0..ANY             records
  trained                       int                  0..ANY             records
  leased                        int                  0..ANY             records
  repeated                      int                  0..ANY             records
  stale                         int                  0..ANY             records
  epoch                         int                  0..COUNT           number
  epochs                        int                  0..COUNT           epochs
  set_aside                     int                  0..ANY             records
  skipped                       int                  0..ANY             records
  repeated_at_least             int                  0..ANY             records
BackupStatus
  peer                          flag                 -                  -
  unprotected_slots             int*SLOT             0..SLOT            slot
  oldest_seconds                real                 0..SECONDS         seconds
  disk_path                     text                 0..PATH            characters
  disk_cut                      int                  0..EPOCH           number
  disk_seconds                  real                 0..SECONDS         seconds
  error                         text                 0..LONG            characters
  bytes_sent                    int                  0..ANY             bytes
  refreshes                     int                  0..COUNT           refreshes
  holder                        text                 0..NAME            characters
StatusReply
  job                           text                 0..NAME            characters
  state                         text                 0..NAME            characters
  epoch                         int                  0..EPOCH           number
  step                          int                  0..STEP            steps
  last_step                     int                  0..STEP            steps
  examples_per_second           real                 0..RATE            examples/s
  seconds                       real                 0..SECONDS         seconds
  roles                         message*MEMBERS      -                  -
  scalings                      message*MEMBERS      -                  -
  slot_map                      int*SLOT             0..TASK            task
  metrics                       map(NAME real)*1000  finite             -
  aimaster_incarnation          int                  0..AIMASTER        number
  slots                         int                  0..SLOT            slots
  failure                       text                 0..LONG            characters
  steps_per_second              real                 0..RATE            steps/s
  live                          flag                 -                  -
  data                          message*MANY         -                  -
  backup                        message              -                  -
  slot_load                     message*SLOT         -                  -
  dashboard                     text                 0..LINE            characters
  autoscale                     text                 0..NAME            characters
  notices                       message*1000         -                  -
SeriesRequest
  subjects                      text*MANY            0..NAME            characters
  metrics                       text*1000            0..NAME            characters
  since                         real                 0..TIME            Unix seconds
  until                         real                 0..TIME            Unix seconds
  points                        int                  0..INT32           points
SeriesLine
  subject                       text                 0..NAME            characters
  metric                        text                 0..NAME            characters
  times                         real*FILES           0..TIME            Unix seconds
  means                         real*FILES           finite             -
  highest                       real*FILES           finite             -
SeriesReply
  lines                         message*FILES        -                  -
NoticeStatus
  notice                        message              -                  -
  roles                         text*1000            0..NAME            characters
  time                          real                 0..TIME            Unix seconds
ScaleRequest
  ps                            int                  -INT32..INT32      pods
  workers                       int                  -INT32..INT32      pods
  rebalance                     flag                 -                  -
  replace                       text                 0..NAME            characters
  dry_run                       flag                 -                  -
  reason                        text                 0..LONG            characters
ScaleReply
  scaling_id                    int                  0..EPOCH           number
  message                       text                 0..LONG            characters
  plan_json                     text                 0..MESSAGE         characters
HoldRequest
  hold                          flag                 -                  -
  reason                        text                 0..LONG            characters
HoldReply
  hold                          flag                 -                  -
  autoscale                     flag                 -                  -
DecisionsRequest
  after                         int                  -1..ANY            number
  limit                         int                  0..INT32           decisions
  preview                       flag                 -                  -
DecisionsReply
  decisions                     text*1000            0..MESSAGE         characters
EventsRequest
  after                         int                  0..ANY             number
  follow                        flag                 -                  -
Event
  sequence                      int                  0..EPOCH           number
  time                          real                 0..TIME            Unix seconds
  type                          text                 0..NAME            characters
  role                          text                 0..NAME            characters
  epoch                         int                  0..EPOCH           number
  json                          text                 0..MESSAGE         characters
CatalogueRequest
GraphReply
  catalogue                     message              -                  -
  passes_json                   text                 0..MESSAGE         characters
FinishRequest
  status                        text                 0..NAME            characters
  reason                        text                 0..LONG            characters
FinishReply
Pod
  name                          text                 0..NAME            characters
  role                          one-of               -                  -
  index                         int                  -INT32..INT32      number
  resources                     message              -                  -
Resources
  cpu                           real                 0..1000000         cores
  memory_bytes                  int                  0..BYTES           bytes
ResizeRequest
  name                          text                 0..NAME            characters
  resources                     message              -                  -
PodStatus
  name                          text                 0..NAME            characters
  state                         text                 0..NAME            characters
  pid                           int                  0..INT32           process
  exit_code                     int                  -INT32..INT32      exit code
  restarting                    flag                 -                  -
  restarts                      int                  0..INT32           starts
  deleted                       flag                 -                  -
  last_line                     text                 0..LONG            characters
  cause                         text                 0..LINE            characters
  resources                     message              -                  -
PodsReply
  pods                          message*MEMBERS      -                  -
PodRequest
  name                          text                 0..NAME            characters
  grace_seconds                 real                 -SECONDS..SECONDS  seconds
PodEnd
  name                          text                 0..NAME            characters
  pid                           int                  0..INT32           process
  exit_code                     int                  -INT32..INT32      exit code
PodReply
WatchRequest
"""
