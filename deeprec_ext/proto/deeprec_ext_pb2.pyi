from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    PS: _ClassVar[Role]
    CHIEF: _ClassVar[Role]
    WORKER: _ClassVar[Role]
    EVALUATOR: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
PS: Role
CHIEF: Role
WORKER: Role
EVALUATOR: Role
RANGE_FIELD_NUMBER: _ClassVar[int]
range: _descriptor.FieldDescriptor

class PsMember(_message.Message):
    __slots__ = ("task", "name", "address", "incarnation")
    TASK_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    task: int
    name: str
    address: str
    incarnation: str
    def __init__(self, task: _Optional[int] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class WorkerMember(_message.Message):
    __slots__ = ("name", "incarnation", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: str
    address: str
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("epoch", "ps", "slot_map", "workers", "live", "generation", "marked_slots", "backup_map", "cut")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PS_FIELD_NUMBER: _ClassVar[int]
    SLOT_MAP_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MARKED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    BACKUP_MAP_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    ps: _containers.RepeatedCompositeFieldContainer[PsMember]
    slot_map: _containers.RepeatedScalarFieldContainer[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerMember]
    live: bool
    generation: int
    marked_slots: _containers.RepeatedScalarFieldContainer[int]
    backup_map: _containers.RepeatedScalarFieldContainer[int]
    cut: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., ps: _Optional[_Iterable[_Union[PsMember, _Mapping]]] = ..., slot_map: _Optional[_Iterable[int]] = ..., workers: _Optional[_Iterable[_Union[WorkerMember, _Mapping]]] = ..., live: bool = ..., generation: _Optional[int] = ..., marked_slots: _Optional[_Iterable[int]] = ..., backup_map: _Optional[_Iterable[int]] = ..., cut: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("protocol_major", "protocol_minor", "job", "role", "index", "incarnation", "address", "pid", "host", "known_epoch", "known_task", "known_aimaster", "aimaster_proof", "tensorflow_version", "resident_slots", "machine", "pid_namespace", "machine_kind", "known")
    PROTOCOL_MAJOR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TASK_FIELD_NUMBER: _ClassVar[int]
    KNOWN_AIMASTER_FIELD_NUMBER: _ClassVar[int]
    AIMASTER_PROOF_FIELD_NUMBER: _ClassVar[int]
    TENSORFLOW_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    PID_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MACHINE_KIND_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    protocol_major: int
    protocol_minor: int
    job: str
    role: Role
    index: int
    incarnation: str
    address: str
    pid: int
    host: str
    known_epoch: int
    known_task: int
    known_aimaster: int
    aimaster_proof: bytes
    tensorflow_version: str
    resident_slots: _containers.RepeatedScalarFieldContainer[int]
    machine: str
    pid_namespace: str
    machine_kind: str
    known: Known
    def __init__(self, protocol_major: _Optional[int] = ..., protocol_minor: _Optional[int] = ..., job: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., index: _Optional[int] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ..., host: _Optional[str] = ..., known_epoch: _Optional[int] = ..., known_task: _Optional[int] = ..., known_aimaster: _Optional[int] = ..., aimaster_proof: _Optional[bytes] = ..., tensorflow_version: _Optional[str] = ..., resident_slots: _Optional[_Iterable[int]] = ..., machine: _Optional[str] = ..., pid_namespace: _Optional[str] = ..., machine_kind: _Optional[str] = ..., known: _Optional[_Union[Known, _Mapping]] = ...) -> None: ...

class Known(_message.Message):
    __slots__ = ("view", "prepared", "highest_epoch", "highest_task", "served", "step", "live_generation", "marked_slots", "scaling", "moves", "catalogue", "remembered", "data", "leaving")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_TASK_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LIVE_GENERATION_FIELD_NUMBER: _ClassVar[int]
    MARKED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    SCALING_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    CATALOGUE_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    view: View
    prepared: View
    highest_epoch: int
    highest_task: int
    served: bool
    step: int
    live_generation: int
    marked_slots: _containers.RepeatedScalarFieldContainer[int]
    scaling: int
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    catalogue: Catalogue
    remembered: _containers.RepeatedCompositeFieldContainer[Remember]
    data: _containers.RepeatedCompositeFieldContainer[DataKnown]
    leaving: bool
    def __init__(self, view: _Optional[_Union[View, _Mapping]] = ..., prepared: _Optional[_Union[View, _Mapping]] = ..., highest_epoch: _Optional[int] = ..., highest_task: _Optional[int] = ..., served: bool = ..., step: _Optional[int] = ..., live_generation: _Optional[int] = ..., marked_slots: _Optional[_Iterable[int]] = ..., scaling: _Optional[int] = ..., moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., catalogue: _Optional[_Union[Catalogue, _Mapping]] = ..., remembered: _Optional[_Iterable[_Union[Remember, _Mapping]]] = ..., data: _Optional[_Iterable[_Union[DataKnown, _Mapping]]] = ..., leaving: bool = ...) -> None: ...

class DataKnown(_message.Message):
    __slots__ = ("dataset", "rewinds", "complete", "held", "trained", "highest_lease", "replayed_records", "trained_records", "skipped_records")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    REWINDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_LEASE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    TRAINED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    rewinds: int
    complete: int
    held: _containers.RepeatedCompositeFieldContainer[Lease]
    trained: _containers.RepeatedCompositeFieldContainer[Trained]
    highest_lease: int
    replayed_records: int
    trained_records: int
    skipped_records: int
    def __init__(self, dataset: _Optional[str] = ..., rewinds: _Optional[int] = ..., complete: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., trained: _Optional[_Iterable[_Union[Trained, _Mapping]]] = ..., highest_lease: _Optional[int] = ..., replayed_records: _Optional[int] = ..., trained_records: _Optional[int] = ..., skipped_records: _Optional[int] = ...) -> None: ...

class Trained(_message.Message):
    __slots__ = ("epoch", "first_rank", "count")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_RANK_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first_rank: int
    count: int
    def __init__(self, epoch: _Optional[int] = ..., first_rank: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class AgentSettings(_message.Message):
    __slots__ = ("heartbeat_seconds", "ps_heartbeat_limit_seconds", "worker_heartbeat_limit_seconds", "verify_copies", "copy_chunk_bytes", "dedup", "standby_sessions_max", "lease_ahead_seconds", "gazer_seconds", "trace_seconds", "trace_budget", "standby_delay_seconds", "trace_delay_seconds", "end_limit_seconds", "cut", "pack", "optimise", "lazy", "bad_records", "step_batch", "rate_scaling", "rate_warmup_steps", "sum_compression", "worker_batch_max", "disk_backup", "disk_backup_seconds", "disk_backup_keep", "rate_base")
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PS_HEARTBEAT_LIMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKER_HEARTBEAT_LIMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VERIFY_COPIES_FIELD_NUMBER: _ClassVar[int]
    COPY_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEDUP_FIELD_NUMBER: _ClassVar[int]
    STANDBY_SESSIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    LEASE_AHEAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GAZER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRACE_BUDGET_FIELD_NUMBER: _ClassVar[int]
    STANDBY_DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRACE_DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    END_LIMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    PACK_FIELD_NUMBER: _ClassVar[int]
    OPTIMISE_FIELD_NUMBER: _ClassVar[int]
    LAZY_FIELD_NUMBER: _ClassVar[int]
    BAD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    STEP_BATCH_FIELD_NUMBER: _ClassVar[int]
    RATE_SCALING_FIELD_NUMBER: _ClassVar[int]
    RATE_WARMUP_STEPS_FIELD_NUMBER: _ClassVar[int]
    SUM_COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_BATCH_MAX_FIELD_NUMBER: _ClassVar[int]
    DISK_BACKUP_FIELD_NUMBER: _ClassVar[int]
    DISK_BACKUP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DISK_BACKUP_KEEP_FIELD_NUMBER: _ClassVar[int]
    RATE_BASE_FIELD_NUMBER: _ClassVar[int]
    heartbeat_seconds: float
    ps_heartbeat_limit_seconds: float
    worker_heartbeat_limit_seconds: float
    verify_copies: bool
    copy_chunk_bytes: int
    dedup: str
    standby_sessions_max: int
    lease_ahead_seconds: float
    gazer_seconds: float
    trace_seconds: float
    trace_budget: float
    standby_delay_seconds: float
    trace_delay_seconds: float
    end_limit_seconds: float
    cut: str
    pack: str
    optimise: str
    lazy: str
    bad_records: str
    step_batch: str
    rate_scaling: str
    rate_warmup_steps: int
    sum_compression: str
    worker_batch_max: int
    disk_backup: str
    disk_backup_seconds: float
    disk_backup_keep: int
    rate_base: int
    def __init__(self, heartbeat_seconds: _Optional[float] = ..., ps_heartbeat_limit_seconds: _Optional[float] = ..., worker_heartbeat_limit_seconds: _Optional[float] = ..., verify_copies: bool = ..., copy_chunk_bytes: _Optional[int] = ..., dedup: _Optional[str] = ..., standby_sessions_max: _Optional[int] = ..., lease_ahead_seconds: _Optional[float] = ..., gazer_seconds: _Optional[float] = ..., trace_seconds: _Optional[float] = ..., trace_budget: _Optional[float] = ..., standby_delay_seconds: _Optional[float] = ..., trace_delay_seconds: _Optional[float] = ..., end_limit_seconds: _Optional[float] = ..., cut: _Optional[str] = ..., pack: _Optional[str] = ..., optimise: _Optional[str] = ..., lazy: _Optional[str] = ..., bad_records: _Optional[str] = ..., step_batch: _Optional[str] = ..., rate_scaling: _Optional[str] = ..., rate_warmup_steps: _Optional[int] = ..., sum_compression: _Optional[str] = ..., worker_batch_max: _Optional[int] = ..., disk_backup: _Optional[str] = ..., disk_backup_seconds: _Optional[float] = ..., disk_backup_keep: _Optional[int] = ..., rate_base: _Optional[int] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("aimaster_incarnation", "view", "task", "settings", "has_evaluator", "tracked", "catalogues", "tell", "aimaster_proof", "ring_secret", "begins_with")
    class TrackedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AIMASTER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    HAS_EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    TRACKED_FIELD_NUMBER: _ClassVar[int]
    CATALOGUES_FIELD_NUMBER: _ClassVar[int]
    TELL_FIELD_NUMBER: _ClassVar[int]
    AIMASTER_PROOF_FIELD_NUMBER: _ClassVar[int]
    RING_SECRET_FIELD_NUMBER: _ClassVar[int]
    BEGINS_WITH_FIELD_NUMBER: _ClassVar[int]
    aimaster_incarnation: int
    view: View
    task: int
    settings: AgentSettings
    has_evaluator: bool
    tracked: _containers.ScalarMap[str, str]
    catalogues: _containers.RepeatedScalarFieldContainer[str]
    tell: bool
    aimaster_proof: bytes
    ring_secret: bytes
    begins_with: int
    def __init__(self, aimaster_incarnation: _Optional[int] = ..., view: _Optional[_Union[View, _Mapping]] = ..., task: _Optional[int] = ..., settings: _Optional[_Union[AgentSettings, _Mapping]] = ..., has_evaluator: bool = ..., tracked: _Optional[_Mapping[str, str]] = ..., catalogues: _Optional[_Iterable[str]] = ..., tell: bool = ..., aimaster_proof: _Optional[bytes] = ..., ring_secret: _Optional[bytes] = ..., begins_with: _Optional[int] = ...) -> None: ...

class Variable(_message.Message):
    __slots__ = ("name", "container", "dtype", "shape", "slot", "reference", "update", "bitmap", "bytes", "saved_name", "slice", "state", "declared_by", "generation")
    class Update(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UPDATE_UNSPECIFIED: _ClassVar[Variable.Update]
        DENSE: _ClassVar[Variable.Update]
        ROWS: _ClassVar[Variable.Update]
    UPDATE_UNSPECIFIED: Variable.Update
    DENSE: Variable.Update
    ROWS: Variable.Update
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    BITMAP_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SAVED_NAME_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DECLARED_BY_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    container: str
    dtype: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    slot: int
    reference: bool
    update: Variable.Update
    bitmap: str
    bytes: int
    saved_name: str
    slice: str
    state: bool
    declared_by: str
    generation: int
    def __init__(self, name: _Optional[str] = ..., container: _Optional[str] = ..., dtype: _Optional[int] = ..., shape: _Optional[_Iterable[int]] = ..., slot: _Optional[int] = ..., reference: bool = ..., update: _Optional[_Union[Variable.Update, str]] = ..., bitmap: _Optional[str] = ..., bytes: _Optional[int] = ..., saved_name: _Optional[str] = ..., slice: _Optional[str] = ..., state: bool = ..., declared_by: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class Catalogue(_message.Message):
    __slots__ = ("variables", "fingerprint", "warnings", "global_step")
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    fingerprint: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    global_step: str
    def __init__(self, variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., fingerprint: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., global_step: _Optional[str] = ...) -> None: ...

class Declaration(_message.Message):
    __slots__ = ("catalogue", "batch_size", "lookups_per_example", "flops_per_example", "operations", "input", "no_checkpoints", "computes")
    CATALOGUE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LOOKUPS_PER_EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    FLOPS_PER_EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    NO_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    COMPUTES_FIELD_NUMBER: _ClassVar[int]
    catalogue: Catalogue
    batch_size: int
    lookups_per_example: float
    flops_per_example: float
    operations: int
    input: ModelInput
    no_checkpoints: bool
    computes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, catalogue: _Optional[_Union[Catalogue, _Mapping]] = ..., batch_size: _Optional[int] = ..., lookups_per_example: _Optional[float] = ..., flops_per_example: _Optional[float] = ..., operations: _Optional[int] = ..., input: _Optional[_Union[ModelInput, _Mapping]] = ..., no_checkpoints: bool = ..., computes: _Optional[_Iterable[str]] = ...) -> None: ...

class ModelInput(_message.Message):
    __slots__ = ("format", "files", "bytes", "columns", "bytes_per_example")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    format: str
    files: int
    bytes: int
    columns: int
    bytes_per_example: float
    def __init__(self, format: _Optional[str] = ..., files: _Optional[int] = ..., bytes: _Optional[int] = ..., columns: _Optional[int] = ..., bytes_per_example: _Optional[float] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("step", "steps_per_second", "examples_per_second", "step_seconds", "rss_bytes", "cpu_seconds", "gate_waits", "training", "examples", "last_step", "epoch", "step_epoch", "step_age_seconds", "crowd", "late_seconds", "preparing", "out_seconds")
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GATE_WAITS_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CROWD_FIELD_NUMBER: _ClassVar[int]
    LATE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREPARING_FIELD_NUMBER: _ClassVar[int]
    OUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    step: int
    steps_per_second: float
    examples_per_second: float
    step_seconds: float
    rss_bytes: int
    cpu_seconds: float
    gate_waits: int
    training: bool
    examples: int
    last_step: int
    epoch: int
    step_epoch: int
    step_age_seconds: float
    crowd: float
    late_seconds: float
    preparing: bool
    out_seconds: float
    def __init__(self, step: _Optional[int] = ..., steps_per_second: _Optional[float] = ..., examples_per_second: _Optional[float] = ..., step_seconds: _Optional[float] = ..., rss_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., gate_waits: _Optional[int] = ..., training: bool = ..., examples: _Optional[int] = ..., last_step: _Optional[int] = ..., epoch: _Optional[int] = ..., step_epoch: _Optional[int] = ..., step_age_seconds: _Optional[float] = ..., crowd: _Optional[float] = ..., late_seconds: _Optional[float] = ..., preparing: bool = ..., out_seconds: _Optional[float] = ...) -> None: ...

class CopyResult(_message.Message):
    __slots__ = ("bytes", "remaining_bytes", "seconds", "variables", "checksummed", "skipped")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    REMAINING_BYTES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMMED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    remaining_bytes: int
    seconds: float
    variables: int
    checksummed: int
    skipped: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bytes: _Optional[int] = ..., remaining_bytes: _Optional[int] = ..., seconds: _Optional[float] = ..., variables: _Optional[int] = ..., checksummed: _Optional[int] = ..., skipped: _Optional[_Iterable[str]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("command_id", "ok", "error", "copy", "step", "files", "backup_json")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BACKUP_JSON_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    ok: bool
    error: str
    copy: CopyResult
    step: int
    files: _containers.RepeatedCompositeFieldContainer[BackupFile]
    backup_json: str
    def __init__(self, command_id: _Optional[int] = ..., ok: bool = ..., error: _Optional[str] = ..., copy: _Optional[_Union[CopyResult, _Mapping]] = ..., step: _Optional[int] = ..., files: _Optional[_Iterable[_Union[BackupFile, _Mapping]]] = ..., backup_json: _Optional[str] = ...) -> None: ...

class PauseReport(_message.Message):
    __slots__ = ("scaling_id", "pause_seconds", "median_step_seconds", "gate_waits", "steps", "cause", "loss")
    SCALING_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GATE_WAITS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    scaling_id: int
    pause_seconds: float
    median_step_seconds: float
    gate_waits: int
    steps: int
    cause: str
    loss: bool
    def __init__(self, scaling_id: _Optional[int] = ..., pause_seconds: _Optional[float] = ..., median_step_seconds: _Optional[float] = ..., gate_waits: _Optional[int] = ..., steps: _Optional[int] = ..., cause: _Optional[str] = ..., loss: bool = ...) -> None: ...

class MetricsReport(_message.Message):
    __slots__ = ("metrics", "step")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    METRICS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.ScalarMap[str, float]
    step: int
    def __init__(self, metrics: _Optional[_Mapping[str, float]] = ..., step: _Optional[int] = ...) -> None: ...

class PsTrouble(_message.Message):
    __slots__ = ("tasks", "error", "epoch", "step")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedScalarFieldContainer[int]
    error: str
    epoch: int
    step: int
    def __init__(self, tasks: _Optional[_Iterable[int]] = ..., error: _Optional[str] = ..., epoch: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class ModelLive(_message.Message):
    __slots__ = ("generation", "step", "ledger", "fresh", "cut")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    generation: int
    step: int
    ledger: bytes
    fresh: bool
    cut: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., step: _Optional[int] = ..., ledger: _Optional[bytes] = ..., fresh: bool = ..., cut: _Optional[_Iterable[str]] = ...) -> None: ...

class BackupReport(_message.Message):
    __slots__ = ("guard", "slots", "bytes", "full_bytes", "seconds", "age_seconds", "first", "error", "next_slots")
    GUARD_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FULL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NEXT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    guard: int
    slots: _containers.RepeatedScalarFieldContainer[int]
    bytes: int
    full_bytes: int
    seconds: float
    age_seconds: float
    first: bool
    error: str
    next_slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, guard: _Optional[int] = ..., slots: _Optional[_Iterable[int]] = ..., bytes: _Optional[int] = ..., full_bytes: _Optional[int] = ..., seconds: _Optional[float] = ..., age_seconds: _Optional[float] = ..., first: bool = ..., error: _Optional[str] = ..., next_slots: _Optional[_Iterable[int]] = ...) -> None: ...

class BackupWish(_message.Message):
    __slots__ = ("peer", "peer_seconds", "peer_steps", "disk_path", "disk_seconds")
    PEER_FIELD_NUMBER: _ClassVar[int]
    PEER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PEER_STEPS_FIELD_NUMBER: _ClassVar[int]
    DISK_PATH_FIELD_NUMBER: _ClassVar[int]
    DISK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    peer: bool
    peer_seconds: float
    peer_steps: int
    disk_path: str
    disk_seconds: float
    def __init__(self, peer: bool = ..., peer_seconds: _Optional[float] = ..., peer_steps: _Optional[int] = ..., disk_path: _Optional[str] = ..., disk_seconds: _Optional[float] = ...) -> None: ...

class BackupFile(_message.Message):
    __slots__ = ("name", "bytes", "crc32", "slot", "rows", "raw_bytes", "whole")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RAW_BYTES_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    bytes: int
    crc32: int
    slot: int
    rows: int
    raw_bytes: int
    whole: bool
    def __init__(self, name: _Optional[str] = ..., bytes: _Optional[int] = ..., crc32: _Optional[int] = ..., slot: _Optional[int] = ..., rows: _Optional[int] = ..., raw_bytes: _Optional[int] = ..., whole: bool = ...) -> None: ...

class DataFile(_message.Message):
    __slots__ = ("path", "bytes", "records")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    path: str
    bytes: int
    records: int
    def __init__(self, path: _Optional[str] = ..., bytes: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...

class Dataset(_message.Message):
    __slots__ = ("name", "files", "epochs", "shuffle", "seed", "shard_records", "reader", "set_aside", "purpose", "in_turn", "content", "steps")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SHARD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    IN_TURN_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    files: _containers.RepeatedCompositeFieldContainer[DataFile]
    epochs: int
    shuffle: bool
    seed: int
    shard_records: int
    reader: str
    set_aside: bool
    purpose: str
    in_turn: bool
    content: str
    steps: bool
    def __init__(self, name: _Optional[str] = ..., files: _Optional[_Iterable[_Union[DataFile, _Mapping]]] = ..., epochs: _Optional[int] = ..., shuffle: bool = ..., seed: _Optional[int] = ..., shard_records: _Optional[int] = ..., reader: _Optional[str] = ..., set_aside: bool = ..., purpose: _Optional[str] = ..., in_turn: bool = ..., content: _Optional[str] = ..., steps: bool = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "kind", "file", "shard", "epoch", "first_record", "records", "begin_byte", "end_byte", "done", "seed", "rank")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Lease.Kind]
        SCAN: _ClassVar[Lease.Kind]
        DATA: _ClassVar[Lease.Kind]
    KIND_UNSPECIFIED: Lease.Kind
    SCAN: Lease.Kind
    DATA: Lease.Kind
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_RECORD_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_BYTE_FIELD_NUMBER: _ClassVar[int]
    END_BYTE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: Lease.Kind
    file: int
    shard: int
    epoch: int
    first_record: int
    records: int
    begin_byte: int
    end_byte: int
    done: int
    seed: int
    rank: int
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[_Union[Lease.Kind, str]] = ..., file: _Optional[int] = ..., shard: _Optional[int] = ..., epoch: _Optional[int] = ..., first_record: _Optional[int] = ..., records: _Optional[int] = ..., begin_byte: _Optional[int] = ..., end_byte: _Optional[int] = ..., done: _Optional[int] = ..., seed: _Optional[int] = ..., rank: _Optional[int] = ...) -> None: ...

class LeaseProgress(_message.Message):
    __slots__ = ("lease", "done", "skipped")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    lease: int
    done: int
    skipped: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lease: _Optional[int] = ..., done: _Optional[int] = ..., skipped: _Optional[_Iterable[int]] = ...) -> None: ...

class LeaseFailure(_message.Message):
    __slots__ = ("lease", "error")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lease: int
    error: str
    def __init__(self, lease: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class Scanned(_message.Message):
    __slots__ = ("lease", "begins", "records", "end_byte")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    END_BYTE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    begins: _containers.RepeatedScalarFieldContainer[int]
    records: _containers.RepeatedScalarFieldContainer[int]
    end_byte: int
    def __init__(self, lease: _Optional[int] = ..., begins: _Optional[_Iterable[int]] = ..., records: _Optional[_Iterable[int]] = ..., end_byte: _Optional[int] = ...) -> None: ...

class DataRequest(_message.Message):
    __slots__ = ("sequence", "dataset", "declare", "progress", "returned", "failed", "scanned", "want", "replayed_records", "records_per_second", "rewinds", "beyond_records", "handed_records", "composed_seconds", "holds_none", "need")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    DECLARE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    SCANNED_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    REWINDS_FIELD_NUMBER: _ClassVar[int]
    BEYOND_RECORDS_FIELD_NUMBER: _ClassVar[int]
    HANDED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMPOSED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_NONE_FIELD_NUMBER: _ClassVar[int]
    NEED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    dataset: str
    declare: Dataset
    progress: _containers.RepeatedCompositeFieldContainer[LeaseProgress]
    returned: _containers.RepeatedScalarFieldContainer[int]
    failed: _containers.RepeatedCompositeFieldContainer[LeaseFailure]
    scanned: _containers.RepeatedCompositeFieldContainer[Scanned]
    want: int
    replayed_records: int
    records_per_second: float
    rewinds: int
    beyond_records: int
    handed_records: int
    composed_seconds: float
    holds_none: bool
    need: int
    def __init__(self, sequence: _Optional[int] = ..., dataset: _Optional[str] = ..., declare: _Optional[_Union[Dataset, _Mapping]] = ..., progress: _Optional[_Iterable[_Union[LeaseProgress, _Mapping]]] = ..., returned: _Optional[_Iterable[int]] = ..., failed: _Optional[_Iterable[_Union[LeaseFailure, _Mapping]]] = ..., scanned: _Optional[_Iterable[_Union[Scanned, _Mapping]]] = ..., want: _Optional[int] = ..., replayed_records: _Optional[int] = ..., records_per_second: _Optional[float] = ..., rewinds: _Optional[int] = ..., beyond_records: _Optional[int] = ..., handed_records: _Optional[int] = ..., composed_seconds: _Optional[float] = ..., holds_none: bool = ..., need: _Optional[int] = ...) -> None: ...

class DataReply(_message.Message):
    __slots__ = ("sequence", "dataset", "state", "leases", "fenced", "error", "rewinds", "retry_seconds", "complete", "undeclared")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[DataReply.State]
        MORE: _ClassVar[DataReply.State]
        DRAINED: _ClassVar[DataReply.State]
        END: _ClassVar[DataReply.State]
    STATE_UNSPECIFIED: DataReply.State
    MORE: DataReply.State
    DRAINED: DataReply.State
    END: DataReply.State
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REWINDS_FIELD_NUMBER: _ClassVar[int]
    RETRY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    UNDECLARED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    dataset: str
    state: DataReply.State
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    fenced: _containers.RepeatedScalarFieldContainer[int]
    error: str
    rewinds: int
    retry_seconds: float
    complete: int
    undeclared: bool
    def __init__(self, sequence: _Optional[int] = ..., dataset: _Optional[str] = ..., state: _Optional[_Union[DataReply.State, str]] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., fenced: _Optional[_Iterable[int]] = ..., error: _Optional[str] = ..., rewinds: _Optional[int] = ..., retry_seconds: _Optional[float] = ..., complete: _Optional[int] = ..., undeclared: bool = ...) -> None: ...

class EpochRequest(_message.Message):
    __slots__ = ("incarnation", "dataset", "epoch", "seen", "known", "came_to", "first", "leaves", "begins", "passes", "restored")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    CAME_TO_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    dataset: str
    epoch: int
    seen: bytes
    known: int
    came_to: _containers.RepeatedScalarFieldContainer[str]
    first: int
    leaves: bool
    begins: bool
    passes: int
    restored: bytes
    def __init__(self, incarnation: _Optional[str] = ..., dataset: _Optional[str] = ..., epoch: _Optional[int] = ..., seen: _Optional[bytes] = ..., known: _Optional[int] = ..., came_to: _Optional[_Iterable[str]] = ..., first: _Optional[int] = ..., leaves: bool = ..., begins: bool = ..., passes: _Optional[int] = ..., restored: _Optional[bytes] = ...) -> None: ...

class EpochReply(_message.Message):
    __slots__ = ("came_to", "whole", "seen", "known", "begun", "trained", "rewinds")
    CAME_TO_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    REWINDS_FIELD_NUMBER: _ClassVar[int]
    came_to: _containers.RepeatedScalarFieldContainer[str]
    whole: bool
    seen: _containers.RepeatedScalarFieldContainer[bytes]
    known: int
    begun: bool
    trained: bool
    rewinds: int
    def __init__(self, came_to: _Optional[_Iterable[str]] = ..., whole: bool = ..., seen: _Optional[_Iterable[bytes]] = ..., known: _Optional[int] = ..., begun: bool = ..., trained: bool = ..., rewinds: _Optional[int] = ...) -> None: ...

class MissingRequest(_message.Message):
    __slots__ = ("incarnation", "variables", "generation", "epoch")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    variables: _containers.RepeatedScalarFieldContainer[str]
    generation: int
    epoch: int
    def __init__(self, incarnation: _Optional[str] = ..., variables: _Optional[_Iterable[str]] = ..., generation: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class MissingReply(_message.Message):
    __slots__ = ("verdict", "variables")
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERDICT_UNSPECIFIED: _ClassVar[MissingReply.Verdict]
        LATER: _ClassVar[MissingReply.Verdict]
        THERE: _ClassVar[MissingReply.Verdict]
        INITIALISE: _ClassVar[MissingReply.Verdict]
        RESTORE: _ClassVar[MissingReply.Verdict]
    VERDICT_UNSPECIFIED: MissingReply.Verdict
    LATER: MissingReply.Verdict
    THERE: MissingReply.Verdict
    INITIALISE: MissingReply.Verdict
    RESTORE: MissingReply.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    verdict: MissingReply.Verdict
    variables: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, verdict: _Optional[_Union[MissingReply.Verdict, str]] = ..., variables: _Optional[_Iterable[str]] = ...) -> None: ...

class DeclareRequest(_message.Message):
    __slots__ = ("incarnation", "declaration", "why_not")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    declaration: Declaration
    why_not: str
    def __init__(self, incarnation: _Optional[str] = ..., declaration: _Optional[_Union[Declaration, _Mapping]] = ..., why_not: _Optional[str] = ...) -> None: ...

class DeclareReply(_message.Message):
    __slots__ = ("heard",)
    HEARD_FIELD_NUMBER: _ClassVar[int]
    heard: bool
    def __init__(self, heard: bool = ...) -> None: ...

class PositionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PositionReply(_message.Message):
    __slots__ = ("ledger",)
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ledger: bytes
    def __init__(self, ledger: _Optional[bytes] = ...) -> None: ...

class ProcessSample(_message.Message):
    __slots__ = ("cpu_seconds", "rss_bytes", "working_set_bytes", "memory_limit_bytes", "cpu_limit_cores", "throttled_seconds", "oom_kills", "received_bytes", "sent_bytes", "open_files", "threads", "shared_limits")
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKING_SET_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_LIMIT_CORES_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OOM_KILLS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    SHARED_LIMITS_FIELD_NUMBER: _ClassVar[int]
    cpu_seconds: float
    rss_bytes: int
    working_set_bytes: int
    memory_limit_bytes: int
    cpu_limit_cores: float
    throttled_seconds: float
    oom_kills: int
    received_bytes: int
    sent_bytes: int
    open_files: int
    threads: int
    shared_limits: bool
    def __init__(self, cpu_seconds: _Optional[float] = ..., rss_bytes: _Optional[int] = ..., working_set_bytes: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., cpu_limit_cores: _Optional[float] = ..., throttled_seconds: _Optional[float] = ..., oom_kills: _Optional[int] = ..., received_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., open_files: _Optional[int] = ..., threads: _Optional[int] = ..., shared_limits: bool = ...) -> None: ...

class HostSample(_message.Message):
    __slots__ = ("cores", "busy_seconds", "quota_cores", "quota_seconds", "processors")
    CORES_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_CORES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROCESSORS_FIELD_NUMBER: _ClassVar[int]
    cores: float
    busy_seconds: float
    quota_cores: float
    quota_seconds: float
    processors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cores: _Optional[float] = ..., busy_seconds: _Optional[float] = ..., quota_cores: _Optional[float] = ..., quota_seconds: _Optional[float] = ..., processors: _Optional[_Iterable[int]] = ...) -> None: ...

class StepSample(_message.Message):
    __slots__ = ("steps", "examples", "median_seconds", "p95_seconds", "longest_seconds", "gate_wait_seconds", "input_wait_seconds", "histogram", "training", "histogram_seconds", "sum_seconds")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    P95_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GATE_WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INPUT_WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUM_SECONDS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    examples: int
    median_seconds: float
    p95_seconds: float
    longest_seconds: float
    gate_wait_seconds: float
    input_wait_seconds: float
    histogram: _containers.RepeatedScalarFieldContainer[int]
    training: bool
    histogram_seconds: float
    sum_seconds: float
    def __init__(self, steps: _Optional[int] = ..., examples: _Optional[int] = ..., median_seconds: _Optional[float] = ..., p95_seconds: _Optional[float] = ..., longest_seconds: _Optional[float] = ..., gate_wait_seconds: _Optional[float] = ..., input_wait_seconds: _Optional[float] = ..., histogram: _Optional[_Iterable[int]] = ..., training: bool = ..., histogram_seconds: _Optional[float] = ..., sum_seconds: _Optional[float] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("step", "epoch", "seconds", "usual_seconds", "devices", "ops", "edges", "slots", "input_seconds")
    STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    USUAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    INPUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    step: int
    epoch: int
    seconds: float
    usual_seconds: float
    devices: _containers.RepeatedCompositeFieldContainer[DeviceTime]
    ops: _containers.RepeatedCompositeFieldContainer[OpTime]
    edges: _containers.RepeatedCompositeFieldContainer[EdgeUse]
    slots: _containers.RepeatedCompositeFieldContainer[SlotUse]
    input_seconds: float
    def __init__(self, step: _Optional[int] = ..., epoch: _Optional[int] = ..., seconds: _Optional[float] = ..., usual_seconds: _Optional[float] = ..., devices: _Optional[_Iterable[_Union[DeviceTime, _Mapping]]] = ..., ops: _Optional[_Iterable[_Union[OpTime, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[EdgeUse, _Mapping]]] = ..., slots: _Optional[_Iterable[_Union[SlotUse, _Mapping]]] = ..., input_seconds: _Optional[float] = ...) -> None: ...

class DeviceTime(_message.Message):
    __slots__ = ("role", "busy_seconds", "op_seconds", "ops")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    role: str
    busy_seconds: float
    op_seconds: float
    ops: int
    def __init__(self, role: _Optional[str] = ..., busy_seconds: _Optional[float] = ..., op_seconds: _Optional[float] = ..., ops: _Optional[int] = ...) -> None: ...

class OpTime(_message.Message):
    __slots__ = ("name", "type", "role", "seconds", "slot")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    role: str
    seconds: float
    slot: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., role: _Optional[str] = ..., seconds: _Optional[float] = ..., slot: _Optional[int] = ...) -> None: ...

class EdgeUse(_message.Message):
    __slots__ = ("source", "target", "bytes", "tensors", "seconds")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    bytes: int
    tensors: int
    seconds: float
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., bytes: _Optional[int] = ..., tensors: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class SlotUse(_message.Message):
    __slots__ = ("slot", "lookup_seconds", "update_seconds", "lookup_rows", "update_rows", "bytes")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_ROWS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    slot: int
    lookup_seconds: float
    update_seconds: float
    lookup_rows: int
    update_rows: int
    bytes: int
    def __init__(self, slot: _Optional[int] = ..., lookup_seconds: _Optional[float] = ..., update_seconds: _Optional[float] = ..., lookup_rows: _Optional[int] = ..., update_rows: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SlotRows(_message.Message):
    __slots__ = ("slot", "rows_touched")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ROWS_TOUCHED_FIELD_NUMBER: _ClassVar[int]
    slot: int
    rows_touched: int
    def __init__(self, slot: _Optional[int] = ..., rows_touched: _Optional[int] = ...) -> None: ...

class GazerReport(_message.Message):
    __slots__ = ("interval_seconds", "process", "steps", "traces", "touched", "trouble", "host")
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    TOUCHED_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    interval_seconds: float
    process: ProcessSample
    steps: StepSample
    traces: _containers.RepeatedCompositeFieldContainer[Trace]
    touched: _containers.RepeatedCompositeFieldContainer[SlotRows]
    trouble: str
    host: HostSample
    def __init__(self, interval_seconds: _Optional[float] = ..., process: _Optional[_Union[ProcessSample, _Mapping]] = ..., steps: _Optional[_Union[StepSample, _Mapping]] = ..., traces: _Optional[_Iterable[_Union[Trace, _Mapping]]] = ..., touched: _Optional[_Iterable[_Union[SlotRows, _Mapping]]] = ..., trouble: _Optional[str] = ..., host: _Optional[_Union[HostSample, _Mapping]] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("code", "text", "remedy", "mended")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    MENDED_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    remedy: str
    mended: bool
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ..., remedy: _Optional[str] = ..., mended: bool = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("left", "had_session", "exit_code", "error")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    HAD_SESSION_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    left: bool
    had_session: bool
    exit_code: int
    error: str
    def __init__(self, left: bool = ..., had_session: bool = ..., exit_code: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class PassReport(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class AgentMessage(_message.Message):
    __slots__ = ("hello", "heartbeat", "ack", "catalogue", "pause", "metrics", "trouble", "live", "refusal", "finished", "passes", "backup", "backup_wish", "data", "gazer", "notice", "saved", "ring")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    CATALOGUE_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    BACKUP_WISH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    GAZER_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    RING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    ack: Ack
    catalogue: Catalogue
    pause: PauseReport
    metrics: MetricsReport
    trouble: PsTrouble
    live: ModelLive
    refusal: Refusal
    finished: Finished
    passes: PassReport
    backup: BackupReport
    backup_wish: BackupWish
    data: DataRequest
    gazer: GazerReport
    notice: Notice
    saved: Saved
    ring: Ring
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., catalogue: _Optional[_Union[Catalogue, _Mapping]] = ..., pause: _Optional[_Union[PauseReport, _Mapping]] = ..., metrics: _Optional[_Union[MetricsReport, _Mapping]] = ..., trouble: _Optional[_Union[PsTrouble, _Mapping]] = ..., live: _Optional[_Union[ModelLive, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., passes: _Optional[_Union[PassReport, _Mapping]] = ..., backup: _Optional[_Union[BackupReport, _Mapping]] = ..., backup_wish: _Optional[_Union[BackupWish, _Mapping]] = ..., data: _Optional[_Union[DataRequest, _Mapping]] = ..., gazer: _Optional[_Union[GazerReport, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., ring: _Optional[_Union[Ring, _Mapping]] = ...) -> None: ...

class Ring(_message.Message):
    __slots__ = ("address", "lost", "trouble")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    address: str
    lost: int
    trouble: str
    def __init__(self, address: _Optional[str] = ..., lost: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    def __init__(self, incarnation: _Optional[str] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: View
    def __init__(self, view: _Optional[_Union[View, _Mapping]] = ...) -> None: ...

class ScalingNotice(_message.Message):
    __slots__ = ("scaling_id", "phase")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[ScalingNotice.Phase]
        BEGUN: _ClassVar[ScalingNotice.Phase]
        COMMITTED: _ClassVar[ScalingNotice.Phase]
        ROLLED_BACK: _ClassVar[ScalingNotice.Phase]
    PHASE_UNSPECIFIED: ScalingNotice.Phase
    BEGUN: ScalingNotice.Phase
    COMMITTED: ScalingNotice.Phase
    ROLLED_BACK: ScalingNotice.Phase
    SCALING_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    scaling_id: int
    phase: ScalingNotice.Phase
    def __init__(self, scaling_id: _Optional[int] = ..., phase: _Optional[_Union[ScalingNotice.Phase, str]] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("slots", "tracked")
    class TrackedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TRACKED_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    tracked: _containers.ScalarMap[str, str]
    def __init__(self, slots: _Optional[_Iterable[int]] = ..., tracked: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Prepare(_message.Message):
    __slots__ = ("view", "keep_marks")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    KEEP_MARKS_FIELD_NUMBER: _ClassVar[int]
    view: View
    keep_marks: bool
    def __init__(self, view: _Optional[_Union[View, _Mapping]] = ..., keep_marks: bool = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ("lease_seconds",)
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    lease_seconds: float
    def __init__(self, lease_seconds: _Optional[float] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Commit(_message.Message):
    __slots__ = ("view", "keep_marks")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    KEEP_MARKS_FIELD_NUMBER: _ClassVar[int]
    view: View
    keep_marks: bool
    def __init__(self, view: _Optional[_Union[View, _Mapping]] = ..., keep_marks: bool = ...) -> None: ...

class Lost(_message.Message):
    __slots__ = ("tasks", "lease_seconds")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedScalarFieldContainer[int]
    lease_seconds: float
    def __init__(self, tasks: _Optional[_Iterable[int]] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("variable", "source_task")
    VARIABLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TASK_FIELD_NUMBER: _ClassVar[int]
    variable: Variable
    source_task: int
    def __init__(self, variable: _Optional[_Union[Variable, _Mapping]] = ..., source_task: _Optional[int] = ...) -> None: ...

class Copy(_message.Message):
    __slots__ = ("phase", "scaling_id", "moves", "ps", "tracked", "guarded")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[Copy.Phase]
        ARM: _ClassVar[Copy.Phase]
        FIRST: _ClassVar[Copy.Phase]
        DIRTY: _ClassVar[Copy.Phase]
        FINAL: _ClassVar[Copy.Phase]
        ABORT: _ClassVar[Copy.Phase]
    PHASE_UNSPECIFIED: Copy.Phase
    ARM: Copy.Phase
    FIRST: Copy.Phase
    DIRTY: Copy.Phase
    FINAL: Copy.Phase
    ABORT: Copy.Phase
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SCALING_ID_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    PS_FIELD_NUMBER: _ClassVar[int]
    TRACKED_FIELD_NUMBER: _ClassVar[int]
    GUARDED_FIELD_NUMBER: _ClassVar[int]
    phase: Copy.Phase
    scaling_id: int
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    ps: _containers.RepeatedCompositeFieldContainer[PsMember]
    tracked: bool
    guarded: bool
    def __init__(self, phase: _Optional[_Union[Copy.Phase, str]] = ..., scaling_id: _Optional[int] = ..., moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., ps: _Optional[_Iterable[_Union[PsMember, _Mapping]]] = ..., tracked: bool = ..., guarded: bool = ...) -> None: ...

class Destroy(_message.Message):
    __slots__ = ("variables", "keep")
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    keep: Guard
    def __init__(self, variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., keep: _Optional[_Union[Guard, _Mapping]] = ...) -> None: ...

class Compile(_message.Message):
    __slots__ = ("variables", "keep")
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    keep: bool
    def __init__(self, variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., keep: bool = ...) -> None: ...

class Track(_message.Message):
    __slots__ = ("variables",)
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    def __init__(self, variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ...) -> None: ...

class Guard(_message.Message):
    __slots__ = ("id", "moves", "ps", "seconds", "owned", "global_step", "next_slots", "generation", "own_task")
    ID_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    PS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    NEXT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OWN_TASK_FIELD_NUMBER: _ClassVar[int]
    id: int
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    ps: _containers.RepeatedCompositeFieldContainer[PsMember]
    seconds: float
    owned: _containers.RepeatedScalarFieldContainer[int]
    global_step: str
    next_slots: _containers.RepeatedScalarFieldContainer[int]
    generation: int
    own_task: int
    def __init__(self, id: _Optional[int] = ..., moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., ps: _Optional[_Iterable[_Union[PsMember, _Mapping]]] = ..., seconds: _Optional[float] = ..., owned: _Optional[_Iterable[int]] = ..., global_step: _Optional[str] = ..., next_slots: _Optional[_Iterable[int]] = ..., generation: _Optional[int] = ..., own_task: _Optional[int] = ...) -> None: ...

class Freeze(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("moves", "ps", "step", "global_step")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    PS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    ps: _containers.RepeatedCompositeFieldContainer[PsMember]
    step: int
    global_step: str
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., ps: _Optional[_Iterable[_Union[PsMember, _Mapping]]] = ..., step: _Optional[int] = ..., global_step: _Optional[str] = ...) -> None: ...

class CallOff(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Look(_message.Message):
    __slots__ = ("variables",)
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    def __init__(self, variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ...) -> None: ...

class Refresh(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Hold(_message.Message):
    __slots__ = ("lease_seconds",)
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    lease_seconds: float
    def __init__(self, lease_seconds: _Optional[float] = ...) -> None: ...

class Promote(_message.Message):
    __slots__ = ("slots", "step")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    step: int
    def __init__(self, slots: _Optional[_Iterable[int]] = ..., step: _Optional[int] = ...) -> None: ...

class WriteBackup(_message.Message):
    __slots__ = ("path", "cut", "base", "variables", "aimaster_incarnation", "id", "parent")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    AIMASTER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    path: str
    cut: int
    base: bool
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    aimaster_incarnation: int
    id: str
    parent: str
    def __init__(self, path: _Optional[str] = ..., cut: _Optional[int] = ..., base: bool = ..., variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., aimaster_incarnation: _Optional[int] = ..., id: _Optional[str] = ..., parent: _Optional[str] = ...) -> None: ...

class SealBackup(_message.Message):
    __slots__ = ("path", "cut", "manifest_json", "remove")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_JSON_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    path: str
    cut: int
    manifest_json: str
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, path: _Optional[str] = ..., cut: _Optional[int] = ..., manifest_json: _Optional[str] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class RestoreBackup(_message.Message):
    __slots__ = ("path", "cut", "variables", "id")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    path: str
    cut: int
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    id: str
    def __init__(self, path: _Optional[str] = ..., cut: _Optional[int] = ..., variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., id: _Optional[str] = ...) -> None: ...

class FindBackup(_message.Message):
    __slots__ = ("path", "fingerprint", "job", "before", "most")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    path: str
    fingerprint: str
    job: str
    before: int
    most: int
    def __init__(self, path: _Optional[str] = ..., fingerprint: _Optional[str] = ..., job: _Optional[str] = ..., before: _Optional[int] = ..., most: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "mark", "prepare", "pause", "resume", "commit", "copy", "destroy", "leave", "lost", "track", "guard", "refresh", "hold", "promote", "write_backup", "seal_backup", "restore_backup", "find_backup", "fetch", "freeze", "call_off", "look", "compile")
    ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    DESTROY_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    TRACK_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    REFRESH_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    PROMOTE_FIELD_NUMBER: _ClassVar[int]
    WRITE_BACKUP_FIELD_NUMBER: _ClassVar[int]
    SEAL_BACKUP_FIELD_NUMBER: _ClassVar[int]
    RESTORE_BACKUP_FIELD_NUMBER: _ClassVar[int]
    FIND_BACKUP_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    FREEZE_FIELD_NUMBER: _ClassVar[int]
    CALL_OFF_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    COMPILE_FIELD_NUMBER: _ClassVar[int]
    id: int
    mark: Mark
    prepare: Prepare
    pause: Pause
    resume: Resume
    commit: Commit
    copy: Copy
    destroy: Destroy
    leave: Leave
    lost: Lost
    track: Track
    guard: Guard
    refresh: Refresh
    hold: Hold
    promote: Promote
    write_backup: WriteBackup
    seal_backup: SealBackup
    restore_backup: RestoreBackup
    find_backup: FindBackup
    fetch: Fetch
    freeze: Freeze
    call_off: CallOff
    look: Look
    compile: Compile
    def __init__(self, id: _Optional[int] = ..., mark: _Optional[_Union[Mark, _Mapping]] = ..., prepare: _Optional[_Union[Prepare, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., copy: _Optional[_Union[Copy, _Mapping]] = ..., destroy: _Optional[_Union[Destroy, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., lost: _Optional[_Union[Lost, _Mapping]] = ..., track: _Optional[_Union[Track, _Mapping]] = ..., guard: _Optional[_Union[Guard, _Mapping]] = ..., refresh: _Optional[_Union[Refresh, _Mapping]] = ..., hold: _Optional[_Union[Hold, _Mapping]] = ..., promote: _Optional[_Union[Promote, _Mapping]] = ..., write_backup: _Optional[_Union[WriteBackup, _Mapping]] = ..., seal_backup: _Optional[_Union[SealBackup, _Mapping]] = ..., restore_backup: _Optional[_Union[RestoreBackup, _Mapping]] = ..., find_backup: _Optional[_Union[FindBackup, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., freeze: _Optional[_Union[Freeze, _Mapping]] = ..., call_off: _Optional[_Union[CallOff, _Mapping]] = ..., look: _Optional[_Union[Look, _Mapping]] = ..., compile: _Optional[_Union[Compile, _Mapping]] = ...) -> None: ...

class Remember(_message.Message):
    __slots__ = ("key", "number", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    number: int
    value: bytes
    def __init__(self, key: _Optional[str] = ..., number: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class MasterMessage(_message.Message):
    __slots__ = ("aimaster_incarnation", "publish", "scaling", "command", "data", "remember")
    AIMASTER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    SCALING_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REMEMBER_FIELD_NUMBER: _ClassVar[int]
    aimaster_incarnation: int
    publish: Publish
    scaling: ScalingNotice
    command: Command
    data: DataReply
    remember: Remember
    def __init__(self, aimaster_incarnation: _Optional[int] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., scaling: _Optional[_Union[ScalingNotice, _Mapping]] = ..., command: _Optional[_Union[Command, _Mapping]] = ..., data: _Optional[_Union[DataReply, _Mapping]] = ..., remember: _Optional[_Union[Remember, _Mapping]] = ...) -> None: ...

class RoleStatus(_message.Message):
    __slots__ = ("name", "role", "state", "pid", "incarnation", "heartbeat", "heartbeat_age_seconds", "task", "slots", "bytes", "restarts", "cpu_percent", "process", "gazer", "suspect")
    class GazerEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    GAZER_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: Role
    state: str
    pid: int
    incarnation: str
    heartbeat: Heartbeat
    heartbeat_age_seconds: float
    task: int
    slots: _containers.RepeatedScalarFieldContainer[int]
    bytes: int
    restarts: int
    cpu_percent: float
    process: ProcessSample
    gazer: _containers.ScalarMap[str, float]
    suspect: str
    def __init__(self, name: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., state: _Optional[str] = ..., pid: _Optional[int] = ..., incarnation: _Optional[str] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., heartbeat_age_seconds: _Optional[float] = ..., task: _Optional[int] = ..., slots: _Optional[_Iterable[int]] = ..., bytes: _Optional[int] = ..., restarts: _Optional[int] = ..., cpu_percent: _Optional[float] = ..., process: _Optional[_Union[ProcessSample, _Mapping]] = ..., gazer: _Optional[_Mapping[str, float]] = ..., suspect: _Optional[str] = ...) -> None: ...

class SlotStatus(_message.Message):
    __slots__ = ("slot", "task", "bytes", "gazer")
    class GazerEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    GAZER_FIELD_NUMBER: _ClassVar[int]
    slot: int
    task: int
    bytes: int
    gazer: _containers.ScalarMap[str, float]
    def __init__(self, slot: _Optional[int] = ..., task: _Optional[int] = ..., bytes: _Optional[int] = ..., gazer: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ScalingStatus(_message.Message):
    __slots__ = ("id", "kind", "role", "from_count", "to_count", "state", "detail", "outcome", "reason", "epoch", "bytes_moved", "bytes_resent", "slots_moved", "pause_seconds", "seconds", "gate_waits", "workers_from", "workers_to", "requested_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    FROM_COUNT_FIELD_NUMBER: _ClassVar[int]
    TO_COUNT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BYTES_MOVED_FIELD_NUMBER: _ClassVar[int]
    BYTES_RESENT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_MOVED_FIELD_NUMBER: _ClassVar[int]
    PAUSE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    GATE_WAITS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FROM_FIELD_NUMBER: _ClassVar[int]
    WORKERS_TO_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: str
    role: str
    from_count: int
    to_count: int
    state: str
    detail: str
    outcome: str
    reason: str
    epoch: int
    bytes_moved: int
    bytes_resent: int
    slots_moved: int
    pause_seconds: _containers.RepeatedScalarFieldContainer[float]
    seconds: float
    gate_waits: int
    workers_from: int
    workers_to: int
    requested_by: str
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[str] = ..., role: _Optional[str] = ..., from_count: _Optional[int] = ..., to_count: _Optional[int] = ..., state: _Optional[str] = ..., detail: _Optional[str] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., epoch: _Optional[int] = ..., bytes_moved: _Optional[int] = ..., bytes_resent: _Optional[int] = ..., slots_moved: _Optional[int] = ..., pause_seconds: _Optional[_Iterable[float]] = ..., seconds: _Optional[float] = ..., gate_waits: _Optional[int] = ..., workers_from: _Optional[int] = ..., workers_to: _Optional[int] = ..., requested_by: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DataStatus(_message.Message):
    __slots__ = ("name", "purpose", "records", "trained", "leased", "repeated", "stale", "epoch", "epochs", "set_aside", "skipped", "repeated_at_least", "steps")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    REPEATED_AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    purpose: str
    records: int
    trained: int
    leased: int
    repeated: int
    stale: int
    epoch: int
    epochs: int
    set_aside: int
    skipped: int
    repeated_at_least: int
    steps: bool
    def __init__(self, name: _Optional[str] = ..., purpose: _Optional[str] = ..., records: _Optional[int] = ..., trained: _Optional[int] = ..., leased: _Optional[int] = ..., repeated: _Optional[int] = ..., stale: _Optional[int] = ..., epoch: _Optional[int] = ..., epochs: _Optional[int] = ..., set_aside: _Optional[int] = ..., skipped: _Optional[int] = ..., repeated_at_least: _Optional[int] = ..., steps: bool = ...) -> None: ...

class BackupStatus(_message.Message):
    __slots__ = ("peer", "unprotected_slots", "oldest_seconds", "disk_path", "disk_cut", "disk_seconds", "error", "bytes_sent", "refreshes", "holder")
    PEER_FIELD_NUMBER: _ClassVar[int]
    UNPROTECTED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DISK_PATH_FIELD_NUMBER: _ClassVar[int]
    DISK_CUT_FIELD_NUMBER: _ClassVar[int]
    DISK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    REFRESHES_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    peer: bool
    unprotected_slots: _containers.RepeatedScalarFieldContainer[int]
    oldest_seconds: float
    disk_path: str
    disk_cut: int
    disk_seconds: float
    error: str
    bytes_sent: int
    refreshes: int
    holder: str
    def __init__(self, peer: bool = ..., unprotected_slots: _Optional[_Iterable[int]] = ..., oldest_seconds: _Optional[float] = ..., disk_path: _Optional[str] = ..., disk_cut: _Optional[int] = ..., disk_seconds: _Optional[float] = ..., error: _Optional[str] = ..., bytes_sent: _Optional[int] = ..., refreshes: _Optional[int] = ..., holder: _Optional[str] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("job", "state", "epoch", "step", "last_step", "examples_per_second", "seconds", "roles", "scalings", "slot_map", "metrics", "aimaster_incarnation", "slots", "failure", "steps_per_second", "live", "data", "backup", "slot_load", "dashboard", "autoscale", "notices", "ring", "learning_rate", "allowance")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    SCALINGS_FIELD_NUMBER: _ClassVar[int]
    SLOT_MAP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    AIMASTER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    SLOT_LOAD_FIELD_NUMBER: _ClassVar[int]
    DASHBOARD_FIELD_NUMBER: _ClassVar[int]
    AUTOSCALE_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    RING_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    ALLOWANCE_FIELD_NUMBER: _ClassVar[int]
    job: str
    state: str
    epoch: int
    step: int
    last_step: int
    examples_per_second: float
    seconds: float
    roles: _containers.RepeatedCompositeFieldContainer[RoleStatus]
    scalings: _containers.RepeatedCompositeFieldContainer[ScalingStatus]
    slot_map: _containers.RepeatedScalarFieldContainer[int]
    metrics: _containers.ScalarMap[str, float]
    aimaster_incarnation: int
    slots: int
    failure: str
    steps_per_second: float
    live: bool
    data: _containers.RepeatedCompositeFieldContainer[DataStatus]
    backup: BackupStatus
    slot_load: _containers.RepeatedCompositeFieldContainer[SlotStatus]
    dashboard: str
    autoscale: str
    notices: _containers.RepeatedCompositeFieldContainer[NoticeStatus]
    ring: RingStatus
    learning_rate: str
    allowance: str
    def __init__(self, job: _Optional[str] = ..., state: _Optional[str] = ..., epoch: _Optional[int] = ..., step: _Optional[int] = ..., last_step: _Optional[int] = ..., examples_per_second: _Optional[float] = ..., seconds: _Optional[float] = ..., roles: _Optional[_Iterable[_Union[RoleStatus, _Mapping]]] = ..., scalings: _Optional[_Iterable[_Union[ScalingStatus, _Mapping]]] = ..., slot_map: _Optional[_Iterable[int]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., aimaster_incarnation: _Optional[int] = ..., slots: _Optional[int] = ..., failure: _Optional[str] = ..., steps_per_second: _Optional[float] = ..., live: bool = ..., data: _Optional[_Iterable[_Union[DataStatus, _Mapping]]] = ..., backup: _Optional[_Union[BackupStatus, _Mapping]] = ..., slot_load: _Optional[_Iterable[_Union[SlotStatus, _Mapping]]] = ..., dashboard: _Optional[str] = ..., autoscale: _Optional[str] = ..., notices: _Optional[_Iterable[_Union[NoticeStatus, _Mapping]]] = ..., ring: _Optional[_Union[RingStatus, _Mapping]] = ..., learning_rate: _Optional[str] = ..., allowance: _Optional[str] = ...) -> None: ...

class RingStatus(_message.Message):
    __slots__ = ("members", "waits", "coming", "leaving", "lost", "seconds")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    COMING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[str]
    waits: _containers.RepeatedCompositeFieldContainer[RingRole]
    coming: _containers.RepeatedCompositeFieldContainer[RingRole]
    leaving: _containers.RepeatedCompositeFieldContainer[RingRole]
    lost: _containers.RepeatedCompositeFieldContainer[RingRole]
    seconds: float
    def __init__(self, members: _Optional[_Iterable[str]] = ..., waits: _Optional[_Iterable[_Union[RingRole, _Mapping]]] = ..., coming: _Optional[_Iterable[_Union[RingRole, _Mapping]]] = ..., leaving: _Optional[_Iterable[_Union[RingRole, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[RingRole, _Mapping]]] = ..., seconds: _Optional[float] = ...) -> None: ...

class RingRole(_message.Message):
    __slots__ = ("name", "why")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    name: str
    why: str
    def __init__(self, name: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class SeriesRequest(_message.Message):
    __slots__ = ("subjects", "metrics", "since", "until", "points")
    SUBJECTS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    subjects: _containers.RepeatedScalarFieldContainer[str]
    metrics: _containers.RepeatedScalarFieldContainer[str]
    since: float
    until: float
    points: int
    def __init__(self, subjects: _Optional[_Iterable[str]] = ..., metrics: _Optional[_Iterable[str]] = ..., since: _Optional[float] = ..., until: _Optional[float] = ..., points: _Optional[int] = ...) -> None: ...

class SeriesLine(_message.Message):
    __slots__ = ("subject", "metric", "times", "means", "highest")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    MEANS_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    subject: str
    metric: str
    times: _containers.RepeatedScalarFieldContainer[float]
    means: _containers.RepeatedScalarFieldContainer[float]
    highest: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, subject: _Optional[str] = ..., metric: _Optional[str] = ..., times: _Optional[_Iterable[float]] = ..., means: _Optional[_Iterable[float]] = ..., highest: _Optional[_Iterable[float]] = ...) -> None: ...

class SeriesReply(_message.Message):
    __slots__ = ("lines",)
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[SeriesLine]
    def __init__(self, lines: _Optional[_Iterable[_Union[SeriesLine, _Mapping]]] = ...) -> None: ...

class NoticeStatus(_message.Message):
    __slots__ = ("notice", "roles", "time")
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    notice: Notice
    roles: _containers.RepeatedScalarFieldContainer[str]
    time: float
    def __init__(self, notice: _Optional[_Union[Notice, _Mapping]] = ..., roles: _Optional[_Iterable[str]] = ..., time: _Optional[float] = ...) -> None: ...

class ScaleRequest(_message.Message):
    __slots__ = ("ps", "workers", "rebalance", "replace", "dry_run", "reason")
    PS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ps: int
    workers: int
    rebalance: bool
    replace: str
    dry_run: bool
    reason: str
    def __init__(self, ps: _Optional[int] = ..., workers: _Optional[int] = ..., rebalance: bool = ..., replace: _Optional[str] = ..., dry_run: bool = ..., reason: _Optional[str] = ...) -> None: ...

class ScaleReply(_message.Message):
    __slots__ = ("scaling_id", "message", "plan_json")
    SCALING_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    scaling_id: int
    message: str
    plan_json: str
    def __init__(self, scaling_id: _Optional[int] = ..., message: _Optional[str] = ..., plan_json: _Optional[str] = ...) -> None: ...

class HoldRequest(_message.Message):
    __slots__ = ("hold", "reason")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    hold: bool
    reason: str
    def __init__(self, hold: bool = ..., reason: _Optional[str] = ...) -> None: ...

class HoldReply(_message.Message):
    __slots__ = ("hold", "autoscale")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    AUTOSCALE_FIELD_NUMBER: _ClassVar[int]
    hold: bool
    autoscale: bool
    def __init__(self, hold: bool = ..., autoscale: bool = ...) -> None: ...

class DecisionsRequest(_message.Message):
    __slots__ = ("after", "limit", "preview")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    preview: bool
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., preview: bool = ...) -> None: ...

class DecisionsReply(_message.Message):
    __slots__ = ("decisions",)
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, decisions: _Optional[_Iterable[str]] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("after", "follow")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    after: int
    follow: bool
    def __init__(self, after: _Optional[int] = ..., follow: bool = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("sequence", "time", "type", "role", "epoch", "json")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: float
    type: str
    role: str
    epoch: int
    json: str
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[float] = ..., type: _Optional[str] = ..., role: _Optional[str] = ..., epoch: _Optional[int] = ..., json: _Optional[str] = ...) -> None: ...

class CatalogueRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GraphReply(_message.Message):
    __slots__ = ("catalogue", "passes_json")
    CATALOGUE_FIELD_NUMBER: _ClassVar[int]
    PASSES_JSON_FIELD_NUMBER: _ClassVar[int]
    catalogue: Catalogue
    passes_json: str
    def __init__(self, catalogue: _Optional[_Union[Catalogue, _Mapping]] = ..., passes_json: _Optional[str] = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("status", "reason")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: str
    reason: str
    def __init__(self, status: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class FinishReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Pod(_message.Message):
    __slots__ = ("name", "role", "index", "resources")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: Role
    index: int
    resources: Resources
    def __init__(self, name: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., index: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpu", "memory_bytes")
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    memory_bytes: int
    def __init__(self, cpu: _Optional[float] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class ResizeRequest(_message.Message):
    __slots__ = ("name", "resources")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    resources: Resources
    def __init__(self, name: _Optional[str] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ...) -> None: ...

class PodStatus(_message.Message):
    __slots__ = ("name", "state", "pid", "exit_code", "restarting", "restarts", "deleted", "last_line", "cause", "resources")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    RESTARTING_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    LAST_LINE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    pid: int
    exit_code: int
    restarting: bool
    restarts: int
    deleted: bool
    last_line: str
    cause: str
    resources: Resources
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., pid: _Optional[int] = ..., exit_code: _Optional[int] = ..., restarting: bool = ..., restarts: _Optional[int] = ..., deleted: bool = ..., last_line: _Optional[str] = ..., cause: _Optional[str] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ...) -> None: ...

class PodsReply(_message.Message):
    __slots__ = ("pods",)
    PODS_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedCompositeFieldContainer[PodStatus]
    def __init__(self, pods: _Optional[_Iterable[_Union[PodStatus, _Mapping]]] = ...) -> None: ...

class PodRequest(_message.Message):
    __slots__ = ("name", "grace_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    grace_seconds: float
    def __init__(self, name: _Optional[str] = ..., grace_seconds: _Optional[float] = ...) -> None: ...

class PodEnd(_message.Message):
    __slots__ = ("name", "pid", "exit_code")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    name: str
    pid: int
    exit_code: int
    def __init__(self, name: _Optional[str] = ..., pid: _Optional[int] = ..., exit_code: _Optional[int] = ...) -> None: ...

class PodReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
