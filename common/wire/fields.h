/* fields - one row for each field of each message: what it may hold, and where it lands.
 *
 * Adding a field takes a line in proto/control.proto and a row here; its user reads it as a member
 * of struct cmd or struct report.  Packing, unpacking, checking and freeing follow the rows:
 * wire/check.c checks by the rules, session/convert.c copies by the members.
 *
 *   ITEM(field, member, rule)          lands in `member` of the struct that the list is for
 *   LIST(field, member, count, rule)   a repeated field: an array of structs (or blobs), counted
 *   ONLY(field, rule)                  read straight from the message: lands nowhere
 *
 * A rule is a kind and its limits (wire/rules.h, wire/rules.c).  The rows of a message stand in the
 * order of the field numbers; a test compares them with the descriptors.
 *
 * Threads: any; these are macros. */
#ifndef WIRE_FIELDS_H
#define WIRE_FIELDS_H

/* clang-format off */

/* ---- commands: members of struct cmd ---- */

/* `local` is the rank's number among the ranks of its machine.  So far the follower only checks
 * it. */
#define PREPARE_FIELDS(ITEM, LIST, ONLY) \
    ITEM(rank,    prepare.rank,    INT(RANK)) \
    ITEM(n_ranks, prepare.n_ranks, INT(RANKS)) \
    ITEM(local,   prepare.local,   INT(RANK)) \
    ITEM(n_local, prepare.n_local, INT(RANKS)) \
    ITEM(address, prepare.address, TEXT(1, 64)) \
    ITEM(inject,  prepare.inject,  INJECT(0, INJECTION_MAX_TEXT - 1)) \
    ITEM(standby, prepare.standby, TEXT(0, 64)) \
    ITEM(n_container, prepare.n_container, INT(0, MSG_MAX_RANKS))

#define FORM_FIELDS(ITEM, LIST, ONLY) \
    LIST(endpoints, form.endpoint, form.n_endpoints, \
         BYTES_LIST(0, MSG_MAX_ENDPOINT, MSG_MAX_RANKS)) \
    ITEM(source,    form.source, INT(RANK)) \
    ITEM(ids,       form.ids,    BYTES(0, MSG_ID * MSG_MAX_IDS))

#define TRAIN_FIELDS(ITEM, LIST, ONLY) \
    ITEM(epoch,     train.epoch,     INT(1, MANY)) \
    ITEM(live_lr,   train.live_lr,   AMOUNT) \
    ITEM(live_step, train.live_step, INT(0, MANY))

#define VALIDATE_FIELDS(ITEM, LIST, ONLY) \
    ITEM(epoch,    validate.epoch,    INT(1, MANY)) \
    ITEM(predicts, validate.predicts, BOOL) \
    ITEM(judges,   validate.judges,   BOOL)

#define CHECKPOINT_FIELDS(ITEM, LIST, ONLY) \
    ITEM(step, checkpoint.step, INT(0, MANY))

/* ---- reports: members of struct report ---- */

#define READY_FIELDS(ITEM, LIST, ONLY) \
    ITEM(layout,          opened.layout, HASH) \
    LIST(tensors,         opened.tensor, opened.n_tensors, MESSAGES(MSG_MAX_TENSORS)) \
    ITEM(n_train,         opened.n_train,         INT(0, MANY)) \
    ITEM(n_validation,    opened.n_validation,    INT(0, MANY)) \
    ITEM(data,            opened.data,            HASH) \
    ITEM(n_parameters,    opened.n_parameters,    INT(0, MANY)) \
    ITEM(steps_per_epoch, opened.steps_per_epoch, INT(0, MANY))

#define ENDPOINTS_FIELDS(ITEM, LIST, ONLY) \
    ITEM(endpoint, prepared.endpoint, BYTES(0, MSG_MAX_ENDPOINT)) \
    ITEM(step,     prepared.step,     INT(0, MANY)) \
    ITEM(library,  prepared.library,  TEXT(0, 64))

#define FORMED_FIELDS(ITEM, LIST, ONLY) \
    ITEM(step, formed.step, INT(0, MANY))

#define EPOCH_DONE_FIELDS(ITEM, LIST, ONLY) \
    ITEM(epoch,        epoch.epoch,        INT(1, MANY)) \
    ITEM(step,         epoch.step,         INT(0, MANY)) \
    ITEM(end,          epoch.end,          ENUM(1)) \
    ITEM(replica,      epoch.replica,      HASH) \
    LIST(tensors,      epoch.tensor, epoch.n_tensors, MESSAGES(MSG_MAX_TENSORS)) \
    ITEM(rss_mib,      epoch.rss_mib,      AMOUNT) \
    ITEM(peak_rss_mib, epoch.peak_rss_mib, AMOUNT) \
    ITEM(note,         epoch.note,         TEXT(0, MSG_MAX_TEXT)) \
    ITEM(data_wait_ms_median, epoch.data_wait_ms_median, AMOUNT) \
    ITEM(data_wait_share,     epoch.data_wait_share,     AMOUNT) \
    ITEM(is_of_input,         epoch.is_of_input,         BOOL) \
    ITEM(data_wait_cause,     epoch.data_wait_cause,     INT(0, 1000))

#define VALIDATE_DONE_FIELDS(ITEM, LIST, ONLY) \
    ITEM(epoch,       validated.epoch,       INT(1, MANY)) \
    ITEM(loss_sum,    validated.loss_sum,    REAL) \
    ITEM(n_correct,   validated.n_correct,   INT(0, MANY)) \
    ITEM(n_samples,   validated.n_samples,   INT(0, MANY)) \
    ITEM(n_nonfinite, validated.n_nonfinite, INT(0, MANY)) \
    ITEM(n_targets,   validated.n_targets,   INT(0, MANY)) \
    ITEM(average_loss_sum,    validated.average_loss_sum,    REAL) \
    ITEM(average_n_correct,   validated.average_n_correct,   INT(0, MANY)) \
    ITEM(average_n_nonfinite, validated.average_n_nonfinite, INT(0, MANY)) \
    ITEM(weight,              validated.weight,              AMOUNT) \
    ITEM(n_top5,              validated.n_top5,              INT(0, MANY)) \
    ITEM(average_n_top5,      validated.average_n_top5,      INT(0, MANY)) \
    ITEM(note,                validated.note,                TEXT(0, MSG_MAX_TEXT))

#define CHECKPOINT_DONE_FIELDS(ITEM, LIST, ONLY) \
    ITEM(step, checkpoint.step, INT(0, MANY))

#define FAULT_FIELDS(ITEM, LIST, ONLY) \
    ITEM(code,           fault.err.code,       INT(INT32_MIN, -1)) \
    ITEM(phase,          fault.phase,          ENUM(0)) \
    ITEM(step,           fault.step,           INT(0, MANY)) \
    ITEM(text,           fault.err.msg,        TEXT(0, MSG_MAX_TEXT)) \
    ITEM(is_consequence, fault.is_consequence, BOOL)

#define INJECTED_FIELDS(ITEM, LIST, ONLY) \
    ITEM(spec,  inject.fault.text, INJECT(1, INJECTION_TEXT - 1)) \
    ITEM(text,  inject.text,       TEXT(0, MSG_MAX_TEXT)) \
    ITEM(phase, inject.phase,      ENUM(0)) \
    ITEM(step,  inject.step,       INT(0, MANY))

#define SPANS_FIELDS(ITEM, LIST, ONLY) \
    ITEM(number,      spans.number,      INT(0, MANY)) \
    ITEM(first,       spans.first,       INT(0, MANY)) \
    ITEM(last,        spans.last,        INT(0, MANY)) \
    ITEM(is_last,     spans.is_last,     BOOL) \
    ITEM(is_cut,      spans.is_cut,      BOOL) \
    ITEM(is_launched, spans.is_launched, BOOL) \
    LIST(names,       spans.name, spans.n_names, MESSAGES(MSG_MAX_SPAN_NAMES)) \
    LIST(spans,       spans.span, spans.n,       MESSAGES(MSG_MAX_SPANS))

/* ---- members of struct progress ---- */

#define HEARTBEAT_FIELDS(ITEM, LIST, ONLY) \
    ITEM(epoch,      epoch,  INT(0, MANY)) \
    ITEM(step,       step,   INT(0, MANY)) \
    ITEM(phase,      phase,  ENUM(0)) \
    ITEM(bucket,     bucket, INT(-1, MANY)) \
    ONLY(phase_ms,   INT(0, MANY)) \
    ONLY(first_step, BOOL) \
    ONLY(rss_mib,    AMOUNT) \
    ITEM(n_handed,   head.n_handed,   INT(0, MANY)) \
    ITEM(n_ended,    head.n_ended,    INT(0, MANY)) \
    ITEM(at_step,    head.at.step,    INT(0, MANY)) \
    ITEM(at_bucket,  head.at.bucket,  INT(-2, MANY)) \
    ITEM(at_bytes,   head.at.n_bytes, INT(0, MANY)) \
    ITEM(n_steps,    n_steps, INT(0, MANY)) \
    ITEM(wall_ns,    wall_ns, INT(0, MANY)) \
    ITEM(busy_ns,    busy_ns, INT(0, MANY)) \
    ITEM(unlinked,    unlinked,    INT(0, MSG_MAX_RANKS)) \
    ITEM(n_strangers, n_strangers, INT(0, MANY)) \
    ITEM(package_mj,  usage.mj[ENERGY_PACKAGE], INT(0, MANY)) \
    ITEM(gpu_mj,      usage.mj[ENERGY_GPU],     INT(0, MANY)) \
    ONLY(account,     INTS(0, MANY, 64)) \
    ONLY(clock_ns,    INT(0, CLOCK)) \
    ONLY(echo_ns,     INT(0, CLOCK)) \
    ONLY(held_ns,     INT(0, CLOCK)) \
    ITEM(resident_kib,   usage.resident_kib,   INT(0, KIB)) \
    ITEM(cpu_permille,   usage.cpu_permille,   INT(0, MANY)) \
    ITEM(gpu_permille,   usage.gpu_permille,   INT(0, MANY)) \
    ITEM(gpu_memory_kib, usage.gpu_memory_kib, INT(0, KIB)) \
    ITEM(gpu_celsius,    usage.gpu_celsius,    INT(0, MANY)) \
    ITEM(gpu_mw,         usage.gpu_mw,         INT(0, MANY)) \
    ITEM(gpu_clock_mhz,  usage.gpu_clock_mhz,  INT(0, MANY))

/* ---- elements of lists ---- */

#define TENSOR_HASH_FIELDS(ITEM, LIST, ONLY) /* struct tensor_hash */ \
    ITEM(name, name, TEXT(1, MSG_MAX_NAME)) \
    ITEM(hash, hash, HASH)

#define COLLECTIVE_FIELDS(ITEM, LIST, ONLY) /* struct collective */ \
    ITEM(generation, generation, INT(0, MANY)) \
    ITEM(number,     number,     INT(1, MANY)) \
    ITEM(step,       step,       INT(0, MANY)) \
    ITEM(bucket,     bucket,     INT(-2, MANY)) \
    ITEM(n_bytes,    n_bytes,    INT(0, MANY)) \
    ITEM(phase,      phase,      ENUM(0)) \
    ITEM(is_failed,  is_failed,  BOOL) \
    ITEM(handed_ns,  handed_ns,  INT(-MANY, 0)) \
    ITEM(began_ns,   began_ns,   INT(-MANY, 0)) \
    ITEM(ended_ns,   ended_ns,   INT(-MANY, 0))

#define SPAN_NAME_FIELDS(ITEM, LIST, ONLY) /* struct span_name */ \
    ITEM(text, text, TEXT(1, SPANS_NAME - 1))

#define SPAN_FIELDS(ITEM, LIST, ONLY) /* struct trace_span */ \
    ITEM(begin_ns,   begin_ns,   INT(0, CLOCK)) \
    ITEM(took_ns,    took_ns,    INT(0, CLOCK)) \
    ITEM(step,       step,       INT(-1, MANY)) \
    ITEM(n_bytes,    n_bytes,    INT(0, MANY)) \
    ITEM(collective, collective, INT(0, MANY)) \
    ITEM(track,      track,      INT(0, SPANS_TRACKS - 1)) \
    ITEM(name,       name,       INT(0, MSG_MAX_SPAN_NAMES - 1)) \
    ITEM(kind,       kind,       INT(0, MSG_MAX_SPAN_NAMES - 1)) \
    ITEM(bucket,     bucket,     INT(-2, INT32_MAX))

#define RING_FIELDS(ITEM, LIST, ONLY) /* struct ring_answer */ \
    ITEM(incident,    incident, INT(1, MANY)) \
    LIST(collectives, collective, n, MESSAGES(MSG_MAX_COLLECTIVES))

/* ---- read straight from the message ---- */

#define GPU_FIELDS(ITEM, LIST, ONLY) \
    ONLY(uuid,  TEXT(1, 64)) \
    ONLY(name,  TEXT(0, 128)) \
    ONLY(index, INT(0, 999)) \
    ONLY(bus,   TEXT(0, 32))

#define HELLO_FIELDS(ITEM, LIST, ONLY) \
    ONLY(protocol,  INT(1, UINT32_MAX)) \
    ONLY(version,   TEXT(0, 64)) \
    ONLY(rank,      INT(-1, INT32_MAX)) /* the driver refuses too large a rank with its reason */ \
    ONLY(host,      TEXT(1, MSG_MAX_NAME)) \
    ONLY(host_id,   TEXT(1, 64)) \
    ONLY(pid,       INT(0, INT32_MAX)) \
    ONLY(device,    TEXT(1, 64)) \
    ONLY(gpus,      MESSAGES(64)) \
    ONLY(backends,  TEXTS(1, 64, 16)) \
    ONLY(advertise, TEXT(0, 64)) \
    ONLY(no_gpu,    TEXT(0, MSG_MAX_TEXT)) \
    ONLY(run,       TEXT(0, 64)) \
    ONLY(run_job,   TEXT(0, HASH_TEXT_LEN - 1)) \
    ONLY(term,      INT(0, MANY)) \
    ONLY(leader,    TEXT(0, MSG_MAX_NAME)) \
    ONLY(formed,    INT(0, MANY)) \
    ONLY(step,      INT(0, MANY)) \
    ONLY(in_step,   BOOL) \
    ONLY(pid_space, INT(0, INT64_MAX)) \
    ONLY(form_term,       INT(0, MANY)) \
    ONLY(form_generation, INT(0, MANY)) \
    ONLY(form_ranks,      INT(0, MSG_MAX_RANKS)) \
    ONLY(form_rank,       INT(0, MSG_MAX_RANKS)) \
    ONLY(form_standby,    TEXT(0, 64)) \
    ONLY(standby,         TEXT(0, 64)) \
    ONLY(port,            INT(0, 65535)) \
    ONLY(entered,         INT(0, MANY)) \
    ONLY(launch,          TEXT(0, MSG_MAX_LAUNCH)) \
    ONLY(wrong,           BOOL)

#define WELCOME_FIELDS(ITEM, LIST, ONLY) \
    ONLY(job,                  BYTES(1, FRAME_MAX)) \
    ONLY(rank,                 INT(RANK)) \
    ONLY(n_ranks,              INT(RANKS)) \
    ONLY(device,               TEXT(1, 64)) \
    ONLY(host,                 TEXT(1, MSG_MAX_NAME)) \
    ONLY(heartbeat_ms,         INT(10, 3600 * 1000)) \
    ONLY(heartbeat_timeout_ms, INT(20, 24 * 3600 * 1000)) \
    ONLY(spare,                BOOL) \
    ONLY(inject,               INJECT(0, INJECTION_MAX_TEXT - 1)) \
    ONLY(run,                  TEXT(0, 64)) \
    ONLY(term,                 INT(0, MANY)) \
    ONLY(driver_timeout_ms,    INT(0, 24 * 3600 * 1000)) \
    ONLY(standby,              TEXT(0, MSG_MAX_NAME)) \
    ONLY(predicts,             BOOL) \
    ONLY(notice,               BYTES(0, MSG_MAX_TEXT))

#define REFUSED_FIELDS(ITEM, LIST, ONLY) \
    ONLY(reason, ENUM(1)) \
    ONLY(text,   TEXT(1, MSG_MAX_TEXT)) \
    ONLY(run,    TEXT(0, 64))

#define ABORT_FIELDS(ITEM, LIST, ONLY) \
    ONLY(text,    TEXT(1, MSG_MAX_TEXT)) \
    ONLY(recover, BOOL) \
    ONLY(stopped, BOOL)

#define STOP_FIELDS(ITEM, LIST, ONLY) \
    ONLY(outcome, ENUM(1)) \
    ONLY(text,    TEXT(0, MSG_MAX_TEXT))

#define DRAIN_FIELDS(ITEM, LIST, ONLY) \
    ONLY(taken_back, BOOL) \
    ONLY(wrong,      BOOL)

#define STANDBY_FIELDS(ITEM, LIST, ONLY) \
    ONLY(address, TEXT(0, MSG_MAX_NAME))

#define VOTERS_FIELDS(ITEM, LIST, ONLY) \
    ONLY(term,       INT(0, MANY)) \
    ONLY(generation, INT(0, MANY)) \
    ONLY(n_ranks,    INT(0, MSG_MAX_RANKS)) \
    ONLY(standby,    TEXT(0, 64)) \
    ONLY(formed,     INT(0, MANY))

#define TRACE_FIELDS(ITEM, LIST, ONLY) \
    ONLY(number,      INT(1, MANY)) \
    ONLY(duration_ns, INT(1, CLOCK))

#define GOODBYE_FIELDS(ITEM, LIST, ONLY) \
    ONLY(text,    TEXT(0, MSG_MAX_TEXT)) \
    ONLY(polite,  BOOL) \
    ONLY(source,  TEXT(0, MSG_MAX_SOURCE)) \
    ONLY(seconds, INT(-1, MANY))

#define INSPECT_FIELDS(ITEM, LIST, ONLY) \
    ONLY(incident, INT(1, MANY))

/* ---- the messages ---- */

/* Bodies of a Control, by field number: NAME(member of Control, CASE). */
#define MESSAGE_BODIES(NAME) \
    NAME(hello,           HELLO) \
    NAME(welcome,         WELCOME) \
    NAME(refused,         REFUSED) \
    NAME(ready,           READY) \
    NAME(prepare,         PREPARE) \
    NAME(endpoints,       ENDPOINTS) \
    NAME(form,            FORM) \
    NAME(formed,          FORMED) \
    NAME(train,           TRAIN) \
    NAME(epoch_done,      EPOCH_DONE) \
    NAME(validate,        VALIDATE) \
    NAME(validate_done,   VALIDATE_DONE) \
    NAME(checkpoint,      CHECKPOINT) \
    NAME(checkpoint_done, CHECKPOINT_DONE) \
    NAME(heartbeat,       HEARTBEAT) \
    NAME(fault,           FAULT) \
    NAME(abort,           ABORT) \
    NAME(stop,            STOP) \
    NAME(goodbye,         GOODBYE) \
    NAME(injected,        INJECTED) \
    NAME(inspect,         INSPECT) \
    NAME(ring,            RING) \
    NAME(drain,           DRAIN) \
    NAME(standby,         STANDBY) \
    NAME(voters,          VOTERS) \
    NAME(trace,           TRACE) \
    NAME(spans,           SPANS)

/* Elements of repeated fields. */
#define MESSAGE_ELEMENTS(NAME) \
    NAME(tensor_hash, TENSOR_HASH) \
    NAME(gpu,         GPU) \
    NAME(collective,  COLLECTIVE) \
    NAME(span_name,   SPAN_NAME) \
    NAME(span,        SPAN)

/* The bodies that are a command to an engine, or an engine's report: (member, CASE, KIND). */
#define MESSAGE_COMMANDS(NAME) \
    NAME(prepare,    PREPARE,    CMD_PREPARE) \
    NAME(form,       FORM,       CMD_FORM) \
    NAME(train,      TRAIN,      CMD_TRAIN) \
    NAME(validate,   VALIDATE,   CMD_VALIDATE) \
    NAME(checkpoint, CHECKPOINT, CMD_CHECKPOINT)

#define MESSAGE_REPORTS(NAME) \
    NAME(ready,           READY,           REPORT_OPENED) \
    NAME(endpoints,       ENDPOINTS,       REPORT_PREPARED) \
    NAME(formed,          FORMED,          REPORT_FORMED) \
    NAME(epoch_done,      EPOCH_DONE,      REPORT_EPOCH) \
    NAME(validate_done,   VALIDATE_DONE,   REPORT_VALIDATED) \
    NAME(checkpoint_done, CHECKPOINT_DONE, REPORT_CHECKPOINT) \
    NAME(fault,           FAULT,           REPORT_FAULT) \
    NAME(injected,        INJECTED,        REPORT_INJECT) \
    NAME(spans,           SPANS,           REPORT_SPANS)

/* clang-format on */

#endif
