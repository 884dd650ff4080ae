/* board - the run's files for TensorBoard: RUN/tensorboard/events.out.tfevents.SECONDS.HOST.PID.
 *
 * Each process that leads the run writes one file.  Its name sorts behind those before it, whatever
 * the clock says, because readers take the files in this order.  It begins with the step from which
 * the run goes on: what earlier files have beyond that step does not count, and each tag has each
 * step once.
 *
 * Tags: loss/train, learning_rate, grad_norm, samples_per_second for each row of metrics.csv;
 * loss/validation, accuracy/validation for each epoch that was validated, and for a model of up to
 * MATRIX_MOST classes the picture confusion/validation (see/matrix.h), whose newest counts are in
 * RUN/confusion.csv; the job as a text and for
 * the HPARAMS tab, where a run is one line however often it was resumed.  Without rows
 * (report.every_steps: 0) loss/train and samples_per_second are those of the epochs.
 *
 * Life:    board_new -> board_event, board_rows ... -> board_end -> board_free, when the writer has
 *          done all.
 * Threads: one at a time; all reading and writing of files is the writer's.
 * Errors:  what cannot be written is left out, and the log says so once.  Nothing is written while
 *          another driver owns the run directory (ckpt/owner.h). */
#ifndef SEE_BOARD_H
#define SEE_BOARD_H

#include "base/writer.h"
#include "job/job.h"
#include "session/action.h"

struct board; /* opaque */

/* Of the run in `run_dir`, whose own name is `run`; `job` must stay.  writer: NULL: each call
 * writes itself. */
struct board *board_new(const char *run_dir, const char *run, const struct job *job,
                        struct writer *writer);
void board_free(struct board *b); /* NULL is fine */

/* EVENT_FORM opens the file; EVENT_EPOCH has numbers; others have none. */
void board_event(struct board *b, const struct session_event *ev);

/* Rows of metrics.csv; a later call may repeat the last one. */
void board_rows(struct board *b, const struct metrics_row *row, int n);

/* The run has finished.  One that failed or was stopped may go on, and does not say so here. */
void board_end(struct board *b);

#endif
